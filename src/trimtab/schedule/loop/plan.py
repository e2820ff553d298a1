"""From an allocation to actions: which runs stop, which jobs start where, why others wait, and until when."""

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trimtab.core import Estimate
from trimtab.schedule.allocation import WAITING, Allocation, Jobs
from trimtab.schedule.cluster import Cluster, Floats, Group, accepts, impossible
from trimtab.schedule.job import Job, Submission
from trimtab.schedule.loop.journal import expected, finite
from trimtab.schedule.loop.view import Fleet, RoundView
from trimtab.schedule.placing import NodeOccupancy, Placement
from trimtab.store import JobRecord, JobState, Outlook, Part

_MOST_FORECAST = 500  # jobs at the head of the queue that are looked at
_SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class ExpectedStart:
    """Seconds from now; infinite where something before it has no known end."""

    value: float
    low: float
    high: float


def forecast(jobs: Jobs, cluster: Cluster, allocation: Allocation) -> dict[int, ExpectedStart]:
    """For the rows that wait: when each starts if nobody else comes and the queue keeps its order.

    The low and the high end come from replaying the queue with the low and the high of every job's remaining
    work. Policies may let a job overtake, so this is what to expect, not a promise.
    """
    likely, early, late = (
        _replay(jobs, cluster, allocation, left)
        for left in (jobs.remaining, jobs.remaining_low, jobs.remaining_high)
    )
    return {
        row: ExpectedStart(value, min(value, early[row], late[row]), max(value, early[row], late[row]))
        for row, value in likely.items()
    }


def _replay(jobs: Jobs, cluster: Cluster, allocation: Allocation, left: Floats) -> dict[int, float]:
    free = cluster.capacity.copy()
    demand = jobs.demand
    ends: list[tuple[float, int, tuple[float, ...]]] = []

    def begin(row: int, shape: int, at: float) -> None:
        group = cluster.shapes[shape].group
        used = demand[row] * cluster.shapes[shape].workers
        free[group] -= used
        speed = float(jobs.speed[row, shape])
        lasts = float(left[row]) / speed if speed > 0 and not math.isnan(left[row]) else math.inf
        if math.isfinite(lasts):
            heapq.heappush(ends, (at + lasts, group, tuple(used)))

    running = np.flatnonzero(allocation.shape != WAITING)
    for row in running.tolist():
        begin(row, int(allocation.shape[row]), 0.0)
    starts: dict[int, float] = {}
    now = 0.0
    waiting = [int(row) for row in allocation.order if allocation.shape[row] == WAITING]
    for row in waiting[:_MOST_FORECAST]:
        shapes = _smallest(jobs, cluster, row)
        starts[row] = math.inf
        while shapes and math.isfinite(now):
            fitting = [s for s in shapes if _fits(free, cluster, s, demand[row])]
            if fitting:
                begin(row, max(fitting, key=lambda s: float(jobs.speed[row, s])), now)
                starts[row] = now
                break
            now = _next_end(ends, free)
    return starts


def _smallest(jobs: Jobs, cluster: Cluster, row: int) -> list[int]:
    """In each group, the smallest shape a job can run in."""
    best: dict[int, int] = {}
    workers = cluster.shape_workers
    allowed = (jobs.speed[row] > 0) & (workers >= jobs.least[row]) & (workers <= jobs.most[row])
    for shape in np.flatnonzero(allowed).tolist():
        group = cluster.shapes[shape].group
        if group not in best or workers[shape] < workers[best[group]]:
            best[group] = shape
    return list(best.values())


def _fits(free: Floats, cluster: Cluster, shape: int, demand: Floats) -> bool:
    chosen = cluster.shapes[shape]
    return bool((free[chosen.group] + _SLACK >= demand * chosen.workers).all())


def _next_end(ends: list[tuple[float, int, tuple[float, ...]]], free: Floats) -> float:
    """Let the next one end; never where nobody does."""
    if not ends:
        return math.inf
    when, group, used = heapq.heappop(ends)
    free[group] += used
    return when


@dataclass(frozen=True, slots=True)
class JobStart:
    """Where a job starts, why, and what is expected of it."""

    group: Group
    parts: tuple[Part, ...]
    reason: str
    estimates: dict[str, Estimate]


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """By row: runs to stop (to what end, and why), jobs to start, to refuse, and without room as yet."""

    stops: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    starts: Mapping[int, JobStart] = field(default_factory=dict)
    refused: Mapping[int, str] = field(default_factory=dict)
    unplaced: tuple[int, ...] = ()


def plan_of(
    view: RoundView,
    allocation: Allocation,
    fleet: Fleet,
    records: Sequence[JobRecord],
    submission: Callable[[JobRecord], Submission],
) -> RoundPlan:
    """Starts are on nodes that are free now; what is stopped gives its nodes to a later round."""
    before, after = view.previous.shape, allocation.shape
    why = {row: allocation.why.get(row, "") for row in range(len(view.rows))}
    refused = {
        row: why[row] or "its deadline cannot be met"
        for row in allocation.refused
        if view.rows[row].record.state is JobState.WAITING
    }
    going = [int(row) for row in np.flatnonzero((before != WAITING) & (after != before))]
    stops = {
        row: (_what(view, row, int(after[row])), why[row] or _made_room(view, int(after[row])))
        for row in going
        if view.rows[row].record.run.run_id
    }
    wanted = np.where(before == WAITING, after, before)
    for row, each in enumerate(view.rows):
        if each.record.state is JobState.STOPPING or row in refused:
            wanted[row] = WAITING
    floor = _occupied(fleet, records, submission)
    keys = [row.record.id for row in view.rows]
    settled = floor.settle(keys, view.jobs, view.cluster, view.previous, replace(allocation, shape=wanted))
    starts = {
        row: JobStart(
            fleet.groups[placement.group],
            tuple(Part(fleet.nodes[placement.group][node], count) for node, count in placement.parts),
            why[row] or _first_in_line(view, row),
            expected(view, row, int(after[row])),
        )
        for row, placement in settled.placed.items()
    }
    return RoundPlan(stops, starts, refused, settled.unplaced)


