"""First come, first served, with EASY backfilling: jobs that do not delay the first in line fill gaps."""

from dataclasses import dataclass, field

import numpy as np

from trimtab.core import Clock, format_duration
from trimtab.schedule.allocation import WAITING, Allocation, JobColumns
from trimtab.schedule.cluster import Cluster, Floats, Ints
from trimtab.schedule.policies.filling import Filling, WaitingReasons


@dataclass(frozen=True, slots=True)
class FifoSettings:
    """Whether and how far others may pass the first in line."""

    backfill: bool = True  # whether jobs behind the first that waits may start in the gaps
    depth: int = 1000  # how many jobs behind the first that waits are looked at


@dataclass(frozen=True, slots=True)
class _Reservation:
    """Groups reserved for the first in line, seconds until it starts, and what will be free besides it then.

    `spare` is negative where its start is unknown.
    """

    groups: frozenset[int]
    start: float
    spare: list[float]


@dataclass(slots=True)
class Fifo:
    """Jobs start in order of arrival and run to their end."""

    settings: FifoSettings = field(default_factory=FifoSettings)

    def allocate(self, jobs: JobColumns, cluster: Cluster, previous: Allocation, clock: Clock) -> Allocation:
        filling = Filling(jobs, cluster, previous)
        running = np.flatnonzero(filling.running)
        filling.fill(running)
        queue = np.flatnonzero((filling.shape == WAITING) & filling.possible)
        started = next((i for i, row in enumerate(queue.tolist()) if not filling.start(row)), len(queue))
        why = {}
        if started < len(queue):
            head, behind = int(queue[started]), queue[started + 1 :][: self.settings.depth]
            reservation = _reserve(filling, head)
            groups = " or ".join(cluster.groups[group].name for group in sorted(reservation.groups))
            why[head] = f"first in line for {groups}; " + (
                "the end of the running jobs is not known"
                if reservation.spare[0] < 0
                else f"room is expected in {format_duration(reservation.start)}"
            )
            if self.settings.backfill:
                _backfill(filling, behind, reservation)
        order = np.concatenate((running, np.flatnonzero(~filling.running)))
        reasons = WaitingReasons(filling.shape, order, filling.possible, "arrival", why)
        return Allocation(filling.shape, order, reasons)


def _seconds(jobs: JobColumns, row: int, shape: int) -> float:
    """Seconds from a job's start in a shape to its end; infinite where unknown."""
    speed, work = float(jobs.speed[row, shape]), float(jobs.remaining[row])
    return float(jobs.restart_seconds[row]) + work / speed if speed > 0 and work >= 0 else np.inf


def _reserve(filling: Filling, row: int) -> _Reservation:
    """The group in which this job would end first, once running jobs have ended."""
    cluster = filling.cluster
    shapes = np.flatnonzero(filling.usable_by(row))
    unknown = _Reservation(frozenset(cluster.shape_group[shapes].tolist()), 0.0, [-1.0, -1.0, -1.0])
    best, end = unknown, (np.inf, np.inf)
    for group in sorted(unknown.groups):
        ends, free = _releases(filling, group)
        for shape in shapes[cluster.shape_group[shapes] == group].tolist():
            need = filling.need(row, shape)
            enough = (free >= need).all(axis=1)
            if not enough.any():
                continue
            start = float(ends[enough.argmax()])
            candidate = (start + _seconds(filling.jobs, row, shape), start)
            if candidate < end or best is unknown:
                then = free[np.searchsorted(ends, start, side="right") - 1]
                best, end = _Reservation(frozenset([group]), start, (then - need).tolist()), candidate
    return best


def _releases(filling: Filling, group: int) -> tuple[Floats, Floats]:
    """Seconds until jobs of a group end, where known, and what is free there from then on."""
    jobs, cluster = filling.jobs, filling.cluster
    placed = np.flatnonzero(filling.shape != WAITING)
    here = placed[cluster.shape_group[filling.shape[placed]] == group]
    shape = filling.shape[here]
    seconds = jobs.remaining[here] / jobs.speed[here, shape]
    order = np.argsort(seconds, kind="stable")
    order = order[np.isfinite(seconds[order])]
    returned = cluster.shape_workers[shape[order], None] * filling.demand[here[order]]
    free = filling.free[group] + np.cumsum(np.vstack((np.zeros(3), returned)), axis=0)
    return np.concatenate(([0.0], seconds[order])), free


def _backfill(filling: Filling, rows: Ints, reservation: _Reservation) -> None:
    """Start jobs that fit now and leave the reservation as it is."""
    jobs, group = filling.jobs, filling.cluster.shape_group
    smallest = jobs.least[rows] * jobs.gpus[rows]
    for row in rows[smallest <= max(free[0] for free in filling.free)].tolist():
        for shape in filling.fitting(row):
            need = filling.need(row, shape)
            if group[shape] not in reservation.groups or _seconds(jobs, row, shape) <= reservation.start:
                filling.give(row, shape)
                break
            if all(amount <= spare for amount, spare in zip(need, reservation.spare, strict=True)):
                reservation.spare[:] = [s - amount for s, amount in zip(reservation.spare, need, strict=True)]
                filling.give(row, shape)
                break
