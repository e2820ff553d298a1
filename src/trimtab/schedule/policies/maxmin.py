"""Max-min fair shares of time for jobs or tenants, whatever an accelerator is worth to a job."""

from dataclasses import dataclass, field

import numpy as np

from trimtab.core import BadInputError, Clock
from trimtab.schedule.allocation import Allocation, JobColumns
from trimtab.schedule.cluster import Cluster, Floats, Ints
from trimtab.schedule.policies.time_shares import GroupChoices, RoundSettings, TimeShares

_TINY = 1e-12


@dataclass(frozen=True, slots=True)
class MaxMinSettings:
    """Whether jobs or tenants have equal shares, and how shares become rounds."""

    over: str = "jobs"  # "jobs", or "tenants": first equal among tenants, then among the jobs of each
    round_seconds: float = 360.0  # every job counts as having had half of this on each group to begin with
    renew_after: float = 1000.0  # shares are computed anew when jobs come or go, and this long has passed
    seed: int = 0  # of the order in which groups are filled, which is another in each round


@dataclass(slots=True)
class MaxMin:
    """A job of many accelerators gets as many accelerator-seconds as one of few, so less time."""

    settings: MaxMinSettings = field(default_factory=MaxMinSettings)
    _rounds: TimeShares = field(init=False, repr=False)
    _count: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        s = self.settings
        if s.over not in ("jobs", "tenants"):
            raise BadInputError(f'policy maxmin: over should be jobs or tenants, not "{s.over}"')
        self._rounds = TimeShares(RoundSettings(s.round_seconds, s.renew_after))

    def allocate(self, jobs: JobColumns, cluster: Cluster, previous: Allocation, clock: Clock) -> Allocation:
        self._count += 1
        return self._rounds.allocate(jobs, cluster, previous, clock.now(), self._shares, self._turns)

    def _turns(self, choices: GroupChoices) -> Ints:
        return np.random.default_rng((self.settings.seed, self._count)).permutation(choices.shape.shape[1])

    def _shares(self, jobs: JobColumns, cluster: Cluster, choices: GroupChoices) -> Floats:
        size = choices.workers.max(axis=1, initial=0) * np.where(jobs.gpus > 0, jobs.gpus, 1.0)
        room = np.where(cluster.capacity[:, 0] > 0, cluster.capacity[:, 0], cluster.capacity[:, 1])
        parts = np.zeros(len(jobs))
        if self.settings.over == "jobs":
            parts = water_filled(size, room.sum())
        else:
            wishes = np.bincount(jobs.tenant, weights=size, minlength=len(jobs.tenants)).astype(float)
            for tenant, part in enumerate(water_filled(wishes, room.sum())):
                rows = np.flatnonzero(jobs.tenant == tenant)
                parts[rows] = water_filled(size[rows], part)
        time = np.divide(parts, size, out=np.zeros(len(jobs)), where=size > 0)
        spread = choices.possible * room
        return np.asarray(time[:, None] * spread / np.maximum(spread.sum(axis=1), _TINY)[:, None])


def water_filled(wishes: Floats, total: float) -> Floats:
    """Equal parts of a total, none above its wish; the rest is shared by the others (water-filling)."""
    order = np.argsort(wishes, kind="stable")
    ascending = wishes[order]
    before = np.concatenate(([0.0], np.cumsum(ascending)[:-1])) if len(wishes) else ascending
    equal_part = np.maximum(total - before, 0.0) / np.arange(len(wishes), 0, -1)
    parts = np.empty(len(wishes))
    # The first wish that exceeds an equal part of the rest, and all after it, get that part.
    short = ascending > equal_part
    level = equal_part[short.argmax()] if short.any() else np.inf
    parts[order] = np.minimum(ascending, level)
    return parts
