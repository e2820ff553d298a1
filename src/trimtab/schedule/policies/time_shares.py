"""Rounds that realise shares of time: Gavel's mechanism (OSDI 2020, section 5).

X[j, g] is the part of the time job j shall spend on group g. In each round a job's priority on a group is X
over the part of that group's time it has received since X was computed; groups are filled by priority, and
what nobody is owed goes to whoever fits.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from trimtab.schedule.allocation import WAITING, Allocation, Bools, Jobs
from trimtab.schedule.cluster import Cluster, Floats, Ints
from trimtab.schedule.policies.filling import SLACK, JobMemory, WaitingReasons, usable_shapes


@dataclass(frozen=True, slots=True)
class RoundSettings:
    """How shares become rounds."""

    round_seconds: float = 360.0  # every job counts as having had half of this on each group to begin with
    renew_after: float = 1000.0  # shares are computed anew when jobs come or go, and this long has passed
    one_queue: bool = False  # whether groups are filled together by priority, instead of one after the other
    anew: bool = True  # whether what was received before counts no more once shares are computed anew
    only_owed: bool = False  # whether jobs without a share of a group are kept off it, though it be idle


@dataclass(frozen=True, slots=True, eq=False)
class GroupChoices:
    """Each job in the fastest usable shape of each group; (jobs, groups), WAITING where there is none."""

    shape: Ints
    speed: Floats
    workers: Ints

    @property
    def possible(self) -> Bools:
        """Whether a job can be on a group at all."""
        return np.asarray(self.shape != WAITING)


@dataclass(slots=True)
class TimeShares:
    """Remembers the shares and what has been received of them."""

    settings: RoundSettings = field(default_factory=RoundSettings)
    _known: JobMemory = field(default_factory=lambda: JobMemory(0), init=False, repr=False)
    _groups: tuple[str, ...] = field(default=(), init=False, repr=False)
    _ids: frozenset[str] = field(default=frozenset(), init=False, repr=False)
    _nodes: tuple[int, ...] = field(default=(), init=False, repr=False)
    _renewed: float | None = field(default=None, init=False, repr=False)
    _last: float = field(default=0.0, init=False, repr=False)

    def allocate(
        self,
        jobs: Jobs,
        cluster: Cluster,
        previous: Allocation,
        now: float,
        shares: Callable[[Jobs, Cluster, GroupChoices], Floats],
        turns: Callable[[GroupChoices], Ints],
    ) -> Allocation:
        """One round. `shares` computes X when that is due; `turns` says in which order groups are filled."""
        usable = usable_shapes(jobs, cluster, np.arange(len(jobs)))
        choices = _choices(jobs, cluster, previous, usable)
        possible = np.asarray(choices.possible.any(axis=1))
        share, received, deficit = self._follow(jobs, cluster, previous, now)
        nodes = tuple(group.nodes for group in cluster.groups)
        if self._due(jobs.ids, nodes, now):
            if self.settings.anew:
                deficit += share * (now - (self._renewed or 0.0)) - received
                received[:] = 0.0
            share[:] = shares(jobs, cluster, choices)
            self._ids, self._nodes, self._renewed = frozenset(jobs.ids), nodes, now
        priority = _priority(share, received + self.settings.round_seconds / 2)
        rank = _ranks(priority, deficit, share)
        if self.settings.only_owed:
            choices.shape[share <= 0] = WAITING
        shape = _filled(jobs, cluster, choices, rank, turns(choices), self.settings.one_queue)
        order = np.argsort(rank.min(axis=1, initial=rank.size), kind="stable")
        return Allocation(shape, order, WaitingReasons(shape, order, possible, "share of time received"))

    def _follow(
        self, jobs: Jobs, cluster: Cluster, previous: Allocation, now: float
    ) -> tuple[Floats, Floats, Floats]:
        """Shares, seconds received since they were computed, seconds owed from before; (jobs, groups)."""
        count, names = len(cluster.groups), tuple(group.name for group in cluster.groups)
        if names != self._groups:
            # Shares of other groups are worth nothing: begin again.
            self._known, self._groups, self._renewed = JobMemory(3 * count), names, None
        kept, _ = self._known.follow(jobs.ids)
        received = kept[:, count : 2 * count]
        runs = np.flatnonzero(previous.shape != WAITING)
        received[runs, cluster.shape_group[previous.shape[runs]]] += now - self._last
        self._last = now
        return kept[:, :count], received, kept[:, 2 * count :]

    def _due(self, ids: tuple[str, ...], nodes: tuple[int, ...], now: float) -> bool:
        """Whether shares are to be computed anew; at once when nodes came or went."""
        if self._renewed is None or nodes != self._nodes:
            return True
        return now - self._renewed >= self.settings.renew_after and frozenset(ids) != self._ids


def _choices(jobs: Jobs, cluster: Cluster, previous: Allocation, usable: Bools) -> GroupChoices:
    """The fastest usable shape of each group; the one a job has on its own group."""
    shape = np.full((len(jobs), len(cluster.groups)), WAITING, dtype=np.int64)
    speed = np.where(usable & (jobs.speed > 0), jobs.speed, np.where(usable, 0.0, -1.0))
    for index in range(len(cluster.groups)):
        columns = np.flatnonzero(cluster.shape_group == index)
        if len(columns):
            fastest = columns[speed[:, columns].argmax(axis=1)]
            shape[:, index] = np.where(usable[np.arange(len(jobs)), fastest], fastest, WAITING)
    runs = np.flatnonzero(previous.shape != WAITING)
    runs = runs[usable[runs, previous.shape[runs]]]
    shape[runs, cluster.shape_group[previous.shape[runs]]] = previous.shape[runs]
    row, group = np.nonzero(shape != WAITING)
    workers, best = np.zeros_like(shape), np.zeros(shape.shape)
    best[row, group] = speed[row, shape[row, group]]
    workers[row, group] = cluster.shape_workers[shape[row, group]]
    return GroupChoices(shape, best, workers)


def _priority(share: Floats, received: Floats) -> Floats:
    """Share over the part of each group's time received; what is not owed has none."""
    return np.where(share > 0, share * received.sum(axis=0) / received, 0.0)


