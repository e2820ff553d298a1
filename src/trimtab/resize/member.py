"""A container under management: its group, what it is left with in the end, what was counted of it."""

import math
from dataclasses import dataclass, replace

from trimtab.kernel import ContainerGroup, CpuCounters, SafeLimits, limit_high
from trimtab.resize.pool import Container

_MARGIN = 0.33  # of the mean use, above it, that a quota has
_HALF_LIFE = 0.5  # s in which the mean forgets half
_HOLD = 2  # looks for which who was held back has all of its limit as quota
_LIFT = 1  # looks for which who was about to be held back has
_NEARLY = 0.1  # of its quota: less than that left, and it is about to be held back
_LEAST = 0.02  # CPUs
_WORTH = 0.05  # relative change of a quota that is worth a write
PERIOD = 0.1  # s between two looks
GLANCES = 4  # in a period


@dataclass(slots=True, eq=False)
class Member:
    """`safe` are the limits it is left with at the end.

    A limit of CPU is the most it may use in a period. Where the policy saves, its quota is less: what it uses
    on average and a margin. What it leaves unused it may use later, and at a glance between two looks that
    finds it near its quota it gets all of its limit at once. So short peaks pass, and little lies idle.
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
    cpus: float = 0.0  # limit
    _mean: float = 0.0  # CPUs
    _held: int = _HOLD  # looks; nothing is known at first
    _glanced: tuple[float, float] = (0.0, 0.0)  # when (s), and CPU s used so far
    _left: float = 0.0  # CPUs that it can still use in this period, with what it has saved up

    def saw(self, used: float, seconds: float, held_back: bool) -> None:
        """CPUs it used in the last so many seconds, and whether its limit held it back."""
        self._mean = used + 0.5 ** (seconds / _HALF_LIFE) * (self._mean - used)
        self._held = _HOLD if held_back else max(0, self._held - 1)

    def limit_cpus(self, cpus: float) -> None:
        """Set the most it may use in one period."""
        quota = self._quota(cpus)
        self.group.limit_cpus(quota, cpus - quota)
        self.cpus = cpus

    def trim(self) -> None:
        """Set its quota anew, within its limit, where use has changed."""
        now = self.group.cpus_set
        if self.saves and self.cpus and now and abs(self._quota(self.cpus) - now) > _WORTH * now:
            self.limit_cpus(self.cpus)

    def glance(self, now: float) -> None:
        """Lift its quota to its limit if what it had has nearly been used up."""
        quota, used = self.group.cpus_set, self.group.used()
        seconds, spent = now - self._glanced[0], used - self._glanced[1]
        self._glanced = now, used
        if not self.saves or self._held or not quota:
            self._left = 0.0
            return
        most = quota + min(quota, self.cpus - quota)
        self._left = min(self._left + quota * seconds / PERIOD, most) - spent / PERIOD
        if self._left < _NEARLY * quota:
            self._held = _LIFT
            self.limit_cpus(self.cpus)

    def _quota(self, cpus: float) -> float:
        if not self.saves or self._held:
            return cpus
        return min(cpus, max(self._mean * (1 + _MARGIN), _LEAST))

    def limit_memory(self, value: float | None) -> None:
        """Set the limit, and in version 2 where slowing down begins; in the order that is safe."""
        count = value if value is None else math.floor(value)
        if self.group.version == 1:
            self.group.limit_memory(count)
            return
        before = self.group.memory_limit()
        raising = value is None or (before is not None and value > before)
        if not raising:
            limit_high(self.group, value)
        self.group.limit_memory(count)
        if raising:
            limit_high(self.group, value)

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
