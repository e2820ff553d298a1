"""Fleet: groups of nodes, how much of them is in use, and what an hour of that costs."""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trimtab.core import HOUR, format_bytes, format_money
from trimtab.serve.dashboard import widgets
from trimtab.serve.dashboard.frame import DashboardPage, Parameters
from trimtab.serve.dashboard.visit import Visit
from trimtab.serve.dashboard.widgets import Column, Table
from trimtab.serve.operations import Service
from trimtab.store import ACTIVE, JobRecord, JobState

if TYPE_CHECKING:
    from trimtab.schedule import NodeGroup, SchedulerStatus

_AREAS = ("job",)
_MOST_JOBS = 1000
_HOLDING = (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)


def _hourly(price: float) -> str:
    return format_money(price * HOUR)


GROUPS = (
    Column("Group", lambda row: row["group"].name),
    Column("Accelerator", lambda row: row["group"].accelerator or "none"),
    Column("Nodes", lambda row: row["group"].nodes, str),
    Column("Accelerators", lambda row: row["group"].nodes * row["group"].gpus, str),
    Column("CPUs of a node", lambda row: row["group"].cpus, "{:g}".format),
    Column("Memory of a node", lambda row: row["group"].memory, format_bytes),
    Column("Market", lambda row: row["group"].market.value),
    Column("In use", lambda row: round(row["used"], 3), kind="share"),
    Column("Per hour", lambda row: row["price"], _hourly),
    Column("Per hour in use", lambda row: row["price"] * row["used"], _hourly),
)
NODES = (
    Column("Node", lambda row: row["node"]),
    Column("Group", lambda row: row["group"]),
    Column("Workers", lambda row: row["workers"], str),
    Column("Jobs", lambda row: row["jobs"]),
)


@dataclass(frozen=True, slots=True)
class FleetView:
    """The scheduler, the jobs that hold nodes, and how many wait."""

    scheduler: "SchedulerStatus"
    holding: tuple[JobRecord, ...]
    waiting: int


def fleet_view(service: Service) -> FleetView:
    active = service.jobs.page(_MOST_JOBS, state=ACTIVE).items
    holding = tuple(record for record in active if record.state in _HOLDING)
    waiting = sum(record.state is JobState.WAITING for record in active)
    return FleetView(service.fleet.now(), holding, waiting)


async def draw(visit: Visit, parameters: Parameters) -> None:
    how_to_fill = (
        "No scheduler has published its nodes yet. Start one on this store, or fill it with a small run:",
        ("trimtab up", "trimtab demo"),
    )
    await widgets.live(
        visit, "fleet", fleet_view, _draw, lambda fleet: fleet.scheduler.groups, how_to_fill, _AREAS
    )


def _draw(fleet: FleetView) -> Callable[[FleetView], None]:
    status = widgets.text("p", _status(fleet), "", {"role": "status"})
    values = widgets.tiles(figures(fleet))
    widgets.heading("Groups of nodes")
    groups = Table("Groups of nodes", GROUPS, group_rows(fleet), filtered=False)
    widgets.heading("Nodes in use")
    idle = widgets.text("p", "No node is in use by a job that you may see.")
    with widgets.element("div") as in_use:
        nodes = Table("Nodes in use", NODES, node_rows(fleet))

    def show(fleet: FleetView) -> None:
        status.set_text(_status(fleet))
        for value, (_, figure) in zip(values, figures(fleet), strict=True):
            value.set_text(figure)
        groups.show(group_rows(fleet))
        rows = node_rows(fleet)
        nodes.show(rows)
        idle.set_visibility(not rows)
        in_use.set_visibility(bool(rows))

    show(fleet)
    return show


def _status(fleet: FleetView) -> str:
    scheduler = fleet.scheduler
    names = f"{scheduler.policy or 'no policy'} on {scheduler.engine or 'no engine'}"
    if scheduler.there:
        return f"The scheduler runs: {names}."
    return f"The scheduler last reported more than a minute ago ({names}); trimtab up starts it again."


def figures(fleet: FleetView) -> tuple[tuple[str, str], ...]:
    groups = fleet.scheduler.groups
    rows = group_rows(fleet)
    gpus = sum(group.nodes * group.gpus for group in groups)
    return (
        ("nodes", str(sum(group.nodes for group in groups))),
        ("accelerators in use", f"{sum(_held(fleet, 'gpus').values()):g} of {gpus}"),
        ("jobs that run", str(len(fleet.holding))),
        ("jobs that wait", str(fleet.waiting)),
        ("in use, per hour", _hourly(sum(row["price"] * row["used"] for row in rows))),
        ("all of it, per hour", _hourly(sum(row["price"] for row in rows))),
    )


def group_rows(fleet: FleetView) -> list[dict[str, Any]]:
    """Each group with its price (dollars per second) and the share of it in use."""
    return [
        {"group": group, "price": group.nodes * group.price, "used": share_in_use(group, fleet)}
        for group in fleet.scheduler.groups
    ]


def node_rows(fleet: FleetView) -> list[dict[str, Any]]:
    """Each node that a job holds, with its workers and jobs."""
    workers: Counter[str] = Counter()
    group: dict[str, str] = {}
    jobs: dict[str, list[str]] = {}
    for record in fleet.holding:
        for part in record.run.parts:
            workers[part.node] += part.workers
            group[part.node] = record.run.group
            jobs.setdefault(part.node, []).append(record.name)
    return [
        {"node": node, "group": group[node], "workers": workers[node], "jobs": ", ".join(sorted(jobs[node]))}
        for node in sorted(workers)
    ]


def share_in_use(group: "NodeGroup", fleet: FleetView) -> float:
    """Share of a group's accelerators that jobs hold; of its CPUs if it has no accelerators."""
    per_node = group.gpus or group.cpus
    held = _held(fleet, "gpus" if group.gpus else "cpus").get(group.name, 0.0)
    return min(1.0, held / (group.nodes * per_node)) if group.nodes and per_node else 0.0


def _held(fleet: FleetView, resource: str) -> dict[str, float]:
    """Accelerators or CPUs that jobs hold, by group."""
    held: dict[str, float] = defaultdict(float)
    for record in fleet.holding:
        of_worker = float(record.spec.get("job", {}).get("worker", {}).get(resource) or 0.0)
        held[record.run.group] += of_worker * sum(part.workers for part in record.run.parts)
    return held


PAGE = DashboardPage("Fleet", "/", "dns", "f", "fleet", draw)
