"""What CPU a memory size buys: Lambda's law and OpenWhisk's."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

from trimtab.kernel import LimitedGroup

MEGABYTE = 2**20
_LAMBDA_MEGABYTES_PER_CPU = 1769
# Lambda's own period is said to be 20 ms; a short one also makes short invocations less a matter of luck.
_PERIOD = 0.02  # s
# Only ratios of weights matter; large ones are not rounded away in version 2's range of 1 to 10000.
_ALL_SHARES = 51_200
# How often the kernel looks whether a quota has run out, at the usual 250 Hz.
_TICK = 0.004  # s


class Law(Protocol):
    """How a platform turns a memory size into CPU."""

    name: ClassVar[str]
    crowded: ClassVar[bool]  # whether neighbours keep every CPU of the host busy

    def cpus(self, memory_mb: int, host_cpus: int) -> float:
        """What the size is entitled to, in CPUs, on a host of so many."""

    def limit(self, memory_mb: int, host_cpus: int, function: LimitedGroup) -> None:
        """Set the limits of the function's group."""

    def crowd(self, memory_mb: int, neighbours: LimitedGroup) -> None:
        """Set the weight of the busy neighbours beside a function of that size."""

    def head_start(self, memory_mb: int, host_cpus: int) -> float:
        """CPU seconds that a group which has rested gets before it feels its limit."""

    def least_turn(self, memory_mb: int, host_cpus: int) -> float:
        """Seconds that a turn has to last so that its beginning does not matter, nor cost too much."""


@dataclass(frozen=True, slots=True)
class Lambda:
    """A hard quota: one CPU per 1,769 MB, at most what the host has; what others do makes no difference."""

    name: ClassVar[str] = "lambda"
    crowded: ClassVar[bool] = False

    def cpus(self, memory_mb: int, host_cpus: int) -> float:
        """A quota of CPUs."""
        return min(memory_mb / _LAMBDA_MEGABYTES_PER_CPU, host_cpus)

    def limit(self, memory_mb: int, host_cpus: int, function: LimitedGroup) -> None:
        """Quota and ceiling."""
        function.limit_memory(memory_mb * MEGABYTE)
        function.limit_cpus(self.cpus(memory_mb, host_cpus), _PERIOD)

    def crowd(self, memory_mb: int, neighbours: LimitedGroup) -> None:
        """Nobody is there."""

    def head_start(self, memory_mb: int, host_cpus: int) -> float:
        """A period's quota, or until the kernel looks; none where one thread is never stopped."""
        cpus = self.cpus(memory_mb, host_cpus)
        return max(_TICK, cpus * _PERIOD) if cpus < 1 else 0.0

    def least_turn(self, memory_mb: int, host_cpus: int) -> float:
        """Some head starts."""
        return 5 * self.head_start(memory_mb, host_cpus) / self.cpus(memory_mb, host_cpus)


@dataclass(frozen=True, slots=True)
class OpenWhisk:
    """Shares in proportion to memory among the containers that fill an invoker: `cpu.shares`, no quota.

    Measured on a full and busy host, where shares bind: neighbours that never rest hold the rest of the pool.
    """

    name: ClassVar[str] = "openwhisk"
    crowded: ClassVar[bool] = True
    pool_mb: int = 4096

    def cpus(self, memory_mb: int, host_cpus: int) -> float:
        """Its part of all CPUs, if it can use that many."""
        return host_cpus * memory_mb / self.pool_mb

    def limit(self, memory_mb: int, host_cpus: int, function: LimitedGroup) -> None:
        """Ceiling and weight."""
        function.limit_memory(memory_mb * MEGABYTE)
        function.weigh_cpu(self._shares(memory_mb))

    def crowd(self, memory_mb: int, neighbours: LimitedGroup) -> None:
        """What the function leaves of the pool."""
        neighbours.weigh_cpu(_ALL_SHARES - self._shares(memory_mb))

    def head_start(self, memory_mb: int, host_cpus: int) -> float:
        """None: weights are felt at once."""
        return 0.0

    def least_turn(self, memory_mb: int, host_cpus: int) -> float:
        """Several times what the kernel takes to see how busy a group is on each CPU: it halves in 32 ms."""
        return 0.2

    def _shares(self, memory_mb: int) -> float:
        return _ALL_SHARES * memory_mb / self.pool_mb


LAWS: dict[str, Law] = {Lambda.name: Lambda(), OpenWhisk.name: OpenWhisk()}
