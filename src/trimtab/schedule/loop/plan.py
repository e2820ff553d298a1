"""From an allocation to actions: runs to stop, jobs to start and where, and jobs that may start next."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trimtab.core import Estimate
from trimtab.schedule.allocation import WAITING, Allocation
from trimtab.schedule.cluster import NodeGroup
from trimtab.schedule.job import Submission, priority_name
from trimtab.schedule.loop.journal import expected
from trimtab.schedule.loop.view import Fleet, RoundView
from trimtab.schedule.placing import NodeOccupancy, Placement
from trimtab.schedule.policies.filling import usable_shapes
from trimtab.store import JobRecord, JobState, Part

MOST_NAMED = 3
"""Jobs that a reason lists."""

_MOST_READY = 1000


@dataclass(frozen=True, slots=True)
class JobStart:
    """Where a job starts, why, and the estimates for its run."""

    group: NodeGroup
    parts: tuple[Part, ...]
    reason: str
    estimates: dict[str, Estimate]


class ReadyJobs:
    """Waiting jobs that may start on nodes that become free before the next round, in the policy's order.

    Each gets the fastest shape that fits, as in greedy filling; the first one that does not fit ends it, so
    that no job passes another. There are none while nodes are being freed for a certain job.
    """

    def __init__(self, view: RoundView, fleet: Fleet, occupied: NodeOccupancy, rows: Sequence[int]) -> None:
        self._view, self._fleet, self._occupied = view, fleet, occupied
        self._rows = deque(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def release(self, id: str) -> None:
        """Free the nodes of a job."""
        self._occupied.release(id)

    def starts(self, waiting: Callable[[str], JobRecord | None]) -> Iterator[tuple[JobRecord, JobStart]]:
        """The starts that are possible now; `waiting` gives the present record of a job if it still waits."""
        while self._rows:
            row = self._rows[0]
            record = waiting(self._view.jobs.ids[row])
            if record is not None:
                start = self._start(row)
                if start is None:
                    return
                yield record, start
            self._rows.popleft()

    def _start(self, row: int) -> JobStart | None:
        jobs, cluster = self._view.jobs, self._view.cluster
        usable = np.flatnonzero(usable_shapes(jobs, cluster, np.array([row]))[0])
        speed = np.nan_to_num(jobs.speed[row, usable])
        for shape in usable[np.argsort(-speed, kind="stable")].tolist():
            placement = self._occupied.put(jobs.ids[row], cluster.shapes[shape], jobs.demand_of(row))
            if placement is not None:
                reason = "nodes became free, and it was the first in line for them"
                return _job_start(self._view, self._fleet, row, shape, placement, reason)
        return None


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """By row: runs to stop (preempt, move, grow or shrink, and why), jobs to start and to refuse."""

    stops: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    starts: Mapping[int, JobStart] = field(default_factory=dict)
    refused: Mapping[int, str] = field(default_factory=dict)
    ready: ReadyJobs | None = None


def plan_of(
    view: RoundView,
    allocation: Allocation,
    fleet: Fleet,
    records: Sequence[JobRecord],
    submission: Callable[[JobRecord], Submission],
) -> RoundPlan:
    """Starts are on nodes that are free now; nodes of stopped runs are given away in a later round."""
    before, after = view.previous.shape, allocation.shape
    refused = {
        row: allocation.why.get(row) or "its hard deadline cannot be met"
        for row in allocation.refused
        if view.rows[row].record.state is JobState.WAITING
    }
    stops = {
        row: _stop(view, allocation, row)
        for row in np.flatnonzero((before != WAITING) & (after != before)).tolist()
        if view.rows[row].record.run.run_id
    }
    shapes = np.where(before == WAITING, after, before)
    for index, row in enumerate(view.rows):
        if row.record.state is JobState.STOPPING or index in refused:
            shapes[index] = WAITING
    occupied = _occupied(fleet, records, submission)
    keys = [row.record.id for row in view.rows]
    changes = occupied.settle(keys, view.jobs, view.cluster, view.previous, replace(allocation, shape=shapes))
    starts = {
        index: _job_start(view, fleet, index, int(after[index]), placement, allocation.why.get(index, ""))
        for index, placement in changes.placed.items()
    }
    # Nodes that a stopped run will free are for the job that it is stopped for.
    rows = () if stops or changes.unplaced else _ready_rows(view, allocation, occupied)
    return RoundPlan(stops, starts, refused, ReadyJobs(view, fleet, occupied, rows))


def _ready_rows(view: RoundView, allocation: Allocation, occupied: NodeOccupancy) -> Sequence[int]:
    """Jobs that wait for nodes only. A job for which there is room waits because the policy wants it to."""
    jobs, cluster = view.jobs, view.cluster
    rows = allocation.order[allocation.shape[allocation.order] == WAITING]
    if allocation.ready is not None:
        rows = rows[allocation.ready[rows]]
    rows = rows[:_MOST_READY]
    usable = usable_shapes(jobs, cluster, rows)
    demand = jobs.demand[rows]
    refused, room = set(allocation.refused), dict[bytes, bool]()

    def has_room(index: int) -> bool:
        key = usable[index].tobytes() + demand[index].tobytes()
        if key not in room:
            shapes = (cluster.shapes[shape] for shape in np.flatnonzero(usable[index]))
            room[key] = any(occupied.has_room(shape, demand[index]) for shape in shapes)
        return room[key]

    return [
        row
        for index, row in enumerate(rows.tolist())
        if usable[index].any()
        and row not in refused
        and view.rows[row].record.state is JobState.WAITING
        and not has_room(index)
    ]


def _job_start(
    view: RoundView, fleet: Fleet, row: int, shape: int, placement: Placement, why: str
) -> JobStart:
    restarts = view.rows[row].record.run.restarts
    return JobStart(
        fleet.groups[placement.group],
        tuple(Part(fleet.nodes[placement.group][node], count) for node, count in placement.parts),
        why or ("its nodes are free" if not restarts else f"its nodes are free; restart {restarts}"),
        expected(view, row, shape),
    )


def _occupied(
    fleet: Fleet, records: Sequence[JobRecord], submission: Callable[[JobRecord], Submission]
) -> NodeOccupancy:
    """The nodes with all runs that have not ended; large shares first, so that all find room.

    Where shares cannot be combined again as their engine has them, their node counts as full.
    """
    occupied = NodeOccupancy(fleet.groups)
    placed = [(record, submission(record).job) for record in records if record.state is not JobState.WAITING]
    for record, job in sorted(placed, key=lambda pair: -pair[1].worker.gpus):
        parts = [part for part in record.run.parts if part.node in fleet.places]
        if parts:
            group = fleet.places[parts[0].node][0]
            nodes = tuple((fleet.places[part.node][1], part.workers) for part in parts)
            demand = (job.worker.gpus, job.worker.cpus, job.worker.memory)
            try:
                occupied.hold(record.id, Placement(group, nodes, demand))
            except ValueError:
                for node, _ in nodes:
                    occupied.close(group, node)
    return occupied


def _stop(view: RoundView, allocation: Allocation, row: int) -> tuple[str, str]:
    """The name of a change of shape, and its reason."""
    after, why = int(allocation.shape[row]), allocation.why.get(row, "")
    old = view.cluster.shapes[int(view.previous.shape[row])]
    if after != WAITING:
        new = view.cluster.shapes[after]
        name = view.cluster.groups[new.group].name
        resized = "grow" if new.workers > old.workers else "shrink"
        action = resized if new.group == old.group else "move"
        return action, why or f"it goes on with {new.workers} workers on {name}"
    changed = allocation.order[allocation.shape[allocation.order] != view.previous.shape[allocation.order]]
    winners = [
        view.rows[other].job
        for other in changed.tolist()
        if allocation.shape[other] != WAITING
        and view.cluster.shape_group[allocation.shape[other]] == old.group
    ]
    if not winners:
        return "preempt", why or "its nodes are needed for other jobs"
    named = ", ".join(
        f"{job.workload.name} ({job.id}, priority {priority_name(job.workload.priority)})"
        for job in winners[:MOST_NAMED]
    )
    more = f" and {len(winners) - MOST_NAMED} more" if len(winners) > MOST_NAMED else ""
    own = priority_name(view.rows[row].job.workload.priority)
    return "preempt", f"preempted by {named}{more}; its own priority is {own}" + (f"; {why}" if why else "")
