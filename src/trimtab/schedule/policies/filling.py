"""Greedy filling: jobs in an order, each with the fastest shape that fits into the free part of its group."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from trimtab.core import format_duration
from trimtab.schedule.allocation import WAITING, Allocation, Bools, JobColumns
from trimtab.schedule.cluster import Cluster, Floats, Ints

NO_GROUP_HOLDS_IT = "no group of nodes can hold it, even when empty"


def deadline_missed(needed: float, due: float, note: str = "") -> str:
    """The reason of a refusal: seconds that the job needs, and seconds until its hard deadline."""
    when = f"is in {format_duration(due)}" if due > 0 else f"was {format_duration(-due)} ago"
    needs = f"it needs about {format_duration(needed)}{note}"
    return f"its hard deadline cannot be met: {needs}, the deadline {when}"


class WaitingReasons(Mapping[int, str]):
    """Reasons of waiting jobs: the one in `given`, or the number of running jobs before it in the order."""

    def __init__(
        self, shape: Ints, order: Ints, possible: Bools, rule: str, given: Mapping[int, str] | None = None
    ) -> None:
        self._shape, self._order, self._possible, self._rule = shape, order, possible, rule
        self._given = dict(given or {})

    @cached_property
    def _ahead(self) -> dict[int, int]:
        """The number of running jobs before each waiting one."""
        runs = self._shape[self._order] != WAITING
        return dict(zip(self._order[~runs].tolist(), np.cumsum(runs)[~runs].tolist(), strict=True))

    def __getitem__(self, row: int) -> str:
        if row in self._given:
            return self._given[row]
        ahead = self._ahead[row]
        if not self._possible[row]:
            return NO_GROUP_HOLDS_IT
        if not ahead:
            return "the free nodes do not hold it"
        return f"{ahead} running job{'s come' if ahead > 1 else ' comes'} before it by {self._rule}"

    def __iter__(self) -> Iterator[int]:
        return iter({**self._ahead, **self._given})

    def __len__(self) -> int:
        return len({**self._ahead, **self._given})


class JobMemory:
    """Numbers that a policy stores per job, in columns; a new job starts with zeros."""

    def __init__(self, columns: int) -> None:
        self._ids: tuple[str, ...] = ()
        self._values = np.zeros((0, columns))

    def follow(self, ids: tuple[str, ...]) -> tuple[Floats, Bools]:
        """The rows of these jobs, to be changed in place, and which of them are new."""
        new = np.zeros(len(ids), dtype=bool)
        if ids != self._ids:
            index = {job: row for row, job in enumerate(self._ids)}
            before = np.fromiter((index.get(job, -1) for job in ids), dtype=np.int64, count=len(ids))
            new = before < 0
            values = np.zeros((len(ids), self._values.shape[1]))
            values[~new] = self._values[before[~new]]
            self._ids, self._values = ids, values
        return self._values, new


SLACK = 1e-9
"""The part of a capacity by which a sum of shares may exceed it: such sums are not exact."""

_FASTER = 1.5  # how much faster a free shape must be for a running job to move there
_THRIFT = 0.5  # of a worker's speed in the smallest gang of a group, below which more workers are wasted


def workers_of(cluster: Cluster, shape: Ints) -> Ints:
    """The workers of each of these shapes; none of WAITING."""
    workers = np.zeros(len(shape), dtype=np.int64)
    workers[shape != WAITING] = cluster.shape_workers[shape[shape != WAITING]]
    return workers


def groups_of(cluster: Cluster, shape: Ints) -> Ints:
    """The group of each of these shapes; WAITING stays so."""
    groups = np.full(len(shape), WAITING, dtype=np.int64)
    groups[shape != WAITING] = cluster.shape_group[shape[shape != WAITING]]
    return groups


def most_workers(jobs: JobColumns, cluster: Cluster, rows: Ints) -> Floats:
    """Workers of each of these jobs that every group could hold if it were empty; (rows, groups)."""
    demand = jobs.demand[rows]
    most = np.full((len(rows), len(cluster.groups)), np.inf)
    for index, group in enumerate(cluster.groups):
        for column, room in enumerate((group.gpus, group.cpus, group.memory)):
            need = demand[:, column]
            if need.any():
                per_node = np.divide(room, need, out=np.full(len(rows), np.inf), where=need > 0)
                np.minimum(most[:, index], np.floor(per_node + SLACK), out=most[:, index])
        most[:, index] = most[:, index] * group.nodes if group.nodes else 0.0
    shared = np.flatnonzero((demand[:, 0] > 0) & (demand[:, 0] < 1))
    if len(shared):
        total = np.array([group.nodes * group.gpus for group in cluster.groups])
        per_device = np.floor(1 / demand[shared, :1] + SLACK)
        most[shared] = np.minimum(most[shared], per_device * total)
    return most


def usable_shapes(jobs: JobColumns, cluster: Cluster, rows: Ints) -> Bools:
    """Shapes that each of these jobs may be given; (rows, shapes).

    The job can run in the shape, an empty group holds it, and an elastic job's workers are not mostly wasted.
    """
    most = np.minimum(jobs.most[rows, None], most_workers(jobs, cluster, rows))
    speed, least = jobs.speed[rows], jobs.least[rows]
    usable = speed != 0
    usable &= cluster.shape_workers >= least[:, None]
    usable &= cluster.shape_workers <= most[:, cluster.shape_group]
    elastic = np.flatnonzero(jobs.most[rows] > least)
    if len(elastic):
        usable[elastic] &= ~_wasteful(speed[elastic], usable[elastic], cluster)
    return np.asarray(usable)


def _wasteful(speed: Floats, usable: Bools, cluster: Cluster) -> Bools:
    """Shapes in which a worker does much less than in the smallest gang of the same group."""
    wasteful = np.zeros(usable.shape, dtype=bool)
    per_worker = speed / cluster.shape_workers
    for index in range(len(cluster.groups)):
        columns = np.flatnonzero(cluster.shape_group == index)
        if len(columns):
            size = np.where(usable[:, columns], cluster.shape_workers[columns], np.inf)
            smallest = np.take_along_axis(per_worker[:, columns], size.argmin(axis=1)[:, None], axis=1)
            wasteful[:, columns] = per_worker[:, columns] < _THRIFT * smallest
    return wasteful


@dataclass(slots=True, eq=False)
class Filling:
    """One round: the shapes given so far, and the free accelerators, CPUs and bytes of each group."""

    jobs: JobColumns
    cluster: Cluster
    previous: Allocation
    own: Ints = field(init=False)
    """The shape in which each job runs; WAITING if it does not run, or cannot stay in its shape."""
    shape: Ints = field(init=False)
    """The shape each job is given in this round."""
    free: list[list[float]] = field(init=False)
    """Free accelerators, CPUs and bytes of each group."""
    demand: Floats = field(init=False)
    """Accelerators, CPUs and bytes of a worker of each job."""
    _workers: list[int] = field(init=False)
    _group: list[int] = field(init=False)
    _usable: Bools = field(init=False)
    _computed: Bools = field(init=False)  # rows of `_usable` that are filled in

    def __post_init__(self) -> None:
        jobs, cluster = self.jobs, self.cluster
        self.demand = jobs.demand
        self.shape = np.full(len(jobs), WAITING, dtype=np.int64)
        self.free = (cluster.capacity * (1 + SLACK)).tolist()
        self._workers, self._group = cluster.shape_workers.tolist(), cluster.shape_group.tolist()
        self._usable = np.zeros(jobs.speed.shape, dtype=bool)
        self._computed = np.zeros(len(jobs), dtype=bool)
        self.own = self._keepable()
        self._compute_usable(np.flatnonzero(self.own == WAITING))
        for row in np.flatnonzero(self.running & ~jobs.preemptible).tolist():
            self.give(row, int(self.own[row]))

    def _keepable(self) -> Ints:
        """The previous shape of each job that it may keep: it can run so, and the group is large enough."""
        own = np.array(self.previous.shape, dtype=np.int64)
        rows = np.flatnonzero(own != WAITING)
        shape = own[rows]
        workers, group = self.cluster.shape_workers[shape], self.cluster.shape_group[shape]
        held = most_workers(self.jobs, self.cluster, rows)[np.arange(len(rows)), group]
        allowed = (workers >= self.jobs.least[rows]) & (workers <= np.minimum(self.jobs.most[rows], held))
        own[rows[~(allowed & (self.jobs.speed[rows, shape] != 0))]] = WAITING
        return own

    def _compute_usable(self, rows: Ints) -> None:
        self._usable[rows] = usable_shapes(self.jobs, self.cluster, rows)
        self._computed[rows] = True

    @property
    def running(self) -> Bools:
        """Jobs that run in a shape they may keep."""
        return np.asarray(self.own != WAITING)

    @property
    def usable(self) -> Bools:
        """Shapes that each job may be given; (jobs, shapes)."""
        if not self._computed.all():
            self._compute_usable(np.flatnonzero(~self._computed))
        return self._usable

    def usable_by(self, row: int) -> Bools:
        """Shapes that one job may be given."""
        if not self._computed[row]:
            self._compute_usable(np.flatnonzero(~self._computed))
        return np.asarray(self._usable[row])

    @property
    def possible(self) -> Bools:
        """Jobs that some group could hold if it were empty."""
        return np.asarray(self.running | self._usable.any(axis=1))

    def best_speed(self) -> Floats:
        """Units per second of each job in its fastest shape; NaN where none is known."""
        measured = self.usable & (self.jobs.speed > 0)
        best = np.where(measured, self.jobs.speed, 0.0).max(axis=1, initial=0.0)
        return np.where(best > 0, best, np.nan)

    def refuse(self, row: int) -> None:
        """Give a job nothing."""
        self._usable[row], self._computed[row], self.own[row] = False, True, WAITING

    def need(self, row: int, shape: int) -> list[float]:
        """Accelerators, CPUs and bytes that a job takes in a shape."""
        workers = self._workers[shape]
        return [workers * amount for amount in self.demand[row].tolist()]

    def fitting(self, row: int) -> list[int]:
        """The usable shapes that fit into the free capacity, the fastest first."""
        usable = self.usable_by(row)
        gpus, cpus, memory = self.demand[row].tolist()
        speed = self.jobs.speed[row].tolist()
        shapes = []
        for shape in usable.nonzero()[0].tolist():
            workers, free = self._workers[shape], self.free[self._group[shape]]
            if workers * gpus <= free[0] and workers * cpus <= free[1] and workers * memory <= free[2]:
                shapes.append((-speed[shape] if speed[shape] == speed[shape] else 0.0, shape))
        return [shape for _, shape in sorted(shapes)]

    def give(self, row: int, shape: int) -> None:
        """Give a job a shape, which must fit."""
        self.shape[row] = shape
        free = self.free[self._group[shape]]
        for resource, amount in enumerate(self.need(row, shape)):
            free[resource] -= amount

    def take(self, row: int) -> None:
        """Take back the shape that a job was given."""
        self._return(row, int(self.shape[row]))
        self.shape[row] = WAITING

    def _return(self, row: int, shape: int) -> None:
        free = self.free[self._group[shape]]
        for resource, amount in enumerate(self.need(row, shape)):
            free[resource] += amount

    def start(self, row: int) -> bool:
        """Give a job the fastest shape that fits; False where none does."""
        shapes = self.fitting(row)
        if shapes:
            self.give(row, shapes[0])
        return bool(shapes)

    def fill(self, order: Ints) -> None:
        """Give shapes in this order. Running jobs keep theirs where it still fits, or get another."""
        order = order[self.shape[order] == WAITING]
        need = workers_of(self.cluster, self.own)[:, None] * self.demand
        least = self._least(order)
        settled = self._settled(order, need, least)
        keeping = order[:settled][self.running[order[:settled]]]
        self.shape[keeping] = self.own[keeping]
        group = self.cluster.shape_group[self.own[keeping]]
        for index, free in enumerate(self.free):
            used = need[keeping[group == index]].sum(axis=0)
            free[:] = (np.array(free) - used).tolist()
        self._one_by_one(order[settled:], need, least[settled:])

    def allocation(self, order: Ints, rule: str, given: Mapping[int, str] | None = None) -> Allocation:
        """Fill and improve in this order.

        `rule` names the order in the reasons of waiting jobs; `given` are reasons of jobs that are refused.
        """
        self.fill(order)
        self.improve(order)
        why = WaitingReasons(self.shape, order, self.possible, rule, given)
        return Allocation(self.shape, order, why, tuple(given or ()))

    def improve(self, order: Ints) -> None:
        """In this order, let jobs that kept their shape move to a much faster one that is free."""
        same = (self.shape[order] != WAITING) & (self.shape[order] == self.own[order])
        keeping = order[same & self.jobs.preemptible[order]]
        if not len(keeping):
            return
        room = np.array([free[0] for free in self.free])[self.cluster.shape_group]
        shapes = np.flatnonzero(self.cluster.shape_workers * self.jobs.gpus[keeping].min() <= room)
        if not len(shapes):
            return
        size = self.cluster.shape_workers[shapes] * self.jobs.gpus[keeping, None]
        least = _FASTER * self.jobs.speed[keeping, self.own[keeping]]
        better = (self.jobs.speed[np.ix_(keeping, shapes)] >= least[:, None]) & (size <= room[shapes])
        for index in np.flatnonzero(better.any(axis=1)).tolist():
            row = int(keeping[index])
            fitting = [shape for shape in shapes[better[index]].tolist() if self._fits(row, shape)]
            if fitting:
                self.give(row, max(fitting, key=self.jobs.speed[row].tolist().__getitem__))
                self._return(row, int(self.own[row]))

    def _fits(self, row: int, shape: int) -> bool:
        """Whether a job may be given this shape, and the free part of the group holds it."""
        pairs = zip(self.need(row, shape), self.free[self._group[shape]], strict=True)
        return all(need <= free for need, free in pairs) and bool(self.usable_by(row)[shape])

    def _least(self, rows: Ints) -> Floats:
        """The fewest workers each job could have in each group, infinite where it cannot run.

        For running jobs, which hardly ever need another shape, it is the fewest that they requested.
        """
        least = np.repeat(self.jobs.least[rows, None].astype(float), len(self.cluster.groups), axis=1)
        waiting = np.flatnonzero(self.own[rows] == WAITING)
        usable = self._usable[rows[waiting]]
        for index in range(len(self.cluster.groups)):
            columns = np.flatnonzero(self.cluster.shape_group == index)
            if len(columns):
                sizes = np.where(usable[:, columns], self.cluster.shape_workers[columns], np.inf)
                least[waiting, index] = sizes.min(axis=1)
            else:
                least[waiting, index] = np.inf
        return least

    def _settled(self, order: Ints, need: Floats, least: Floats) -> int:
        """The number of leading jobs that do not change: running ones still fit, waiting ones do not."""
        own = self.own[order]
        group = groups_of(self.cluster, own)
        changes = np.zeros(len(order), dtype=bool)
        waiting = np.flatnonzero(own == WAITING)
        room = np.zeros(len(waiting), dtype=bool)
        for index, free in enumerate(self.free):
            here = group == index
            remaining = free - np.cumsum(np.where(here[:, None], need[order], 0.0), axis=0)
            changes |= here & (remaining < 0).any(axis=1)
            fewest = least[waiting, index]
            able = np.flatnonzero(np.isfinite(fewest))
            smallest = fewest[able, None] * self.demand[order[waiting[able]]]
            room[able] |= (smallest <= remaining[waiting[able]]).all(axis=1)
        changes[waiting] = room
        return int(changes.argmax()) if changes.any() else len(order)

    def _one_by_one(self, rows: Ints, need: Floats, least: Floats) -> None:
        """Give shapes one by one to jobs whose shape depends on the jobs before them."""
        own = self.own[rows].tolist()
        needs = need[rows].tolist()
        fewest = (np.where(np.isfinite(least), self.demand[rows, :1], 1.0) * least).tolist()
        for index, row in enumerate(rows.tolist()):
            if own[index] != WAITING:
                room, (gpus, cpus, memory) = self.free[self._group[own[index]]], needs[index]
                if gpus <= room[0] and cpus <= room[1] and memory <= room[2]:
                    self.shape[row] = own[index]
                    room[0], room[1], room[2] = room[0] - gpus, room[1] - cpus, room[2] - memory
                    continue
            for gpus, room in zip(fewest[index], self.free, strict=True):
                if gpus <= room[0]:
                    self.start(row)
                    break
