"""A container under management: its group, what it is left with in the end, what was counted of it."""

import math
from dataclasses import dataclass, replace

from trimtab.kernel import ContainerGroup, CpuCounters, SafeLimits, limit_high
from trimtab.resize.pool import Container

_MARGIN = 0.33  # of the mean use, above it, that a quota has
_HALF_LIFE = 0.5  # s in which the mean forgets half
_HOLD = 5  # looks for which who was held back has all of its limit as quota
_WORTH = 0.05  # relative change of a quota that is worth a write


@dataclass(slots=True, eq=False)
class Member:
    """`safe` are the limits it is left with at the end.

    A limit of CPU is the most it may use in one period. Where the policy saves, only what it uses on average,
    and a margin, is its quota, and the rest it may have saved up: short peaks pass, and nothing lies idle.
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
    saves: bool = False
    cpus: float = 0.0  # limit
    _mean: float = 0.0  # CPUs
    _held: int = _HOLD  # looks; nothing is known at first

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
        if self.saves and self.cpus and self.group.cpus_set is not None:
            now = self.group.cpus_set
            if abs(self._quota(self.cpus) - now) > _WORTH * now:
                self.limit_cpus(self.cpus)

    def _quota(self, cpus: float) -> float:
        """The kernel lets no one save more than its quota."""
        if not self.saves or self._held:
            return cpus
        return min(cpus, max(cpus / 2, self._mean * (1 + _MARGIN)))

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
        if not self.group.cpu_limit_stands():
            self.safe = replace(self.safe, cpus=self.group.cpu_limit())
            self.limit_cpus(self.cpus)
        if not self.group.memory_limit_stands():
            ours = self.group.memory_set
            self.safe = replace(self.safe, memory=self.group.memory_limit())
            self.limit_memory(ours)
