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
    """One period of all containers, a row each; CPUs are CPU seconds per second.

    `slot` is a container's number while it exists; a policy keeps its state by it.
    """

    seconds: float  # how long the period was
    slot: Indices
    pool: Indices
    limit: Array  # CPUs, during the period
    used: Array  # CPUs
    throttled: Flags
    floor: Array  # CPUs
    cap: Array  # CPUs, by pool

    @property
    def free(self) -> Array:
        """Free CPUs of each pool."""
        return np.asarray(self.cap - np.bincount(self.pool, self.limit, len(self.cap)))


@dataclass(frozen=True, slots=True, eq=False)
class Wishes:
    """Target CPUs of each container, and how much of that it needs.

    Where a pool cannot give all, needs come first, then throttled containers, then the rest.
    """

    cpus: Array
    need: Array

    @classmethod
    def of(cls, answer: "Array | Wishes") -> "Wishes":
        """A policy's answer; a plain array means that all of it is needed."""
        return answer if isinstance(answer, Wishes) else cls(answer, answer)


class CpuPolicy(Protocol):
    """A sizing policy: one file, one class, one line in `POLICIES`.

    With `traps`, memory is managed too: a container that runs out pauses until it gets more. A policy without
    it begins with the containers' own limits, and does not change memory limits and killing.
    With `saves`, a container may use unused quota in a later period, within its limit.
    """

    @property
    def name(self) -> str: ...

    @property
    def traps(self) -> bool: ...

    @property
    def saves(self) -> bool: ...

    def target(self, period: CpuPeriod) -> Array | Wishes:
        """Target CPUs of each container; where a pool cannot give all, they are reduced fairly."""
        ...

    def forget(self, slots: Indices) -> None:
        """Reset the state of containers that have ended; their slots are used again."""
        ...


class SlotColumns:
    """Columns by slot that grow as needed; a float is a column's default, a tuple the shape of zero rows."""

    def __init__(self, **columns: float | tuple[int, ...]) -> None:
        self._empty = {
            name: np.zeros((1, *kind)) if isinstance(kind, tuple) else np.array([float(kind)])
            for name, kind in columns.items()
        }
        self._columns = {name: row[:0] for name, row in self._empty.items()}

    def __getitem__(self, name: str) -> Array:
        return self._columns[name]

    def reach(self, slots: Indices) -> None:
        """Make room for these slots."""
        have = len(next(iter(self._columns.values())))
        need = int(slots.max(initial=-1)) + 1
        if need > have:
            for name, row in self._empty.items():
                more = np.repeat(row, max(need, 2 * have) - have, axis=0)
                self._columns[name] = np.concatenate([self._columns[name], more])

    def forget(self, slots: Indices) -> None:
        """Set these slots back to the defaults."""
        self.reach(slots)
        for name, row in self._empty.items():
            self._columns[name][slots] = row


class SlotWindow:
    """The mean of the last `length` values by slot; a new slot starts without values."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._ring = [SlotColumns(value=0.0) for _ in range(length)]
        self._totals = SlotColumns(sum=0.0, count=0.0)
        self._turn = 0

    def push(self, slots: Indices, values: Array) -> Array:
        """Add a value for each slot; the mean of its last `length` values, or of all if fewer."""
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
        for memory in (*self._ring, self._totals):
            memory.forget(slots)


@dataclass(frozen=True, slots=True)
class Static:
    """Keeps every limit as it is."""

    name: str = "static"
    traps: bool = False
    saves: bool = False

    def target(self, period: CpuPeriod) -> Array:
        return np.array(period.limit)

    def forget(self, slots: Indices) -> None: ...
