"""Greedy filling: jobs in an order, each with the fastest shape that fits into what is left of its group."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from trimtab.schedule.allocation import WAITING, Allocation, Bools, Jobs
from trimtab.schedule.cluster import Cluster, Floats, Ints


class WaitingReasons(Mapping[int, str]):
    """For each waiting job how many running ones came before it, by which rule; `known` goes first."""

    def __init__(
        self, shape: Ints, order: Ints, possible: Bools, rule: str, known: Mapping[int, str] | None = None
    ) -> None:
        self._shape, self._order, self._possible, self._rule = shape, order, possible, rule
        self._known = dict(known or {})

    @cached_property
    def _ahead(self) -> dict[int, int]:
        """Waiting jobs, with the running ones before each."""
        runs = self._shape[self._order] != WAITING
        return dict(zip(self._order[~runs].tolist(), np.cumsum(runs)[~runs].tolist(), strict=True))

    def __getitem__(self, row: int) -> str:
        if row in self._known:
            return self._known[row]
        ahead = self._ahead[row]
        if not self._possible[row]:
            return "nothing in this cluster can hold it, even if it were empty"
        return f"running jobs that come before it by {self._rule}: {ahead}; what is left does not hold it"

    def __iter__(self) -> Iterator[int]:
        return iter({**self._ahead, **self._known})

    def __len__(self) -> int:
        return len({**self._ahead, **self._known})


class JobMemory:
    """Columns of numbers whose rows follow the jobs of each round; those of a new job start at zero."""

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


def most_workers(jobs: Jobs, cluster: Cluster, rows: Ints) -> Floats:
    """How many workers of each of these jobs every group could hold if it were empty; (rows, groups)."""
    demand = jobs.demand[rows]
    most = np.full((len(rows), len(cluster.groups)), np.inf)
    for index, group in enumerate(cluster.groups):
        for column, room in enumerate((group.gpus, group.cpus, group.memory)):
            need = demand[:, column]
            if need.any():
                each = np.divide(room, need, out=np.full(len(rows), np.inf), where=need > 0)
                np.minimum(most[:, index], np.floor(each + SLACK), out=most[:, index])
        most[:, index] = most[:, index] * group.nodes if group.nodes else 0.0
    shared = np.flatnonzero((demand[:, 0] > 0) & (demand[:, 0] < 1))
    if len(shared):
        whole = np.array([group.nodes * group.gpus for group in cluster.groups])
        each = np.floor(1 / demand[shared, :1] + SLACK)
        most[shared] = np.minimum(most[shared], each * whole)
    return most


def usable_shapes(jobs: Jobs, cluster: Cluster, rows: Ints) -> Bools:
    """The shapes each of these jobs may be given; (rows, shapes).

    It can run so, an empty group holds it, and none of an elastic job's workers is mostly wasted.
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
    each = speed / cluster.shape_workers
    for index in range(len(cluster.groups)):
        columns = np.flatnonzero(cluster.shape_group == index)
        if len(columns):
            size = np.where(usable[:, columns], cluster.shape_workers[columns], np.inf)
            smallest = np.take_along_axis(each[:, columns], size.argmin(axis=1)[:, None], axis=1)
            wasteful[:, columns] = each[:, columns] < _THRIFT * smallest
    return wasteful


