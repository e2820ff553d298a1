"""Spaces to search, and workloads whose times follow a law."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from trimtab.predict.fewshot.case import Case, metrics_table, settings_table
from trimtab.tune.searcher import Choice, Stop
from trimtab.tune.space import Observation, Space

_MACHINES = {"small": (2.0, 4e9, 0.1), "large": (8.0, 16e9, 0.4), "roomy": (8.0, 64e9, 0.5)}
_NODES = (1.0, 2.0, 4.0, 8.0)


def grid() -> Space:
    """Three machine types, one to eight of each."""
    rows = [(name, *kind, nodes) for name, kind in _MACHINES.items() for nodes in _NODES]
    names = tuple(f"{name} nodes={nodes:g}" for name, _, _, _, nodes in rows)
    cpus, memory, price, nodes = (np.array([row[place] for row in rows]) for place in (1, 2, 3, 4))
    settings = settings_table(len(rows), cpus=cpus, memory_bytes=memory, price_per_hour=price, nodes=nodes)
    return Space(names, settings, price * nodes / 3600.0)


def workload(name: str, work: float, memory: float = 0.0, application: str = "") -> Case:
    """Seconds that shrink with CPUs and grow with machines; it fails where all memory is below `memory`."""
    space = grid()
    nodes, cpus = space.setting("nodes"), space.setting("cpus")
    return Case(
        corpus="made",
        application=application or name,
        name=name,
        environment="here",
        configurations=space.names,
        settings=space.settings,
        metrics=metrics_table(len(space)),
        seconds=work / (nodes * cpus) + 0.01 * work * nodes**0.5,
        ok=nodes * space.setting("memory_bytes") >= memory,
    )


def trial(case: Case, row: int) -> Observation:
    """Observation of a trial."""
    return Observation(row, float(case.seconds[row]), bool(case.ok[row]))


class Search(Protocol):
    """A search that has begun."""

    def next(self, seen: Sequence[Observation]) -> Choice | Stop: ...


def tried(search: Search, case: Case, most: int = 100) -> tuple[list[Observation], Stop | None]:
    """All trials until the search stops, or so many."""
    seen = list[Observation]()
    while len(seen) < most:
        choice = search.next(seen)
        if isinstance(choice, Stop):
            return seen, choice
        seen.append(trial(case, choice.row))
    return seen, None
