"""What CPU a memory size buys: Lambda's law and OpenWhisk's."""

from dataclasses import dataclass
from typing import Protocol

from trimtab.kernel import LimitedGroup

MEGABYTE = 2**20
_LAMBDA_MEGABYTES_PER_CPU = 1769
# Lambda's own period is said to be 20 ms; a short one also makes short invocations less a matter of luck.
_PERIOD = 0.02  # s
# Only ratios of weights matter; large ones are not rounded away in version 2's range of 1 to 10000.
_ALL_SHARES = 51_200


class Law(Protocol):
    """How a platform turns a memory size into CPU."""

    name: str

    def cpus(self, memory_mb: int, host_cpus: int) -> float:
        """What the size is entitled to, in CPUs, on a host of so many."""

    def apply(self, memory_mb: int, host_cpus: int, function: LimitedGroup, neighbours: LimitedGroup) -> None:
        """Set the limits of the function's group, and of the group of its busy neighbours."""

    @property
    def crowded(self) -> bool:
        """Whether neighbours keep every CPU of the host busy."""


@dataclass(frozen=True, slots=True)
class Lambda:
    """A hard quota: one CPU per 1,769 MB, at most what the host has; what others do makes no difference."""

    name: str = "lambda"
    crowded: bool = False

    def cpus(self, memory_mb: int, host_cpus: int) -> float:
        """A quota of CPUs."""
        return min(memory_mb / _LAMBDA_MEGABYTES_PER_CPU, host_cpus)

    def apply(self, memory_mb: int, host_cpus: int, function: LimitedGroup, neighbours: LimitedGroup) -> None:
        """Quota and ceiling."""
        function.limit_memory(memory_mb * MEGABYTE)
        function.limit_cpus(self.cpus(memory_mb, host_cpus), _PERIOD)


@dataclass(frozen=True, slots=True)
class OpenWhisk:
    """Shares in proportion to memory among the containers that fill an invoker: `cpu.shares`, no quota.

    Measured on a full and busy host, where shares bind: neighbours that never rest hold the rest of the pool.
    """

    pool_mb: int = 4096
    name: str = "openwhisk"
    crowded: bool = True

    def cpus(self, memory_mb: int, host_cpus: int) -> float:
        """Its part of all CPUs, if it can use that many."""
        return host_cpus * memory_mb / self.pool_mb

    def apply(self, memory_mb: int, host_cpus: int, function: LimitedGroup, neighbours: LimitedGroup) -> None:
        """Ceiling and weights."""
        function.limit_memory(memory_mb * MEGABYTE)
        share = _ALL_SHARES * memory_mb / self.pool_mb
        function.weigh_cpu(share)
        neighbours.weigh_cpu(_ALL_SHARES - share)


LAWS: dict[str, Law] = {law.name: law for law in (Lambda(), OpenWhisk())}
