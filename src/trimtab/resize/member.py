"""A container under management: its group, what it is left with in the end, what was counted of it."""

import math
from dataclasses import dataclass, field, replace

from trimtab.kernel import ContainerGroup, CpuCounters, SafeLimits, limit_high
from trimtab.resize.pool import Container

_MARGIN = 0.33  # of the mean use, above it, that a quota has
_HALF_LIFE = 0.5  # s in which the mean forgets half
_HOLD = 5  # looks for which who was held back has all of its limit as quota
_LIFT = 2  # looks for which who was about to be held back has
_NEARLY = 0.85  # of its quota, used within a period: about to be held back
_LEAST = 0.02  # CPUs
_WORTH = 0.05  # relative change of a quota that is worth a write
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
    _glances: list[float] = field(default_factory=list)  # CPU s used at the last ones

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

    def glance(self, period: float) -> None:
        """Lift its quota to its limit if it has nearly used it up within the last period."""
        if not self.saves or self._held or not self.group.cpus_set:
            self._glances.clear()
            return
        self._glances.append(self.group.used())
        if self._glances[-1] - self._glances[0] > _NEARLY * self.group.cpus_set * period:
            self._held = _LIFT
            self.limit_cpus(self.cpus)
        del self._glances[:-GLANCES]

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
