"""A container under management: its group, what it is left with in the end, what was counted of it."""

import math
from dataclasses import dataclass, replace

from trimtab.kernel import ContainerGroup, CpuCounters, SafeLimits, limit_high
from trimtab.resize.pool import Container


@dataclass(slots=True, eq=False)
class Member:
    """`safe` are the limits it is left with at the end."""

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
            ours = self.group.cpus_set
            self.safe = replace(self.safe, cpus=self.group.cpu_limit())
            self.group.limit_cpus(ours)
        if not self.group.memory_limit_stands():
            ours = self.group.memory_set
            self.safe = replace(self.safe, memory=self.group.memory_limit())
            self.limit_memory(ours)
