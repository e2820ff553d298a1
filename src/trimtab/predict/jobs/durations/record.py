"""How a law of work has fared with jobs it had not learned from, and the ranges that follow."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from trimtab.predict.jobs.durations.law import Law, Laws, Window
from trimtab.predict.jobs.durations.segments import Floats, Ints, Segments

_JUDGED = 300  # ended jobs by which a law is judged
_REMEMBERED = 4000  # and whose levels make its ranges
_ENOUGH = 20  # of them at least; with fewer, a range is all that was seen
_FARTHEST = 50.0  # beyond its ends a law goes on by so many logarithms

Answer = tuple[Floats, Floats, Floats]
"""What is left, and the low and high end of its range."""


@dataclass
class Record:
    """Levels at which recent truths fell in the law as it was before them, and how far it was off.

    `error` is the mean absolute logarithm of what was said to be left over what was, at start and half way.
    """

    levels: Window = field(default_factory=lambda: Window(_REMEMBERED))
    errors: deque[float] = field(default_factory=lambda: deque(maxlen=_JUDGED))
    error: float = math.inf

    @property
    def tried(self) -> int:
        """On how many of the recent jobs."""
        return len(self.errors)

    def score(self, law: Law, work: float) -> None:
        """Compare with the truth."""
        self.levels.add(min(max(law.level(work), -_FARTHEST), _FARTHEST))
        done = np.array([0.0, work / 2.0])
        said = np.maximum(Laws([law]).middle_left(np.zeros(2, dtype=np.int64), done), 1e-9 * work)
        self.errors.append(float(np.abs(np.log(said / (work - done))).mean()))
        self.error = sum(self.errors) / len(self.errors)


def left(
    laws: Sequence[Law], records: Sequence[Record], law: Ints, record: Ints, done: Floats, coverage: float
) -> Answer:
    """What is left of jobs that have done so much, and ranges with the stated coverage.

    Each job has a law and a record, by index.
    """
    all_laws = Laws(laws)
    levels = _Levels(records)
    tail = (1.0 - coverage) / 2.0
    value = all_laws.middle_left(law, done)
    passed = all_laws.below(law, done)
    low = all_laws.at(law, levels.quantile(record, passed, tail)) - done
    high = all_laws.at(law, levels.quantile(record, passed, 1.0 - tail)) - done
    # Past all others nothing is known: the ends of Pareto's law whose middle is "as much again".
    past, odds = all_laws.past(law, done), tail / (1.0 - tail)
    low = np.where(past, value * odds, np.minimum(np.maximum(low, 0.0), value))
    return value, low, np.where(past, value / odds, np.maximum(high, value))


class _Levels:
    """The levels of several records, asked at once."""

    def __init__(self, records: Sequence[Record]) -> None:
        seen = [record.levels.sorted for record in records]
        self._seen = np.concatenate([*seen, [0.0]])  # never asked for: an index that is always there
        self._found = Segments([_place(levels) for levels in seen])

    def quantile(self, record: Ints, passed: Floats, share: float) -> Floats:
        """The level below which a share of those truths stayed that were beyond `passed`."""
        start = self._found.start[record]
        begun = np.where(passed > 0.0, self._found.find(record, _place(passed), side="right"), start)
        count = self._found.end[record] - begun
        rank = share * (count + 1)
        place = (np.floor(rank) if share < 0.5 else np.ceil(rank)).astype(np.int64)
        known = (count >= _ENOUGH) & (place >= 1) & (place <= count)
        found = self._seen[np.where(known, begun + place - 1, len(self._seen) - 1)]
        return np.where(known, found, passed if share < 0.5 else 1.0)


def _place(level: Floats) -> Floats:
    """From 0 to 1."""
    return (level + _FARTHEST) / (2.0 * _FARTHEST + 1.0)
