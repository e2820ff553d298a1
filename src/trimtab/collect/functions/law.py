"""The CPU that a memory size buys: Lambda's law and OpenWhisk's.

A law limits a function's group by its memory size and sets the weight of busy neighbours beside it.
`head_start` is CPU seconds that a rested group gets before it feels its limit; `least_turn` is seconds that a
turn must last so that its beginning does not matter.
"""

from dataclasses import dataclass
from typing import ClassVar

from trimtab.kernel import LimitedGroup

MEGABYTE = 2**20
_LAMBDA_MEGABYTES_PER_CPU = 1769
# Lambda's own period is said to be 20 ms; a short one also makes short invocations less random.
_PERIOD = 0.02  # s
# Only ratios of weights matter; large ones are not rounded away in version 2's range of 1 to 10000.
_ALL_SHARES = 51_200
# Interval at which the kernel checks quotas, at the usual 250 Hz.
_TICK = 0.004  # s


@dataclass(frozen=True, slots=True)
class Lambda:
    """A hard quota: one CPU per 1,769 MB, at most the host's CPUs, whatever other functions do."""

    name: ClassVar[str] = "lambda"
    crowded: ClassVar[bool] = False  # no neighbours keep the host's CPUs busy

    def cpus(self, memory_mb: int, host_cpus: int) -> float:
        """CPUs of that size."""
        return min(memory_mb / _LAMBDA_MEGABYTES_PER_CPU, host_cpus)

    def limit(self, memory_mb: int, host_cpus: int, function: LimitedGroup) -> None:
        """Set memory limit and CPU quota."""
        function.limit_memory(memory_mb * MEGABYTE)
        function.limit_cpus(self.cpus(memory_mb, host_cpus), _PERIOD)

    def crowd(self, memory_mb: int, neighbours: LimitedGroup) -> None:
        """Do nothing: there are no neighbours."""

    def head_start(self, memory_mb: int, host_cpus: int) -> float:
        """A period's quota, or a scheduler tick; none where one thread is never throttled."""
        cpus = self.cpus(memory_mb, host_cpus)
        return max(_TICK, cpus * _PERIOD) if cpus < 1 else 0.0

    def least_turn(self, memory_mb: int, host_cpus: int) -> float:
        """Five head starts."""
        return 5 * self.head_start(memory_mb, host_cpus) / self.cpus(memory_mb, host_cpus)


@dataclass(frozen=True, slots=True)
class OpenWhisk:
    """Shares in proportion to memory among the containers that fill an invoker: `cpu.shares`, no quota.

    Measured on a full and busy host, where shares bind: busy neighbours hold the rest of the pool.
    """

    name: ClassVar[str] = "openwhisk"
    crowded: ClassVar[bool] = True
    pool_mb: int = 4096

    def cpus(self, memory_mb: int, host_cpus: int) -> float:
        """Its share of all CPUs."""
        return host_cpus * memory_mb / self.pool_mb

    def limit(self, memory_mb: int, host_cpus: int, function: LimitedGroup) -> None:
        """Set memory limit and CPU weight."""
        function.limit_memory(memory_mb * MEGABYTE)
        function.weigh_cpu(self._shares(memory_mb))

    def crowd(self, memory_mb: int, neighbours: LimitedGroup) -> None:
        """Give the neighbours the rest of the pool."""
        neighbours.weigh_cpu(_ALL_SHARES - self._shares(memory_mb))

    def head_start(self, memory_mb: int, host_cpus: int) -> float:
        """None: weights take effect at once."""
        return 0.0

    def least_turn(self, memory_mb: int, host_cpus: int) -> float:
        """Several half-lives (32 ms) of the kernel's estimate of a group's load."""
        return 0.2

    def _shares(self, memory_mb: int) -> float:
        return _ALL_SHARES * memory_mb / self.pool_mb


Law = Lambda | OpenWhisk

LAWS: dict[str, Law] = {Lambda.name: Lambda(), OpenWhisk.name: OpenWhisk()}
