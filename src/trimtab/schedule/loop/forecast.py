"""When jobs that wait will start: those that run end as they are believed to, and the queue moves up."""

import heapq
import math
from dataclasses import dataclass

import numpy as np

from trimtab.schedule.allocation import WAITING, Allocation
from trimtab.schedule.cluster import Cluster, Floats
from trimtab.schedule.jobs import Jobs

_MOST = 500  # jobs at the head of the queue that are looked at
_SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds from now; infinite where something before it has no known end."""

    value: float
    low: float
    high: float


def forecast(jobs: Jobs, cluster: Cluster, allocation: Allocation) -> dict[int, Start]:
    """For the rows that wait: when each starts if nobody else comes and the queue keeps its order.

    The low and the high end come from replaying the queue with the low and the high of every job's remaining
    work. Policies may let a job overtake, so this is what to expect, not a promise.
    """
    likely, early, late = (
        _replay(jobs, cluster, allocation, left)
        for left in (jobs.remaining, jobs.remaining_low, jobs.remaining_high)
    )
    return {
        row: Start(value, min(value, early[row], late[row]), max(value, early[row], late[row]))
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
    for row in waiting[:_MOST]:
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