@dataclass(slots=True, eq=False)
class Filling:
    """One round: the shapes given so far, and what is left of each group (accelerators, CPUs, bytes)."""

    jobs: Jobs
    cluster: Cluster
    previous: Allocation
    own: Ints = field(init=False)
    """The shape in which each job runs, WAITING where it does not run or cannot go on so."""
    shape: Ints = field(init=False)
    """The shape each job is given in this round."""
    free: list[list[float]] = field(init=False)
    """What is left of each group."""
    demand: Floats = field(init=False)
    """Accelerators, CPUs and bytes of a worker of each job."""
    _workers: list[int] = field(init=False)
    _group: list[int] = field(init=False)
    _usable: Bools = field(init=False)
    _known: Bools = field(init=False)

    def __post_init__(self) -> None:
        jobs, cluster = self.jobs, self.cluster
        self.demand = jobs.demand
        self.shape = np.full(len(jobs), WAITING, dtype=np.int64)
        self.free = (cluster.capacity * (1 + SLACK)).tolist()
        self._workers, self._group = cluster.shape_workers.tolist(), cluster.shape_group.tolist()
        self._usable = np.zeros(jobs.speed.shape, dtype=bool)
        self._known = np.zeros(len(jobs), dtype=bool)
        self.own = self._kept()
        self._learn(np.flatnonzero(self.own == WAITING))

    def _kept(self) -> Ints:
        """Shapes that may be kept: the job still can run so, and the group is still large enough."""
        own = np.array(self.previous.shape, dtype=np.int64)
        rows = np.flatnonzero(own != WAITING)
        shape = own[rows]
        workers, group = self.cluster.shape_workers[shape], self.cluster.shape_group[shape]
        held = most_workers(self.jobs, self.cluster, rows)[np.arange(len(rows)), group]
        well = (workers >= self.jobs.least[rows]) & (workers <= np.minimum(self.jobs.most[rows], held))
        own[rows[~(well & (self.jobs.speed[rows, shape] != 0))]] = WAITING
        return own

    def _learn(self, rows: Ints) -> None:
        self._usable[rows] = usable_shapes(self.jobs, self.cluster, rows)
        self._known[rows] = True

    @property
    def running(self) -> Bools:
        """Jobs that run in a shape they may keep."""
        return np.asarray(self.own != WAITING)

    @property
    def usable(self) -> Bools:
        """The shapes each job may be given; (jobs, shapes)."""
        if not self._known.all():
            self._learn(np.flatnonzero(~self._known))
        return self._usable

    def usable_by(self, row: int) -> Bools:
        """The shapes one job may be given."""
        if not self._known[row]:
            self._learn(np.flatnonzero(~self._known))
        return np.asarray(self._usable[row])

    @property
    def possible(self) -> Bools:
        """Jobs that some group could hold if it were empty."""
        return np.asarray(self.running | self._usable.any(axis=1))

    def best_speed(self) -> Floats:
        """Units per second of each job in its fastest shape; NaN where none is known."""
        known = self.usable & (self.jobs.speed > 0)
        best = np.where(known, self.jobs.speed, 0.0).max(axis=1, initial=0.0)
        return np.where(best > 0, best, np.nan)

    def refuse(self, row: int) -> None:
        """This job gets nothing."""
        self._usable[row], self._known[row], self.own[row] = False, True, WAITING

    def need(self, row: int, shape: int) -> list[float]:
        """Accelerators, CPUs and bytes that a job takes in a shape."""
        workers = self._workers[shape]
        return [workers * each for each in self.demand[row].tolist()]

    def fitting(self, row: int) -> list[int]:
        """The usable shapes that what is left would hold, the fastest first."""
        usable = self.usable_by(row)
        gpus, cpus, memory = self.demand[row].tolist()
        speed = self.jobs.speed[row].tolist()
        found = []
        for shape in usable.nonzero()[0].tolist():
            workers, left = self._workers[shape], self.free[self._group[shape]]
            if workers * gpus <= left[0] and workers * cpus <= left[1] and workers * memory <= left[2]:
                found.append((-speed[shape] if speed[shape] == speed[shape] else 0.0, shape))
        return [shape for _, shape in sorted(found)]

    def give(self, row: int, shape: int) -> None:
        """This job gets this shape, which must fit."""
        self.shape[row] = shape
        left = self.free[self._group[shape]]
        for resource, taken in enumerate(self.need(row, shape)):
            left[resource] -= taken

    def take(self, row: int) -> None:
        """Take back the shape that a job was given."""
        self._return(row, int(self.shape[row]))
        self.shape[row] = WAITING

    def _return(self, row: int, shape: int) -> None:
        left = self.free[self._group[shape]]
        for resource, back in enumerate(self.need(row, shape)):
            left[resource] += back

    def start(self, row: int) -> bool:
        """Give a job the fastest shape that fits; False where none does."""
        shapes = self.fitting(row)
        if shapes:
            self.give(row, shapes[0])
        return bool(shapes)

    def fill(self, order: Ints) -> None:
        """Give shapes in this order. Who runs keeps its shape where that still fits, or takes another."""
        need = workers_of(self.cluster, self.own)[:, None] * self.demand
        least = self._least(order)
        settled = self._settled(order, need, least)
        keeping = order[:settled][self.running[order[:settled]]]
        self.shape[keeping] = self.own[keeping]
        group = self.cluster.shape_group[self.own[keeping]]
        for index, left in enumerate(self.free):
            taken = need[keeping[group == index]].sum(axis=0)
            left[:] = [each - gone for each, gone in zip(left, taken.tolist(), strict=True)]
        self._one_by_one(order[settled:], need, least[settled:])

    def improve(self, order: Ints) -> None:
        """In this order, let jobs that kept their shape move to a much faster one that nobody took."""
        kept = order[(self.shape[order] != WAITING) & (self.shape[order] == self.own[order])]
        if not len(kept):
            return
        room = np.array([left[0] for left in self.free])[self.cluster.shape_group]
        shapes = np.flatnonzero(self.cluster.shape_workers * self.jobs.gpus[kept].min() <= room)
        if not len(shapes):
            return
        size = self.cluster.shape_workers[shapes] * self.jobs.gpus[kept, None]
        least = _FASTER * self.jobs.speed[kept, self.own[kept]]
        better = (self.jobs.speed[np.ix_(kept, shapes)] >= least[:, None]) & (size <= room[shapes])
        for index in np.flatnonzero(better.any(axis=1)).tolist():
            row = int(kept[index])
            fitting = [shape for shape in shapes[better[index]].tolist() if self._fits(row, shape)]
            if fitting:
                self.give(row, max(fitting, key=self.jobs.speed[row].tolist().__getitem__))
                self._return(row, int(self.own[row]))

    def _fits(self, row: int, shape: int) -> bool:
        """Whether a job may be given this shape, and what is left would hold it."""
        pairs = zip(self.need(row, shape), self.free[self._group[shape]], strict=True)
        return all(need <= left for need, left in pairs) and bool(self.usable_by(row)[shape])

    def _least(self, rows: Ints) -> Floats:
        """The fewest workers each job could have in each group, infinite where it cannot be there.

        Of running jobs, which hardly ever need another shape, no more than what they asked for is known.
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
        """How many of the first stay as they are: who runs still fits, and who waits does not."""
        own = self.own[order]
        group = groups_of(self.cluster, own)
        changes = np.zeros(len(order), dtype=bool)
        waiting = np.flatnonzero(own == WAITING)
        room = np.zeros(len(waiting), dtype=bool)
        for index, free in enumerate(self.free):
            here = group == index
            left = free - np.cumsum(np.where(here[:, None], need[order], 0.0), axis=0)
            changes |= here & (left < 0).any(axis=1)
            fewest = least[waiting, index]
            able = np.flatnonzero(np.isfinite(fewest))
            smallest = fewest[able, None] * self.demand[order[waiting[able]]]
            room[able] |= (smallest <= left[waiting[able]]).all(axis=1)
        changes[waiting] = room
        return int(changes.argmax()) if changes.any() else len(order)

    def _one_by_one(self, rows: Ints, need: Floats, least: Floats) -> None:
        """Fill one by one the jobs whose turn depends on what jobs before them get."""
        own = self.own[rows].tolist()
        taken = need[rows].tolist()
        fewest = (np.where(np.isfinite(least), self.demand[rows, :1], 1.0) * least).tolist()
        for index, row in enumerate(rows.tolist()):
            if own[index] != WAITING:
                left, (gpus, cpus, memory) = self.free[self._group[own[index]]], taken[index]
                if gpus <= left[0] and cpus <= left[1] and memory <= left[2]:
                    self.shape[row] = own[index]
                    left[0], left[1], left[2] = left[0] - gpus, left[1] - cpus, left[2] - memory
                    continue
            for gpus, left in zip(fewest[index], self.free, strict=True):
                if gpus <= left[0]:
                    self.start(row)
                    break
