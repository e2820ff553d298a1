"""Laws of how much work jobs have: weighted values, and what is left beyond a point."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.predict.jobs.durations.segments import Floats, Ints, Segments

Flags = NDArray[np.bool_]

_STRENGTH = 5.0  # jobs that weigh as much as all coarser levels together
_ATOMS = 256  # values that stand for all ended jobs of an application in a mixture
_GROWTH = 1.1  # factor by which a window has grown when those who look seldom look again
_WIDEST = 60.0  # logarithm of the most and the least work that is told apart


@dataclass(frozen=True, slots=True, eq=False)
class Law:
    """Values in ascending order, the share of jobs up to each, and their places for `Segments`."""

    values: Floats
    shares: Floats
    places: Floats

    @staticmethod
    def of(values: Floats, shares: Floats) -> "Law":
        """The law of these values."""
        return Law(values, shares, _place(values))

    def level(self, work: float) -> float:
        """Where `work` falls, from 0 to 1; beyond the ends it goes on by the logarithm of the ratio."""
        if work > self.values[-1]:
            return 1.0 + math.log(work / self.values[-1])
        if work < self.values[0]:
            return math.log(work / self.values[0])
        ends = np.searchsorted(self.values, (work, np.nextafter(work, np.inf)))
        below, up_to = (float(self.shares[end - 1]) if end else 0.0 for end in ends)
        return (below + up_to) / 2.0


class Laws:
    """Several laws, asked at once: every question names the law it is for."""

    def __init__(self, laws: Sequence[Law]) -> None:
        self._values = np.concatenate([law.values for law in laws])
        self._shares = np.concatenate([law.shares for law in laws])
        self._by_value = Segments([law.places for law in laws])
        self._by_share = Segments([law.shares for law in laws], scale=0.5)

    def at(self, law: Ints, level: Floats) -> Floats:
        """The work at a level: the other way round from `Law.level`."""
        inside = np.minimum(np.maximum(level, 0.0), 1.0) - 1e-12  # shares are sums, and sums are rounded
        index = np.minimum(self._by_share.find(law, inside / 2.0), self._by_share.end[law] - 1)
        beyond: Floats = np.exp(np.minimum(level, 0.0) + np.maximum(level - 1.0, 0.0))
        return self._values[index] * beyond

    def below(self, law: Ints, work: Floats) -> Floats:
        """The share of jobs that have no more than this."""
        index = self._by_value.find(law, _place(work), side="right")
        return np.where(index > self._by_value.start[law], self._shares[index - 1], 0.0)

    def past(self, law: Ints, done: Floats) -> Flags:
        """Whether no job had more than this."""
        return np.asarray(done >= self._values[self._by_value.end[law] - 1])

    def middle_left(self, law: Ints, done: Floats) -> Floats:
        """What the middle one of those that have more than `done` has left.

        Past them all, as much again as was done, and less where all were alike.
        """
        left = np.maximum(0.0, self.at(law, (1.0 + self.below(law, done)) / 2.0) - done)
        past = self.past(law, done)
        for each in np.unique(law[past]):
            values = self._values[self._by_value.start[each] : self._by_value.end[each]]
            spread = max(float(np.log(values).std()), 1e-3)
            rows = past & (law == each)
            left[rows] = done[rows] * math.expm1(min(math.log(2.0), spread))
        return left


class Window:
    """The most recent of some numbers, in ascending order.

    `steady` is how they were when last a tenth more had come than the time before, for those who need not
    hear of every single one; `changes` counts these times.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.added = 0
        self.changes = 0
        self.sorted: Floats = np.empty(0)
        self.steady: Floats = self.sorted
        self._next_change = 1.0
        self._order: deque[float] = deque()
        self._law: Law | None = None

    def __len__(self) -> int:
        return len(self._order)

    def add(self, number: float) -> None:
        """One more; the oldest goes where there are too many."""
        self.added += 1
        self._law = None
        self._order.append(number)
        place = int(self.sorted.searchsorted(number))
        self.sorted = np.concatenate((self.sorted[:place], (number,), self.sorted[place:]))
        if len(self._order) > self.size:
            place = int(self.sorted.searchsorted(self._order.popleft()))
            self.sorted = np.concatenate((self.sorted[:place], self.sorted[place + 1 :]))
        if self.added >= self._next_change:
            self.steady = self.sorted
            self.changes += 1
            self._next_change = min(_GROWTH * self.added, self.added + _GROWTH * self.size - self.size)

    def law(self) -> Law:
        """All of them alike."""
        if self._law is None:
            self._law = Law.of(self.sorted, np.arange(1, len(self) + 1) / len(self))
        return self._law


def mixed(levels: Sequence[Floats]) -> Law:
    """A mixture of levels from everyone to the few, each with a share by how many it has."""
    everyone = levels[0]
    if len(everyone) > _ATOMS:
        everyone = everyone[np.linspace(0, len(everyone) - 1, _ATOMS).astype(int)]
    weights, rest = [], 1.0
    for level in reversed(levels[1:]):
        share = rest * len(level) / (len(level) + _STRENGTH)
        weights.append(np.full(len(level), share / len(level)))
        rest -= share
    weights.append(np.full(len(everyone), rest / len(everyone)))
    together, weight = np.concatenate((*reversed(levels[1:]), everyone)), np.concatenate(weights)
    order = np.argsort(together, kind="stable")
    shares = np.cumsum(weight[order])
    return Law.of(together[order], shares / shares[-1])


def _place(work: Floats) -> Floats:
    """From 0 to 1 by the logarithm."""
    log = np.log(np.maximum(work, math.exp(-_WIDEST)))
    return np.minimum(log + _WIDEST, 2.0 * _WIDEST) / (2.0 * _WIDEST + 1.0)
