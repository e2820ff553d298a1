"""A container under management: its group, its safe limits, its counters."""

import math
from dataclasses import dataclass, field, replace

from trimtab.kernel import (
    ContainerGroup,
    CpuCounters,
    CpuRefusedError,
    GroupBusyError,
    SafeLimits,
    least_limit,
    limit_high,
)
from trimtab.resize.policies.tracking import TrackingSettings
from trimtab.resize.pool import Container

PERIOD = 0.1  # s between two looks
GLANCES = 4  # in a period
_USUAL = TrackingSettings()  # a quota is the need by that rule
_HOLD = 2  # looks for which a throttled container has all of its limit as quota
_NEARLY = 0.8  # of its quota: with less than that left, it is about to be throttled
_WORTH = 0.05  # relative change of a quota that is worth a write


def mean_decay(seconds: float) -> float:
    """The weight of the past in a decaying mean after so many seconds."""
    return float(0.5 ** (seconds / _USUAL.mean_half_life))


@dataclass(slots=True, eq=False)
class ManagedContainer:
    """A managed container; `safe` are the limits that are restored at the end.

    A CPU limit is the most it may use in a period. Where the policy saves, its quota is less: its mean use
    and a margin. It may use unused quota later; and if a glance between two looks finds that it has nearly
    used it up, it borrows what others in its pool leave of their limits, until the next glance. So short
    peaks pass, and little is idle.
    """

    container: Container
    group: ContainerGroup
    slot: int
    pool: int
    safe: SafeLimits
    counters: CpuCounters
    throttles: int = 0  # periods
    traps: int = 0  # times it ran out of memory and got more
    refusals: int = 0  # times there was nothing to give
    most_cpus: float = math.inf  # that groups above allow; checked again from time to time
    saves: bool = False
    floor: float = 0.02  # CPUs, of its quota
    cpus: float = 0.0  # limit
    _mean: float = 0.0  # CPUs
    _held: int = _HOLD  # looks for which it keeps all of its limit as quota
    _borrows: bool = False
    _glances: list[tuple[float, float]] = field(default_factory=list)  # when (s), and CPU s used so far
    _left: float = 0.0  # CPUs that it can still use in this period, including saved quota

    @property
    def committed(self) -> float:
        """CPUs that it could use in one period, with all the quota it may have saved."""
        return (self.group.cpus_set or 0.0) + self.group.saved_set

    def observe(self, used: float, throttled: bool, decay: float) -> None:
        """Report CPUs used since the last look, whether it was throttled, and the weight of the past mean."""
        self._mean = used + decay * (self._mean - used)
        if throttled:
            self._held = _HOLD
        elif self._held:
            self._held -= 1

    def limit_cpus(self, cpus: float) -> None:
        """Set the most it may use in one period."""
        quota = self._quota(cpus)
        self.group.limit_cpus(quota, cpus - quota)
        self.cpus, self._borrows = cpus, False
        self._left = min(self._left + quota, self.committed)  # the kernel refills at every write

    def trim(self) -> None:
        """Set its quota again, within its limit, where use has changed or it has borrowed."""
        now = self.group.cpus_set
        if not self.saves or not self.cpus or not now:
            return
        if self._borrows or abs(self._quota(self.cpus) - now) > _WORTH * now:
            self.limit_cpus(self.cpus)

    def glance(self, now: float, spare: float) -> float:
        """Return what was borrowed, and borrow from the pool's `spare` CPUs if it is about to be throttled;
        returns the rest of `spare`."""
        if not self.saves or not self.cpus:
            return spare
        seconds, spent, recent = self._spent(now)
        if self._borrows:
            spare += self.committed
            self.limit_cpus(self.cpus)
            spare -= self.committed
        quota, most = self.group.cpus_set or 0.0, self.committed
        self._left = min(self._left + quota * seconds / PERIOD, most) - spent / PERIOD
        room = min(most + spare - recent / PERIOD, self.most_cpus)  # less its use in this period
        if self._left >= _NEARLY * quota or room <= quota:
            return spare
        try:
            self.group.limit_cpus(room)
        except CpuRefusedError:
            self.most_cpus = quota
            return spare
        self._borrows = True
        self._left += room
        return spare + most - room

    def _spent(self, now: float) -> tuple[float, float, float]:
        """Seconds and CPU seconds used since the last glance, and CPU seconds used within the last period."""
        self._glances.append((now, self.group.used()))
        then, before = self._glances[-2:][0]
        used, first = self._glances[-1][1], self._glances[0][1]
        del self._glances[:-GLANCES]
        return now - then, used - before, used - first

    def _quota(self, cpus: float) -> float:
        if not self.saves or self._held:
            return cpus
        return min(cpus, max(self._mean * (1 + _USUAL.margin), self.floor))

    def limit_memory(self, value: float | None) -> None:
        """Set the limit, and `memory.high` in version 2, in the order that is safe.

        If that is less than it uses, both stay.
        """
        count = value if value is None else math.floor(value)
        if self.group.version == 1:
            self.group.limit_memory(count)
            return
        before = self.group.memory_limit()
        raising = value is None or (before is not None and value > before)
        if not raising:
            self.group.must_fit(count)  # or the kernel would reclaim first
            limit_high(self.group, value)
        try:
            self.group.limit_memory(count)
        except GroupBusyError:  # it has just grown
            limit_high(self.group, before)
            raise
        if raising:
            limit_high(self.group, value)

    def limit_for(self, memory: float) -> float:
        """The limit to set for so much memory. In version 2 a lowered limit includes the gap to
        `memory.high`, or a container that has all it needs would be slowed down at once."""
        now = self.group.memory_set
        if self.group.version == 1 or now is None or memory >= now:
            return memory
        return min(now, least_limit(memory))

    def accept_foreign_limits(self) -> None:
        """Limits that another program has set become the safe ones; the managed ones are set again."""
        self.most_cpus = math.inf
        if not self.group.cpu_limit_stands():
            self.safe = replace(self.safe, cpus=self.group.cpu_limit())
            self.limit_cpus(self.cpus)
        if not self.group.memory_limit_stands():
            managed = self.group.memory_set
            self.safe = replace(self.safe, memory=self.group.memory_limit())
            self.limit_memory(managed)
