"""Outlooks: why a job waits, and when it is expected to start.

A long queue has more outlooks than can be written in one round, so they are written a few at a time, those of
the jobs that come next first.
"""

import heapq
import math
from collections import deque
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trimtab.schedule.allocation import WAITING, Allocation, JobColumns
from trimtab.schedule.cluster import Cluster, Floats, accepts, impossible
from trimtab.schedule.job import Job
from trimtab.schedule.loop.plan import MOST_NAMED, RoundPlan
from trimtab.schedule.loop.runs import ActiveJobs
from trimtab.schedule.loop.view import RoundView
from trimtab.store import JobState, Outlook

_MOST_FORECAST = 500  # jobs at the head of the queue that get a forecast
_WRITTEN_AT_ONCE = 25
_EXAMINED_AT_ONCE = 250
_SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class ExpectedStart:
    """Seconds from now; infinite where a job before it has no known end."""

    value: float
    low: float
    high: float


def forecast(jobs: JobColumns, cluster: Cluster, allocation: Allocation) -> dict[int, ExpectedStart]:
    """Start of each waiting row if no other job comes and the queue keeps its order.

    The low and the high end come from replaying the queue with the low and the high of every job's remaining
    work. Policies may let a job overtake, so this is an expectation, not a promise.
    """
    likely, early, late = (
        _replay(jobs, cluster, allocation, work)
        for work in (jobs.remaining, jobs.remaining_low, jobs.remaining_high)
    )
    return {
        row: ExpectedStart(value, min(value, early[row], late[row]), max(value, early[row], late[row]))
        for row, value in likely.items()
    }


def _replay(jobs: JobColumns, cluster: Cluster, allocation: Allocation, work: Floats) -> dict[int, float]:
    free, demand, workers = cluster.capacity.copy(), jobs.demand, cluster.shape_workers
    ends: list[tuple[float, int, tuple[float, ...]]] = []

    def begin(row: int, shape: int, at: float) -> None:
        group = cluster.shapes[shape].group
        used = demand[row] * workers[shape]
        free[group] -= used
        speed = float(jobs.speed[row, shape])
        lasts = float(work[row]) / speed if speed > 0 and not math.isnan(work[row]) else math.inf
        if math.isfinite(lasts):
            heapq.heappush(ends, (at + lasts, group, tuple(used)))

    def smallest(row: int) -> list[int]:
        """In each group, the smallest shape a job can run in."""
        best: dict[int, int] = {}
        allowed = (jobs.speed[row] > 0) & (workers >= jobs.least[row]) & (workers <= jobs.most[row])
        for shape in np.flatnonzero(allowed).tolist():
            group = cluster.shapes[shape].group
            if group not in best or workers[shape] < workers[best[group]]:
                best[group] = shape
        return list(best.values())

    for row in np.flatnonzero(allocation.shape != WAITING).tolist():
        begin(row, int(allocation.shape[row]), 0.0)
    starts: dict[int, float] = {}
    now = 0.0
    waiting = allocation.order[allocation.shape[allocation.order] == WAITING]
    for row in waiting[:_MOST_FORECAST].tolist():
        starts[row] = math.inf
        if not math.isfinite(now):
            continue
        shapes = smallest(row)
        while shapes:
            fitting = [
                shape
                for shape in shapes
                if (free[cluster.shapes[shape].group] + _SLACK >= demand[row] * workers[shape]).all()
            ]
            if fitting:
                begin(row, max(fitting, key=lambda shape: float(jobs.speed[row, shape])), now)
                starts[row] = now
                break
            if not ends:
                now = math.inf
                break
            now, group, used = heapq.heappop(ends)
            free[group] += used
    return starts


