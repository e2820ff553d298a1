"""A fleet for people to look at."""

import numpy as np

from trimtab.resize.link.fleet import Fleet
from trimtab.resize.status import Row, Status

_LIMITS = ("cpus", "used", "memory", "memory_used")
_COUNTS = ("throttles", "traps", "refusals")


def fleet_status(fleet: Fleet, time: float, late: int, most: int | None = None) -> Status:
    """Everyone, or the busiest `most`; a container is called by its node and its path."""
    controller, slots, pools = fleet.controller, fleet.controller.slots, fleet.controller.pools
    pool = controller.column("pool").astype(np.intp)
    shown = np.argsort(-controller.column("used"), kind="stable")[:most]
    limits = np.stack([controller.column(name)[shown] for name in _LIMITS], axis=1).tolist()
    fleet.roster.known.reach(slots)
    counts = (
        np.stack([fleet.roster.known[name][slots[shown]] for name in _COUNTS], axis=1).astype(int).tolist()
    )
    names = {seat.number: seat.name for seat in fleet.roster.seats.values()}
    nodes = fleet.roster.known["node"][slots[shown]].tolist()
    rows = tuple(
        Row(f"{names[node]}:{fleet.roster.paths[slot]}", pools[number].name, *limit, *count)
        for slot, node, number, limit, count in zip(
            slots[shown].tolist(), nodes, pool[shown].tolist(), limits, counts, strict=True
        )
    )
    cpus, memory = (np.bincount(pool, controller.column(name), len(pools)) for name in ("cpus", "memory"))
    given = {each.name: (float(cpus[number]), float(memory[number])) for number, each in enumerate(pools)}
    caps = {each.name: (each.cpu, each.memory) for each in pools}
    return Status(time, late, caps, rows, given, len(slots) - len(rows))