def _occupied(
    fleet: Fleet, records: Sequence[JobRecord], submission: Callable[[JobRecord], Submission]
) -> NodeOccupancy:
    """A floor on which everything stands that has not gone yet; large shares first, so that all find room.

    Where shares cannot be put together again as their engine has them, their node is taken for full.
    """
    floor = NodeOccupancy(fleet.groups)
    there = [(record, submission(record).job) for record in records if record.state is not JobState.WAITING]
    for record, job in sorted(there, key=lambda each: -each[1].worker.gpus):
        seen = [part for part in record.run.parts if part.node in fleet.places]
        if seen:
            group = fleet.places[seen[0].node][0]
            nodes = tuple((fleet.places[part.node][1], part.workers) for part in seen)
            try:
                floor.hold(record.id, Placement(group, nodes, _demand(job)))
            except ValueError:
                for node, _ in nodes:
                    floor.close(group, node)
    return floor


def _demand(job: Job) -> tuple[float, float, float]:
    return job.worker.gpus, job.worker.cpus, job.worker.memory


def _what(view: RoundView, row: int, after: int) -> str:
    """Name of a change of shape: preempt, move, grow or shrink."""
    if after == WAITING:
        return "preempt"
    old, new = (view.cluster.shapes[shape] for shape in (int(view.previous.shape[row]), after))
    if old.group != new.group:
        return "move"
    return "grow" if new.workers > old.workers else "shrink"


def _made_room(view: RoundView, after: int) -> str:
    if after == WAITING:
        return "its place was given to others"
    new = view.cluster.shapes[after]
    return f"it goes on with {new.workers} workers on {view.cluster.groups[new.group].name}"


def _first_in_line(view: RoundView, row: int) -> str:
    restarts = view.rows[row].record.run.restarts
    return "there is room for it" if not restarts else f"there is room for it again, restart {restarts}"


def outlooks(
    view: RoundView, allocation: Allocation, plan: RoundPlan, now: float
) -> tuple[dict[str, float], dict[str, Outlook]]:
    """By id: units done, and the outlook of those that wait; only what differs from what was told before."""
    done = {row.record.id: row.done for row in view.rows if row.done != row.record.done}
    waiting = {
        index: row
        for index, row in enumerate(view.rows)
        if row.record.state is JobState.WAITING and index not in plan.starts and index not in plan.refused
    }
    starts = forecast(view.jobs, view.cluster, allocation) if waiting else {}
    changed = {}
    for index, row in waiting.items():
        outlook = _outlook(_why(view, allocation, plan, index), starts.get(index), now)
        if not _same(outlook, row.record.outlook):
            changed[row.record.id] = outlook
    return done, changed


def _outlook(why: str, start: ExpectedStart | None, now: float) -> Outlook:
    if start is None or finite(start.value) is None:
        return Outlook(why)
    high = finite(start.high)
    return Outlook(why, now + start.value, now + start.low, None if high is None else now + high)


def _same(one: Outlook, other: Outlook) -> bool:
    """Whether nobody would notice the difference: the same words, and starts within seconds."""
    near = all(
        (a is None) == (b is None) and (a is None or b is None or abs(a - b) < 5.0)
        for a, b in ((one.start, other.start), (one.low, other.low), (one.high, other.high))
    )
    return near and replace(one, start=None, low=None, high=None) == replace(
        other, start=None, low=None, high=None
    )


def _why(view: RoundView, allocation: Allocation, plan: RoundPlan, index: int) -> str:
    row = view.rows[index]
    never = impossible(row.job, view.cluster.groups)
    if never is not None:
        return f"it is impossible here: {never}"
    if index in allocation.why:
        return allocation.why[index]
    if allocation.shape[index] != WAITING:
        leaving = "until others have saved and stopped" if plan.stops else "until nodes are free together"
        return f"it is its turn, and it waits {leaving}"
    before = int(np.count_nonzero(allocation.shape[allocation.order[: _place(allocation, index)]] == WAITING))
    ahead = f"{before} jobs that wait come before it" if before else "it is the next in line"
    return f"{ahead}; {_full(view, allocation, index)}"


def _place(allocation: Allocation, index: int) -> int:
    return int(np.flatnonzero(allocation.order == index)[0])


def _full(view: RoundView, allocation: Allocation, index: int) -> str:
    """How much of what it could use is in use."""
    job = view.rows[index].job
    used = np.zeros(len(view.cluster.groups))
    given = np.flatnonzero(allocation.shape != WAITING)
    shapes = allocation.shape[given]
    each = view.jobs.gpus[given] if job.worker.gpus else view.jobs.cpus[given]
    np.add.at(used, view.cluster.shape_group[shapes], view.cluster.shape_workers[shapes] * each)
    column = 0 if job.worker.gpus else 1
    parts = [
        f"{count:g} of {view.cluster.capacity[number, column]:g} {group.accelerator or 'CPUs'} in use"
        for number, (group, count) in enumerate(zip(view.cluster.groups, used.tolist(), strict=True))
        if accepts(job.worker, group)
    ]
    return ", ".join(parts)
