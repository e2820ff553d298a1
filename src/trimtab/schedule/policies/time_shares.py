"""Rounds that realise shares of time: Gavel's mechanism (OSDI 2020, section 5).

X[j, g] is the part of the time job j shall spend on group g. In each round a job's priority on a group is X
over the part of that group's time it has received since X was computed; groups are filled by priority, and
capacity that is owed to no job goes to any that fits.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from trimtab.schedule.allocation import WAITING, Allocation, Bools, JobColumns
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
    """Keeps the shares, and the seconds that jobs have received of them."""

    settings: RoundSettings = field(default_factory=RoundSettings)
    _history: JobMemory = field(default_factory=lambda: JobMemory(0), init=False, repr=False)
    _groups: tuple[str, ...] = field(default=(), init=False, repr=False)
    _ids: frozenset[str] = field(default=frozenset(), init=False, repr=False)
    _nodes: tuple[int, ...] = field(default=(), init=False, repr=False)
    _renewed: float | None = field(default=None, init=False, repr=False)
    _last: float = field(default=0.0, init=False, repr=False)

    def allocate(
        self,
        jobs: JobColumns,
        cluster: Cluster,
        previous: Allocation,
        now: float,
        shares: Callable[[JobColumns, Cluster, GroupChoices], Floats],
        turns: Callable[[GroupChoices], Ints],
    ) -> Allocation:
        """One round. `shares` computes X when that is due; `turns` returns the order of filling groups."""
        usable = usable_shapes(jobs, cluster, np.arange(len(jobs)))
        choices = _choices(jobs, cluster, previous, usable)
        possible = np.asarray(choices.possible.any(axis=1))
        share, received, deficit = self._follow(jobs, cluster, previous, now)
        nodes = tuple(group.nodes for group in cluster.groups)
        waited = self._renewed is not None and now - self._renewed >= self.settings.renew_after
        if self._renewed is None or nodes != self._nodes or (waited and frozenset(jobs.ids) != self._ids):
            if self.settings.anew:
                deficit += share * (now - (self._renewed or 0.0)) - received
                received[:] = 0.0
            share[:] = shares(jobs, cluster, choices)
            self._ids, self._nodes, self._renewed = frozenset(jobs.ids), nodes, now
        # Priority is share over the part of each group's time received; without a share there is none.
        had = received + self.settings.round_seconds / 2
        priority = np.where(share > 0, share * had.sum(axis=0) / had, 0.0)
        places = np.lexsort((-share.ravel(), -deficit.ravel(), -np.round(priority, 9).ravel()))
        rank = np.empty(share.shape, dtype=np.int64)
        rank.flat[places] = np.arange(places.size)
        if self.settings.only_owed:
            choices.shape[share <= 0] = WAITING
        pinned = np.where(jobs.preemptible, WAITING, previous.shape)
        shape = _filled(jobs, cluster, choices, rank, turns(choices), self.settings.one_queue, pinned)
        order = np.argsort(rank.min(axis=1, initial=rank.size), kind="stable")
        why = WaitingReasons(shape, order, possible, "share of time received")
        return Allocation(shape, order, why, ready=np.asarray(choices.possible.any(axis=1)))

    def _follow(
        self, jobs: JobColumns, cluster: Cluster, previous: Allocation, now: float
    ) -> tuple[Floats, Floats, Floats]:
        """Shares, seconds received since they were computed, seconds owed from before; (jobs, groups)."""
        count, names = len(cluster.groups), tuple(group.name for group in cluster.groups)
        if names != self._groups:
            # Shares are per group: with other groups, start again.
            self._history, self._groups, self._renewed = JobMemory(3 * count), names, None
        history, _ = self._history.follow(jobs.ids)
        received = history[:, count : 2 * count]
        runs = np.flatnonzero(previous.shape != WAITING)
        received[runs, cluster.shape_group[previous.shape[runs]]] += now - self._last
        self._last = now
        return history[:, :count], received, history[:, 2 * count :]


def _choices(jobs: JobColumns, cluster: Cluster, previous: Allocation, usable: Bools) -> GroupChoices:
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


def _filled(
    jobs: JobColumns,
    cluster: Cluster,
    choices: GroupChoices,
    rank: Ints,
    groups: Ints,
    one_queue: bool,
    pinned: Ints,
) -> Ints:
    """Each job in at most one of its shapes, groups filled by rank after the shapes that are `pinned`."""
    shape, demand = pinned.astype(np.int64), jobs.demand
    free = cluster.capacity * (1 + SLACK)
    for row in np.flatnonzero(pinned != WAITING).tolist():
        free[cluster.shape_group[pinned[row]]] -= cluster.shape_workers[pinned[row]] * demand[row]
    if one_queue:
        rows, owners = np.unravel_index(np.argsort(rank, axis=None), rank.shape)
        for row, group in zip(rows.tolist(), owners.tolist(), strict=True):
            need = choices.workers[row, group] * demand[row]
            possible = shape[row] == WAITING and choices.shape[row, group] != WAITING
            if possible and (need <= free[group]).all():
                shape[row] = choices.shape[row, group]
                free[group] -= need
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
    parts = []
    while len(rows):
        total = np.cumsum(need[rows], axis=0)
        over = (total > free).any(axis=1)
        stop = int(over.argmax()) if over.any() else len(rows)
        parts.append(rows[:stop])
        if stop:
            free = free - total[stop - 1]
        rows = rows[stop + 1 :]
        rows = rows[(need[rows] <= free).all(axis=1)]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
