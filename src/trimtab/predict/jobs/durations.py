"""How much work a job has left, learned from jobs that have ended.

The rule: the median remaining work of ended jobs of the same application that exceeded what this one has
done. The model: the same question asked of a mixture in which the most recent jobs of the same tenant, size
and user count most. Each level has n jobs and gets n / (n + 5) of the weight that finer levels have left over
(the predictive distribution of a hierarchical Dirichlet process). A guard chooses between the two. Ranges are
conformal: they come from the levels at which earlier truths fell. Everything is in the application's own
units of work, and follows from what has ended in which order.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trimtab.core import Estimate
from trimtab.predict.interval import conformal_rank

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Segments:
    """Ascending numbers in each of several segments, end to end; times `scale`, from 0 to below 1."""

    def __init__(self, parts: Sequence[Floats], scale: float = 1.0) -> None:
        sizes = np.array([len(part) for part in parts], dtype=np.int64)
        self.end = np.cumsum(sizes)
        self.start = self.end - sizes
        # Moved apart by their index, all of them are one ascending array.
        self._keys = np.concatenate(parts) * scale + np.repeat(np.arange(len(parts)), sizes)

    def find(self, segment: Ints, number: Floats, side: Literal["left", "right"] = "left") -> Ints:
        """Where each number, scaled already, belongs in its segment, counted from the start of all."""
        found: Ints = np.searchsorted(self._keys, segment + number, side=side)
        within: Ints = np.minimum(np.maximum(found, self.start[segment]), self.end[segment])
        return within


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
        self._found = Segments([_level_place(levels) for levels in seen])

    def quantile(self, record: Ints, passed: Floats, share: float) -> Floats:
        """The level below which a share of those truths stayed that were beyond `passed`."""
        start = self._found.start[record]
        begun = np.where(passed > 0.0, self._found.find(record, _level_place(passed), side="right"), start)
        count = self._found.end[record] - begun
        place = conformal_rank(count, share)
        known = (count >= _ENOUGH) & (place >= 1) & (place <= count)
        found = self._seen[np.where(known, begun + place - 1, len(self._seen) - 1)]
        return np.where(known, found, passed if share < 0.5 else 1.0)


def _level_place(level: Floats) -> Floats:
    """From 0 to 1."""
    return (level + _FARTHEST) / (2.0 * _FARTHEST + 1.0)


_ALL = 4096  # jobs of an application that count
_RECENT = 50  # jobs of a level that do
_TRIED = 20  # ended jobs both must have been tried on before the model may answer
_WIDER = 4.0  # how much wider the model's range may be than the rule's, as logarithms
_LIKE = 2.0  # factor beyond the smallest and largest gangs that ended


class JobFeatures(NamedTuple):
    """What is known of a job before it ends. Work of one application is in one unit."""

    application: str = ""
    tenant: str = ""
    gpus: float = 1.0
    user: str = ""

    @property
    def levels(self) -> tuple[tuple[object, ...], ...]:
        """Whom it resembles, from the many to the few."""
        levels: list[tuple[object, ...]] = [(self.tenant,), (self.tenant, self.gpus)]
        if self.user:
            levels.append((self.tenant, self.gpus, self.user))
        return tuple(levels)


@dataclass(frozen=True, slots=True, eq=False)
class WorkLeft:
    """For each job what is left, the range that holds it with the stated coverage, and who said so.

    NaN where no job of the application has ended.
    """

    value: Floats
    low: Floats
    high: Floats
    by_model: Flags


@dataclass(frozen=True, slots=True)
class GuardedLeft:
    """Both answers, the one that counts, and why it is that one."""

    estimate: Estimate
    rule: Estimate
    model: Estimate
    chosen_by: str
    reason: str


@dataclass
class _Application:
    """Ended jobs of one application: all, by level, and how rule and model have fared with them."""

    ended: Window = field(default_factory=lambda: Window(_ALL))
    by_level: dict[tuple[object, ...], Window] = field(default_factory=dict)
    rule: Record = field(default_factory=Record)
    model: Record = field(default_factory=Record)
    sizes: tuple[float, float] = (np.inf, 0.0)
    laws: dict[JobFeatures, tuple[tuple[int, ...], Law]] = field(default_factory=dict)

    def law(self, features: JobFeatures) -> Law:
        """What the model expects of such a job: at once when one of its own kind ends, else now and then."""
        known = [self.by_level[level] for level in features.levels if level in self.by_level]
        *coarse, finest = self.ended, *known
        state = (*(window.changes for window in coarse), finest.added)
        then, law = self.laws.get(features, ((), None))
        if law is None or then != state:
            law = mixed([*(window.steady for window in coarse), finest.sorted])
            self.laws[features] = (state, law)
        return law


class Durations:
    """What has ended, and what that says about those that have not. Deterministic; keeps the recent past."""

    def __init__(self, coverage: float = 0.9) -> None:
        self.coverage = coverage
        self._known: dict[str, _Application] = {}

    def ended(self, features: JobFeatures, work: float) -> None:
        """A job has ended after so much work: rule and model are scored on it, then learn from it."""
        if not 0.0 < work < np.inf:
            return
        known = self._known.setdefault(features.application, _Application())
        if len(known.ended):
            known.rule.score(known.ended.law(), work)
            known.model.score(known.law(features), work)
        known.ended.add(work)
        for level in features.levels:
            known.by_level.setdefault(level, Window(_RECENT)).add(work)
        known.sizes = (min(known.sizes[0], features.gpus), max(known.sizes[1], features.gpus))

    def left(self, features: JobFeatures, done: float) -> Estimate | None:
        """What a job that has done so much has left; None where no job of its application has ended."""
        answer = self.guarded(features, done)
        return answer.estimate if answer else None

    def guarded(self, features: JobFeatures, done: float) -> GuardedLeft | None:
        """Both answers and the choice."""
        known = self._known.get(features.application)
        if known is None:
            return None
        at = np.array([max(0.0, done)])
        rule, model = self._both([features], np.zeros(1, dtype=np.int64), at)
        doubt = _doubt(known, features)
        chosen, by_model = _choice(rule, model, at, np.array([doubt is not None]))
        reason = (doubt or (_Doubt.SCORE if by_model[0] else _Doubt.WIDE)).words(known, features)
        by = "model" if by_model[0] else "rule"
        return GuardedLeft(self._estimate(chosen), self._estimate(rule), self._estimate(model), by, reason)

    def left_many(self, features: Sequence[JobFeatures], done: Sequence[float] | Floats) -> WorkLeft:
        """The same for many jobs at once."""
        at = np.maximum(0.0, np.asarray(done, dtype=float))
        kinds = [each for each in dict.fromkeys(features) if each.application in self._known]
        place = {each: number for number, each in enumerate(kinds)}
        kind = np.array([place.get(each, -1) for each in features], dtype=np.int64)
        rows = np.flatnonzero(kind >= 0)
        value, low, high = (np.full(len(features), np.nan) for _ in range(3))
        by_model = np.zeros(len(features), dtype=bool)
        if rows.size:
            rule, model = self._both(kinds, kind[rows], at[rows])
            doubt = np.array([_doubt(self._known[each.application], each) is not None for each in kinds])
            answer, by_model[rows] = _choice(rule, model, at[rows], doubt[kind[rows]])
            value[rows], low[rows], high[rows] = answer
        return WorkLeft(value, low, high, by_model)

    def _both(self, kinds: Sequence[JobFeatures], kind: Ints, at: Floats) -> tuple[Answer, Answer]:
        """The answers of rule and model for jobs of these kinds."""
        names = {each.application: None for each in kinds}
        known = [self._known[name] for name in names]
        place = {name: number for number, name in enumerate(names)}
        application = np.array([place[each.application] for each in kinds])[kind]
        everyone = [each.ended.law() for each in known]
        rules, models = [each.rule for each in known], [each.model for each in known]
        laws = [self._known[each.application].law(each) for each in kinds]
        return (
            left(everyone, rules, application, application, at, self.coverage),
            left(laws, models, kind, application, at, self.coverage),
        )

    def _estimate(self, answer: Answer) -> Estimate:
        value, low, high = (float(column[0]) for column in answer)
        return Estimate(value, low, high, self.coverage, "units of work")


class _Doubt(Enum):
    """Why the model does not answer; SCORE is also why it does."""

    FEW = "only {tried} jobs of the application have put the model to the test"
    TENANT = "no job of this tenant has ended"
    SIZE = "jobs that ended had {least:g} to {most:g} accelerators, this one has {gpus:g}"
    WIDE = "the model's range is far wider than the rule's"
    SCORE = (
        "over the last {tried} jobs of the application the model was off by a factor of {model:.3g} on "
        "average, the rule by {rule:.3g}"
    )

    def words(self, known: _Application, features: JobFeatures) -> str:
        """As a sentence."""
        return self.value.format(
            tried=known.model.tried,
            least=known.sizes[0],
            most=known.sizes[1],
            gpus=features.gpus,
            model=np.exp(known.model.error),
            rule=np.exp(known.rule.error),
        )


def _doubt(known: _Application, features: JobFeatures) -> _Doubt | None:
    """Why the model should not answer for such a job; None if it may."""
    if known.model.tried < _TRIED:
        return _Doubt.FEW
    if features.levels[0] not in known.by_level:
        return _Doubt.TENANT
    if not known.sizes[0] / _LIKE <= features.gpus <= known.sizes[1] * _LIKE:
        return _Doubt.SIZE
    return None if known.model.error < known.rule.error else _Doubt.SCORE


def _choice(rule: Answer, model: Answer, at: Floats, doubt: Flags) -> tuple[Answer, Flags]:
    """The answers that count, and where they are the model's.

    The range holds what either says. What is submitted changes from week to week, and a range that was right
    for the jobs that ended is too narrow for those that come: together they keep what they promise.
    """
    ours, theirs = (np.log((at + high) / np.maximum(at + low, 1e-12)) for _, low, high in (model, rule))
    by_model = (ours <= _WIDER * theirs + 1e-9) & ~doubt
    value = np.where(by_model, model[0], rule[0])
    return (value, np.minimum(model[1], rule[1]), np.maximum(model[2], rule[2])), by_model