class RoundOutlooks:
    """Outlooks of the waiting jobs of one round, computed on request."""

    def __init__(self, view: RoundView, allocation: Allocation, plan: RoundPlan, now: float) -> None:
        self._view, self._allocation, self._plan, self._now = view, allocation, plan, now
        self._in_use: dict[tuple[bool, tuple[str, ...]], str] = {}

    def rows(self) -> list[int]:
        """Rows of waiting jobs, in the order of the policy; jobs that the order does not name come last."""
        order, plan = self._allocation.order.tolist(), self._plan
        named = set(order)
        rows = (*order, *(row for row in range(len(self._view.rows)) if row not in named))
        return [
            row
            for row in rows
            if self._view.rows[row].record.state is JobState.WAITING
            and row not in plan.starts
            and row not in plan.refused
        ]

    def outlook(self, row: int) -> Outlook:
        """Why a job waits, and when it is expected to start."""
        why, start = self._why(row), self._starts.get(row)
        if start is None or not math.isfinite(start.value):
            return Outlook(why)
        high = self._now + start.high if math.isfinite(start.high) else None
        return Outlook(why, self._now + start.value, self._now + start.low, high)

    @cached_property
    def _starts(self) -> dict[int, ExpectedStart]:
        return forecast(self._view.jobs, self._view.cluster, self._allocation)

    @cached_property
    def _waiting_before(self) -> dict[int, int]:
        """The number of waiting jobs before each in the order."""
        order = self._allocation.order
        waits = self._allocation.shape[order] == WAITING
        return dict(zip(order.tolist(), (np.cumsum(waits) - waits).tolist(), strict=True))

    def _why(self, row: int) -> str:
        """The policy's reason, the resources that the job needs and those in use, and its last stop."""
        view, allocation, plan = self._view, self._allocation, self._plan
        job = view.rows[row].job
        never = impossible(job, view.cluster.groups)
        if never is not None:
            return f"it cannot run on these nodes: {never}"
        if allocation.shape[row] != WAITING:
            names = ", ".join(view.rows[stopped].record.name for stopped in list(plan.stops)[:MOST_NAMED])
            event = f"for {names} to stop" if plan.stops else "until enough nodes are free together"
            why = f"it is its turn, and it waits {event}"
        elif row in allocation.why:
            why = allocation.why[row]
        else:
            count = self._waiting_before.get(row, 0)
            why = f"{count} waiting jobs come before it" if count else "it is the next in line"
        run = view.rows[row].record.run
        before = f"; restarts so far: {run.restarts}, the last because: {run.reason}" if run.restarts else ""
        return f"{why}; {self._needs(job)}{before}"

    def _needs(self, job: Job) -> str:
        """The accelerators or CPUs that a job needs, and how many of the ones it accepts are in use."""
        unit = " or ".join(job.worker.accelerators) or "accelerators" if job.worker.gpus else "CPUs"
        needed = job.least * (job.worker.gpus or job.worker.cpus)
        key = (job.worker.gpus > 0, job.worker.accelerators)
        if key not in self._in_use:
            self._in_use[key] = self._in_use_for(job)
        return f"it needs {needed:g} {unit}; {self._in_use[key]}"

    def _in_use_for(self, job: Job) -> str:
        view, allocation = self._view, self._allocation
        given = np.flatnonzero(allocation.shape != WAITING)
        shapes = allocation.shape[given]
        amounts = view.jobs.gpus[given] if job.worker.gpus else view.jobs.cpus[given]
        used = np.zeros(len(view.cluster.groups))
        np.add.at(used, view.cluster.shape_group[shapes], view.cluster.shape_workers[shapes] * amounts)
        column = 0 if job.worker.gpus else 1
        return ", ".join(
            f"{count:g} of {view.cluster.capacity[number, column]:g} {group.accelerator or 'CPUs'} are in use"
            for number, (group, count) in enumerate(zip(view.cluster.groups, used.tolist(), strict=True))
            if accepts(job.worker, group)
        )


class OutlookWriter:
    """Writes the outlooks that have changed: of the head of the queue in each round, of the rest in turn."""

    def __init__(self, active: ActiveJobs) -> None:
        self._active = active
        self._round: RoundOutlooks | None = None
        self._head: deque[int] = deque()
        self._rest: deque[int] = deque()
        self._ids: tuple[str, ...] = ()
        self._last = ""

    @property
    def pending(self) -> bool:
        """Whether there are outlooks of the last round left to examine."""
        return bool(self._head or self._rest)

    def begin(self, outlooks: RoundOutlooks, ids: tuple[str, ...]) -> None:
        """Go on with a new round's outlooks: its head, then the jobs after the last one that was examined."""
        rows = outlooks.rows()
        head, rest = rows[:_MOST_FORECAST], rows[_MOST_FORECAST:]
        at = next((place + 1 for place, row in enumerate(rest) if ids[row] == self._last), 0)
        self._round, self._ids = outlooks, ids
        self._head, self._rest = deque(head), deque((*rest[at:], *rest[:at]))

    def write_some(self) -> None:
        """Write the next few outlooks that differ from the record."""
        changed: dict[str, Outlook] = {}
        for _ in range(_EXAMINED_AT_ONCE):
            if self._round is None or not self.pending or len(changed) == _WRITTEN_AT_ONCE:
                break
            if self._head:
                row = self._head.popleft()
            else:
                row = self._rest.popleft()
                self._last = self._ids[row]
            record = self._active.waiting(self._ids[row])
            if record is not None:
                outlook = self._round.outlook(row)
                if not _same(outlook, record.outlook):
                    changed[record.id] = outlook
        if changed:
            self._active.note({}, changed)


def _same(one: Outlook, other: Outlook) -> bool:
    """Whether two outlooks have the same reason, and starts within five seconds."""
    return one.why == other.why and all(
        a is b is None or (a is not None and b is not None and abs(a - b) < 5.0)
        for a, b in ((one.start, other.start), (one.low, other.low), (one.high, other.high))
    )
