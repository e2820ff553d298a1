"""The interface of sizing policies: from CPU use in the last period to CPUs for the next."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Indices = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class CpuPeriod:
    """One period of every container, a row each; CPUs are CPU seconds per second.

    `slot` is a container's number as long as it lives; a policy keeps what it remembers by it.
    """

    seconds: float  # how long the period was
    slot: Indices
    pool: Indices
    limit: Array  # CPUs, during the period
    used: Array  # CPUs
    throttled: Flags  # whether the limit held it back
    floor: Array  # CPUs
    cap: Array  # CPUs, by pool

    @property
    def free(self) -> Array:
        """CPUs each pool has left to give."""
        return np.asarray(self.cap - np.bincount(self.pool, self.limit, len(self.cap)))


@dataclass(frozen=True, slots=True, eq=False)
class Wishes:
    """CPUs each container should have next, and how much of that it needs.

    Where a pool cannot give all, needs come first, then those who were held back, then the rest.
    """

    cpus: Array
    need: Array

    @classmethod
    def of(cls, answer: "Array | Wishes") -> "Wishes":
        """A policy's answer; a plain array is needed in full."""
        return answer if isinstance(answer, Wishes) else cls(answer, answer)


class CpuPolicy(Protocol):
    """One file, one class, one line in `POLICIES`.

    With `traps`, memory is ours as well: who runs out stands still until it gets more. A policy without it
    begins with the limits that containers are found with, and leaves those of memory, and killing, alone.
    With `saves`, what a container leaves unused it may use in a later period, within its limit.
    """

    @property
    def name(self) -> str: ...

    @property
    def traps(self) -> bool: ...

    @property
    def saves(self) -> bool: ...

    def wanted(self, period: CpuPeriod) -> Array | Wishes:
        """CPUs each container should have next; what a pool cannot give is shared fairly afterwards."""
        ...

    def forget(self, slots: Indices) -> None:
        """These containers are gone; their slots may be somebody else's next."""
        ...


class SlotColumns:
    """Columns of numbers by slot, as long as needed; a slot that was never set has the column's default."""

    def __init__(self, **defaults: float) -> None:
        self._defaults = defaults
        self._columns = {name: np.empty(0) for name in defaults}

    def __getitem__(self, name: str) -> Array:
        return self._columns[name]

    def reach(self, slots: Indices) -> None:
        """Make room for these slots."""
        have = len(next(iter(self._columns.values())))
        need = int(slots.max(initial=-1)) + 1
        if need > have:
            for name, default in self._defaults.items():
                more = np.full(max(need, 2 * have) - have, default)
                self._columns[name] = np.concatenate([self._columns[name], more])

    def forget(self, slots: Indices) -> None:
        """Back to the defaults."""
        self.reach(slots)
        for name, default in self._defaults.items():
            self._columns[name][slots] = default


class SlotWindow:
    """The last `length` values of a number by slot, and their mean; a new slot starts with nothing."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._ring = [SlotColumns(value=0.0) for _ in range(length)]
        self._totals = SlotColumns(sum=0.0, count=0.0)
        self._turn = 0

    def push(self, slots: Indices, values: Array) -> Array:
        """Add a value for each slot; the mean of the last `length`, or of as many as there are."""
        place = self._ring[self._turn % self._length]
        self._turn += 1
        place.reach(slots)
        self._totals.reach(slots)
        total, count = self._totals["sum"], self._totals["count"]
        total[slots] += values - place["value"][slots]
        place["value"][slots] = values
        count[slots] = np.minimum(count[slots] + 1, self._length)
        return np.asarray(total[slots] / count[slots])

    def forget(self, slots: Indices) -> None:
        """As if these had never been seen."""
        for memory in (*self._ring, self._totals):
            memory.forget(slots)


@dataclass(frozen=True, slots=True)
class Static:
    """Whatever the limit is, it stays."""

    name: str = "static"
    traps: bool = False
    saves: bool = False

    def wanted(self, period: CpuPeriod) -> Array:
        return np.array(period.limit)

    def forget(self, slots: Indices) -> None:
        """Nothing is remembered."""
