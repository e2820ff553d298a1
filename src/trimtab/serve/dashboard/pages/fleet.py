"""Fleet: groups of nodes, what of them is in use, and what an hour of that costs."""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trimtab.core import HOUR, format_bytes, format_money
from trimtab.serve.dashboard.frame import Asked, Page
from trimtab.serve.dashboard.visit import Visit
from trimtab.serve.dashboard.widgets import (
    Column,
    Rows,
    Table,
    element,
    empty,
    follow,
    heading,
    reload_when,
    text,
    tiles,
)
from trimtab.serve.operations import Service
from trimtab.store import ACTIVE, JobRecord, JobState

if TYPE_CHECKING:
    from trimtab.schedule import Group, SchedulerStatus

_AREAS = ("job",)
_MOST = 1000  # jobs that hold something
_HOLDING = (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)
_GROUPS = (
    Column("id", "Group"),
    Column("kind", "Accelerator"),
    Column("nodes", "Nodes", "number"),
    Column("gpus", "Accelerators", "number"),
    Column("cpus", "CPUs of a node", "number"),
    Column("memory", "Memory of a node", "number"),
    Column("market", "Market"),
    Column("used", "In use", "share"),
    Column("price", "Per hour", "number"),
    Column("spent", "Per hour in use", "number"),
)
_NODES = (
    Column("id", "Node"),
    Column("group", "Group"),
    Column("workers", "Workers", "number"),
    Column("jobs", "Jobs"),
)


@dataclass(frozen=True, slots=True)
class FleetNow:
    """The scheduler, the jobs that hold something of it, and how many wait."""

    scheduler: "SchedulerStatus"
    holding: tuple[JobRecord, ...]
    waiting: int


def fleet_now(service: Service) -> FleetNow:
    """As far as who asks may see."""
    active = service.jobs.page(_MOST, state=ACTIVE).items
    holding = tuple(record for record in active if record.state in _HOLDING)
    waiting = sum(record.state is JobState.WAITING for record in active)
    return FleetNow(service.fleet.now(), holding, waiting)


async def draw(visit: Visit, asked: Asked) -> None:
    """The page."""
    now = await visit.ask("fleet", fleet_now, _AREAS)
    if not now.scheduler.groups:
        empty(
            "No scheduler has told of its nodes yet. Start one on this store, or fill it with a small run:",
            ("trimtab up", "trimtab demo"),
        )

        async def some() -> bool:
            return bool((await visit.ask("fleet", fleet_now, _AREAS)).scheduler.groups)

        reload_when(visit, _AREAS, some)
        return
    status = text("p", _status(now), "", {"role": "status"})
    values = tiles(figures(now))
    heading("Groups of nodes")
    groups = Table("Groups of nodes", _GROUPS, group_rows(now), filtered=False)
    heading("Nodes in use")
    idle = text("p", _IDLE)
    with element("div") as in_use:
        nodes = Table("Nodes in use", _NODES, node_rows(now))

    def show(now: FleetNow) -> None:
        status.set_text(_status(now))
        for value, (_, figure) in zip(values, figures(now), strict=True):
            value.set_text(figure)
        groups.show(group_rows(now))
        rows = node_rows(now)
        nodes.show(rows)
        idle.set_visibility(not rows)
        in_use.set_visibility(bool(rows))

    async def again() -> None:
        show(await visit.ask("fleet", fleet_now, _AREAS))

    show(now)
    follow(visit, _AREAS, again)


_IDLE = "No node is in use by a job that you may see."


def _status(now: FleetNow) -> str:
    scheduler = now.scheduler
    named = f"{scheduler.policy or 'no policy'} on {scheduler.engine or 'no engine'}"
    if scheduler.there:
        return f"The scheduler runs: {named}."
    return f"The scheduler was last heard of more than a minute ago ({named}); trimtab up starts it again."


def figures(now: FleetNow) -> tuple[tuple[str, str], ...]:
    """The fleet in a few numbers."""
    groups = now.scheduler.groups
    held = held_accelerators(now)
    gpus = sum(group.nodes * group.gpus for group in groups)
    price = sum(group.nodes * group.price for group in groups)
    return (
        ("nodes", str(sum(group.nodes for group in groups))),
        ("accelerators in use", f"{sum(held.values()):g} of {gpus}"),
        ("jobs that run", str(len(now.holding))),
        ("jobs that wait", str(now.waiting)),
        ("in use, per hour", format_money(sum(_spent(group, now) for group in groups) * HOUR)),
        ("all of it, per hour", format_money(price * HOUR)),
    )


def group_rows(now: FleetNow) -> Rows:
    """A row for each group."""
    return [
        {
            "id": group.name,
            "kind": group.accelerator or "none",
            "nodes": f"{group.nodes}",
            "nodes#": group.nodes,
            "gpus": f"{group.nodes * group.gpus}",
            "gpus#": group.nodes * group.gpus,
            "cpus": f"{group.cpus:g}",
            "cpus#": group.cpus,
            "memory": format_bytes(group.memory),
            "memory#": group.memory,
            "market": group.market.value,
            "used": round(share_in_use(group, now), 3),
            "price": format_money(group.nodes * group.price * HOUR),
            "price#": group.nodes * group.price,
            "spent": format_money(_spent(group, now) * HOUR),
            "spent#": _spent(group, now),
        }
        for group in now.scheduler.groups
    ]


def node_rows(now: FleetNow) -> Rows:
    """A row for each node that some job holds."""
    workers: Counter[str] = Counter()
    group: dict[str, str] = {}
    jobs: dict[str, list[str]] = {}
    for record in now.holding:
        for part in record.run.parts:
            workers[part.node] += part.workers
            group[part.node] = record.run.group
            jobs.setdefault(part.node, []).append(record.name)
    return [
        {
            "id": node,
            "group": group[node],
            "workers": str(workers[node]),
            "workers#": workers[node],
            "jobs": ", ".join(sorted(jobs[node])),
        }
        for node in sorted(workers)
    ]


def held_accelerators(now: FleetNow) -> dict[str, float]:
    """Accelerators that jobs hold, by group."""
    return _held(now, "gpus")


def share_in_use(group: "Group", now: FleetNow) -> float:
    """Of a group's accelerators; where it has none, of its CPUs."""
    of_one = group.gpus or group.cpus
    held = _held(now, "gpus" if group.gpus else "cpus").get(group.name, 0.0)
    return min(1.0, held / (group.nodes * of_one)) if group.nodes and of_one else 0.0


def _held(now: FleetNow, what: str) -> dict[str, float]:
    held: dict[str, float] = {}
    for record in now.holding:
        worker = record.spec.get("job", {}).get("worker", {})
        count = sum(part.workers for part in record.run.parts)
        each = float(worker.get(what) or 0.0)
        held[record.run.group] = held.get(record.run.group, 0.0) + count * each
    return held


def _spent(group: "Group", now: FleetNow) -> float:
    """Dollars per second of what is in use."""
    return group.nodes * group.price * share_in_use(group, now)


PAGE = Page("Fleet", "/", "dns", "f", "fleet", draw)