def _ranks(priority: Floats, deficit: Floats, share: Floats) -> Ints:
    """The place of each (job, group) by priority, then by time owed from earlier, then by share."""
    order = np.lexsort((-share.ravel(), -deficit.ravel(), -np.round(priority, 9).ravel()))
    rank = np.empty(order.size, dtype=np.int64)
    rank[order] = np.arange(order.size)
    return rank.reshape(share.shape)


def _filled(
    jobs: Jobs, cluster: Cluster, choices: GroupChoices, rank: Ints, groups: Ints, one_queue: bool
) -> Ints:
    """Each job in at most one of its shapes, groups filled by rank."""
    shape = np.full(len(jobs), WAITING, dtype=np.int64)
    free = cluster.capacity * (1 + SLACK)
    demand = jobs.demand
    if one_queue:
        _fill_together(shape, free, demand, choices, rank)
        return shape
    for group in groups.tolist():
        rows = np.flatnonzero((shape == WAITING) & (choices.shape[:, group] != WAITING))
        rows = rows[np.argsort(rank[rows, group])]
        chosen = _greedy(choices.workers[rows, group, None] * demand[rows], free[group])
        shape[rows[chosen]] = choices.shape[rows[chosen], group]
    return shape


def _greedy(need: Floats, free: Floats) -> Ints:
    """Rows that fit, taken in order; a row that does not fit is skipped."""
    rows = np.arange(len(need))
    taken = []
    while len(rows):
        total = np.cumsum(need[rows], axis=0)
        over = (total > free).any(axis=1)
        stop = int(over.argmax()) if over.any() else len(rows)
        taken.append(rows[:stop])
        if stop:
            free = free - total[stop - 1]
        rows = rows[stop + 1 :]
        rows = rows[(need[rows] <= free).all(axis=1)]
    return np.concatenate(taken) if taken else np.empty(0, dtype=np.int64)


def _fill_together(shape: Ints, free: Floats, demand: Floats, choices: GroupChoices, rank: Ints) -> None:
    """Pairs of job and group in one order."""
    pairs = np.argsort(rank, axis=None)
    rows, groups = np.unravel_index(pairs, rank.shape)
    for row, group in zip(rows.tolist(), groups.tolist(), strict=True):
        if shape[row] == WAITING and choices.shape[row, group] != WAITING:
            need = choices.workers[row, group] * demand[row]
            if (need <= free[group]).all():
                shape[row] = choices.shape[row, group]
                free[group] -= need
