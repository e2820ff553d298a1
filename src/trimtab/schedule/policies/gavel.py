"""Heterogeneity-aware shares of time: Gavel (OSDI 2020), a linear program over X[job, group].

X[j, g] is the part of the time job j spends on group g. Each job's parts add up to at most 1, and the groups
hold what runs on them on average. Objectives (sections 3.1 and 4): `maxmin` raises the smallest throughput,
each compared with what the job would have if every group were split evenly, times its number of workers;
`throughput` raises the sum of throughputs; `fifo` gives jobs their fastest free group in order of arrival.
"""

from dataclasses import dataclass, field

import numpy as np

from trimtab.core import BadInputError, Clock
from trimtab.schedule.allocation import Allocation, JobColumns
from trimtab.schedule.cluster import Cluster, Floats, Ints
from trimtab.schedule.policies.time_shares import GroupChoices, RoundSettings, TimeShares

_OBJECTIVES = ("maxmin", "throughput", "fifo")
_LITTLE = 1e-6  # weight of the mean gain against the smallest
_TINY = 1e-5  # shares below this are noise of the solver


@dataclass(frozen=True, slots=True)
class GavelSettings:
    """The objective of shares, and how they become rounds."""

    objective: str = "maxmin"  # "maxmin", "throughput" or "fifo"
    round_seconds: float = 360.0  # every job counts as having had half of this on each group to begin with
    renew_after: float = 1000.0  # shares are computed anew when jobs come or go, and this long has passed
    one_queue: bool = False  # whether groups are filled together by priority, instead of fastest first
    anew: bool = True  # whether what was received before counts no more once shares are computed anew


@dataclass(slots=True)
class Gavel:
    """Jobs run mostly where they gain most, and none gets less than by an even split."""

    settings: GavelSettings = field(default_factory=GavelSettings)
    _rounds: TimeShares = field(init=False, repr=False)
    _groups: dict[str, str] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        s = self.settings
        if s.objective not in _OBJECTIVES:
            raise BadInputError(
                f'policy gavel: objective should be one of {", ".join(_OBJECTIVES)}, not "{s.objective}"'
            )
        only_owed = s.objective == "fifo"
        rounds = RoundSettings(s.round_seconds, s.renew_after, s.one_queue, s.anew, only_owed)
        self._rounds = TimeShares(rounds)

    def allocate(self, jobs: JobColumns, cluster: Cluster, previous: Allocation, clock: Clock) -> Allocation:
        return self._rounds.allocate(jobs, cluster, previous, clock.now(), self._shares, _fastest_first)

    def _shares(self, jobs: JobColumns, cluster: Cluster, choices: GroupChoices) -> Floats:
        if self.settings.objective == "fifo":
            return self._by_arrival(jobs, cluster, choices)
        if self.settings.objective == "throughput":
            return _solved(jobs, cluster, choices, choices.speed, fair=False)
        accelerators = cluster.capacity[:, 0]
        even = choices.speed @ (accelerators / max(accelerators.sum(), 1.0))
        gain = choices.workers * choices.speed / np.where(even > 0, even, 1.0)[:, None]
        return _solved(jobs, cluster, choices, gain, fair=True)

    def _by_arrival(self, jobs: JobColumns, cluster: Cluster, choices: GroupChoices) -> Floats:
        """All the time on one group for the first jobs; none overtakes the first that must wait."""
        free, demand = cluster.capacity.copy(), jobs.demand
        share = np.zeros(choices.speed.shape)
        names = [group.name for group in cluster.groups]
        for row, job in enumerate(jobs.ids):
            if self._groups.get(job) in names and choices.possible[row, names.index(self._groups[job])]:
                group = names.index(self._groups[job])
                free[group] -= choices.workers[row, group] * demand[row]
                share[row, group] = 1.0
        for row in np.flatnonzero(choices.possible.any(axis=1) & (share.sum(axis=1) == 0)).tolist():
            fits = (choices.workers[row][:, None] * demand[row] <= free).all(axis=1) & choices.possible[row]
            if not fits.any():
                break
            group = int(np.where(fits, choices.speed[row], -1.0).argmax())
            free[group] -= choices.workers[row, group] * demand[row]
            share[row, group] = 1.0
        self._groups = {jobs.ids[row]: names[group] for row, group in zip(*np.nonzero(share), strict=True)}
        return share


def _fastest_first(choices: GroupChoices) -> Ints:
    """Groups by the jobs' mean speed there, relative to their best group."""
    best = choices.speed.max(axis=1, initial=0.0)
    relative = choices.speed / np.where(best > 0, best, 1.0)[:, None]
    return np.argsort(-relative.sum(axis=0), kind="stable")


def _solved(jobs: JobColumns, cluster: Cluster, choices: GroupChoices, gain: Floats, fair: bool) -> Floats:
    """X that maximises the smallest gain (`fair`), or the sum of gains. Jobs that are alike share alike."""
    facts = np.hstack((np.where(choices.possible, gain, 0.0), choices.workers, jobs.demand))
    _, first, kind, alike = np.unique(
        np.round(facts, 9), axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    need = choices.workers[first, :, None] * jobs.demand[first, None, :]
    return _program(facts[first, : gain.shape[1]], need, alike, cluster.capacity, fair)[kind.ravel()]


def _program(gain: Floats, need: Floats, alike: Ints, capacity: Floats, fair: bool) -> Floats:
    """The program over (kinds of jobs, groups). `need` is (kinds, groups, 3); `alike` are of each kind."""
    from scipy.optimize import linprog
    from scipy.sparse import coo_matrix, hstack, vstack

    share = np.zeros(gain.shape)
    kinds, groups = np.nonzero(gain > 0)
    if not len(kinds):
        return share
    value, column, count = gain[kinds, groups], np.arange(len(kinds)), len(gain)
    demand = alike[kinds, None] * need[kinds, groups]
    time = coo_matrix((np.ones(len(kinds)), (kinds, column)), (count, len(kinds)))
    room = [coo_matrix((demand[:, d], (groups, column)), (len(capacity), len(kinds))) for d in range(3)]
    rows, limits = vstack((time, *room)), np.concatenate((np.ones(count), *capacity.T))
    goal = -value * alike[kinds]
    if fair:
        # The smallest gain is one more unknown, below every kind's gain. The sum has a small weight.
        able = np.isin(np.arange(count), kinds).astype(float)[:, None]
        rows = hstack((rows, coo_matrix((len(limits), 1))))
        rows = vstack((rows, hstack((coo_matrix((-value, (kinds, column)), (count, len(kinds))), able))))
        limits = np.concatenate((limits, np.zeros(count)))
        goal = np.concatenate((goal * _LITTLE / alike.sum(), [-1.0]))
    solution = linprog(goal, rows.tocsr(), limits, method="highs-ipm")
    if solution.x is None:
        return share
    solved = np.clip(solution.x[: len(kinds)], 0.0, 1.0)
    share[kinds, groups] = np.where(solved < _TINY, 0.0, solved)
    return share
