"""First come, first served, with EASY backfilling: gaps go to those who do not delay the first in line."""

from dataclasses import dataclass, field

import numpy as np

from trimtab.core import Clock
from trimtab.schedule.allocation import WAITING, Allocation, Jobs
from trimtab.schedule.cluster import Cluster, Floats, Ints
from trimtab.schedule.policies.filling import Filling, WaitingReasons


@dataclass(frozen=True, slots=True)
class FifoSettings:
    """Whether and how far others may pass the first in line."""

    backfill: bool = True  # whether jobs behind the first that waits may start in the gaps
    depth: int = 1000  # how many jobs behind the first that waits are looked at


@dataclass(frozen=True, slots=True)
class _Reservation:
    """The groups kept for the first in line, in how many seconds it starts, what will be left there then.

    Nothing ends in time and nothing is left where nobody knows when it will start.
    """

    groups: frozenset[int]
    start: float
    spare: list[float]


@dataclass(slots=True)
class Fifo:
    """Jobs start in order of arrival and run to their end."""

    settings: FifoSettings = field(default_factory=FifoSettings)

    def allocate(self, jobs: Jobs, cluster: Cluster, previous: Allocation, clock: Clock) -> Allocation:
        filling = Filling(jobs, cluster, previous)
        running = np.flatnonzero(filling.running)
        filling.fill(running)
        queue = np.flatnonzero((filling.shape == WAITING) & filling.possible)
        started = _start_in_order(filling, queue)
        why = {}
        if started < len(queue):
            head, behind = int(queue[started]), queue[started + 1 :][: self.settings.depth]
            reservation = _reserve(filling, head)
            why[head] = _first_in_line(reservation, cluster)
            if self.settings.backfill:
                _backfill(filling, behind, reservation)
        rest = np.flatnonzero(~filling.running)
        order = np.concatenate((running, rest))
        return Allocation(
            filling.shape, order, WaitingReasons(filling.shape, order, filling.possible, "arrival", why)
        )


def _start_in_order(filling: Filling, queue: Ints) -> int:
    """Start jobs until one does not fit; how many started."""
    for count, row in enumerate(queue.tolist()):
        if not filling.start(row):
            return count
    return len(queue)


def _seconds(jobs: Jobs, row: int, shape: int) -> float:
    """How long a job takes in a shape from its start to its end; infinite where that is not known."""
    speed, left = float(jobs.speed[row, shape]), float(jobs.remaining[row])
    return float(jobs.restart_seconds[row]) + left / speed if speed > 0 and left >= 0 else np.inf


def _reserve(filling: Filling, row: int) -> _Reservation:
    """Where this job would end first once others have ended."""
    cluster = filling.cluster
    wanted = np.flatnonzero(filling.usable_by(row))
    unknown = _Reservation(frozenset(cluster.shape_group[wanted].tolist()), 0.0, [-1.0, -1.0, -1.0])
    best, end = unknown, (np.inf, np.inf)
    for group in sorted(unknown.groups):
        ends, free = _releases(filling, group)
        for shape in wanted[cluster.shape_group[wanted] == group].tolist():
            need = filling.need(row, shape)
            enough = (free >= need).all(axis=1)
            if not enough.any():
                continue
            start = float(ends[enough.argmax()])
            found = (start + _seconds(filling.jobs, row, shape), start)
            if found < end or best is unknown:
                then = free[np.searchsorted(ends, start, side="right") - 1]
                best, end = _Reservation(frozenset([group]), start, (then - need).tolist()), found
    return best


def _releases(filling: Filling, group: int) -> tuple[Floats, Floats]:
    """When jobs of a group end, as far as is known, in seconds from now, and what is free there from then."""
    jobs, cluster = filling.jobs, filling.cluster
    placed = np.flatnonzero(filling.shape != WAITING)
    here = placed[cluster.shape_group[filling.shape[placed]] == group]
    shape = filling.shape[here]
    left = jobs.remaining[here] / jobs.speed[here, shape]
    known = np.flatnonzero(np.isfinite(left))
    known = known[np.argsort(left[known], kind="stable")]
    returned = cluster.shape_workers[shape[known], None] * filling.demand[here[known]]
    free = filling.free[group] + np.cumsum(np.vstack((np.zeros(3), returned)), axis=0)
    return np.concatenate(([0.0], left[known])), free


def _backfill(filling: Filling, rows: Ints, reservation: _Reservation) -> None:
    """Start jobs that fit now and leave the reservation as it is."""
    jobs, group = filling.jobs, filling.cluster.shape_group
    smallest = jobs.least[rows] * jobs.gpus[rows]
    for row in rows[smallest <= max(left[0] for left in filling.free)].tolist():
        for shape in filling.fitting(row):
            need = filling.need(row, shape)
            if group[shape] not in reservation.groups or _seconds(jobs, row, shape) <= reservation.start:
                filling.give(row, shape)
                break
            if all(each <= spare for each, spare in zip(need, reservation.spare, strict=True)):
                reservation.spare[:] = [s - each for s, each in zip(reservation.spare, need, strict=True)]
                filling.give(row, shape)
                break


def _first_in_line(reservation: _Reservation, cluster: Cluster) -> str:
    groups = " or ".join(cluster.groups[group].name for group in sorted(reservation.groups))
    if reservation.spare[0] < 0:
        return f"first in line for {groups}; when those who run will end is not known"
    return f"first in line; {groups} is expected to hold it in {reservation.start:.0f} s"
