"""A container under management: its group, the limits it is left with in the end, its counters."""

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
_USUAL = TrackingSettings()  # a quota is what that rule says is needed
_HOLD = 2  # looks for which who was held back has all of its limit as quota
_NEARLY = 0.8  # of its quota: less than that left, and it is about to be held back
_WORTH = 0.05  # relative change of a quota that is worth a write


def mean_that_stays(seconds: float) -> float:
    """The part of a mean that is left after so many seconds."""
    return float(0.5 ** (seconds / _USUAL.mean_half_life))


@dataclass(slots=True, eq=False)
class ManagedContainer:
    """`safe` are the limits it is left with at the end.

    A limit of CPU is the most it may use in a period. Where the policy saves, its quota is less: what it uses
    on average and a margin. What it leaves of that it may use later; and if a glance between two looks finds
    that it has nearly used it up, it borrows what others in its pool leave of their limits, until the next
    glance. So short peaks pass, and little lies idle.
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
    most_cpus: float = math.inf  # that groups above were found to allow; looked at anew from time to time
    saves: bool = False
    floor: float = 0.02  # CPUs, of its quota
    cpus: float = 0.0  # limit
    _mean: float = 0.0  # CPUs
    _held: int = _HOLD  # looks; nothing is known at first
    _borrows: bool = False
    _glances: list[tuple[float, float]] = field(default_factory=list)  # when (s), and CPU s used so far
    _left: float = 0.0  # CPUs that it can still use in this period, with what it has saved up

    @property
    def committed(self) -> float:
        """CPUs that it could use in one period, with all that it may have saved up."""
        return (self.group.cpus_set or 0.0) + self.group.saved_set

    def saw(self, used: float, held_back: bool, stays: float) -> None:
        """CPUs it used since the last look, whether its limit held it back, and the part of the mean before
        that stays."""
        self._mean = used + stays * (self._mean - used)
        if held_back:
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
        """Set its quota anew, within its limit, where use has changed or it has borrowed."""
        now = self.group.cpus_set
        if not self.saves or not self.cpus or not now:
            return
        if self._borrows or abs(self._quota(self.cpus) - now) > _WORTH * now:
            self.limit_cpus(self.cpus)

    def glance(self, now: float, spare: float) -> float:
        """Give back what was borrowed, and borrow from what others in the pool leave unused if it is about to
        be held back; how much of that is left."""
        if not self.saves or not self.cpus:
            return spare
        seconds, spent, recent = self._spent(now)
        if self._borrows:
            spare += self.committed
            self.limit_cpus(self.cpus)
            spare -= self.committed
        quota, most = self.group.cpus_set or 0.0, self.committed
        self._left = min(self._left + quota * seconds / PERIOD, most) - spent / PERIOD
        room = min(most + spare - recent / PERIOD, self.most_cpus)  # what it used in this period counts
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
        """Set the limit, and in version 2 where slowing down begins; in the order that is safe.

        If that is less than it uses, both stay.
        """
        count = value if value is None else math.floor(value)
        if self.group.version == 1:
            self.group.limit_memory(count)
            return
        before = self.group.memory_limit()
        raising = value is None or (before is not None and value > before)
        if not raising:
            self.group.must_fit(count)  # or the kernel would take from it first
            limit_high(self.group, value)
        try:
            self.group.limit_memory(count)
        except GroupBusyError:  # it has just grown
            limit_high(self.group, before)
            raise
        if raising:
            limit_high(self.group, value)

    def left_with(self, memory: float) -> float:
        """The limit to set where it is to have so much: what is taken in version 2 leaves, above that, the
        room between slowing down and the limit, or who has all it needs would be slowed down at once."""
        now = self.group.memory_set
        if self.group.version == 1 or now is None or memory >= now:
            return memory
        return min(now, least_limit(memory))

    def heed_others(self) -> None:
        """A limit that somebody else has set is the one it is left with; for now it has ours again."""
        self.most_cpus = math.inf
        if not self.group.cpu_limit_stands():
            self.safe = replace(self.safe, cpus=self.group.cpu_limit())
            self.limit_cpus(self.cpus)
        if not self.group.memory_limit_stands():
            ours = self.group.memory_set
            self.safe = replace(self.safe, memory=self.group.memory_limit())
            self.limit_memory(ours)
