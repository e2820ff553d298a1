"""Remaining work of jobs, learned from jobs that have ended.

The rule: the median remaining work of ended jobs of the same application that exceeded the work done by this
one. The model: the same median in a mixture in which the most recent jobs of the same tenant, size and user
count most. Each level has n jobs and gets n / (n + 5) of the weight that finer levels leave over (the
predictive distribution of a hierarchical Dirichlet process). A guard chooses between the two. Intervals are
conformal: they come from the levels at which earlier truths fell. Everything is in the application's own
units of work, and follows from the order in which jobs ended.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trimtab.core import Estimate
from trimtab.predict.guard import MODEL, RULE, Ground, Verdict, judge, lost_backtest
from trimtab.predict.interval import conformal_rank

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

_STRENGTH = 5.0  # jobs that weigh as much as all coarser levels together
_ATOMS = 256  # values that stand for all ended jobs of an application in a mixture
_GROWTH = 1.1  # factor by which a window has grown when `steady` is renewed
_WIDEST = 60.0  # logarithm of the most and the least work that is distinguished


class Segments:
    """Ascending numbers in each of several segments, end to end; times `scale`, from 0 to below 1."""

    def __init__(self, parts: Sequence[Floats], scale: float = 1.0) -> None:
        sizes = np.array([len(part) for part in parts], dtype=np.int64)
        self.end = np.cumsum(sizes)
        self.start = self.end - sizes
        # Moved apart by their index, all of them are one ascending array.
        self._keys = np.concatenate(parts) * scale + np.repeat(np.arange(len(parts)), sizes)

    def find(self, segment: Ints, number: Floats, side: Literal["left", "right"] = "left") -> Ints:
        """Insertion point of each number, already scaled, in its segment, counted from the start of all."""
        place: Ints = np.searchsorted(self._keys, segment + number, side=side)
        within: Ints = np.minimum(np.maximum(place, self.start[segment]), self.end[segment])
        return within


@dataclass(frozen=True, slots=True, eq=False)
class WorkDistribution:
    """Values in ascending order, the share of jobs up to each, and their places for `Segments`."""

    values: Floats
    shares: Floats
    places: Floats

    @staticmethod
    def of(values: Floats, shares: Floats) -> "WorkDistribution":
        return WorkDistribution(values, shares, _place(values))

    def level(self, work: float) -> float:
        """Level of `work`, from 0 to 1; beyond the ends it goes on by the logarithm of the ratio."""
        if work > self.values[-1]:
            return 1.0 + math.log(work / self.values[-1])
        if work < self.values[0]:
            return math.log(work / self.values[0])
        ends = np.searchsorted(self.values, (work, np.nextafter(work, np.inf)))
        below, up_to = (float(self.shares[end - 1]) if end else 0.0 for end in ends)
        return (below + up_to) / 2.0


class WorkDistributions:
    """Several distributions, evaluated at once: every row of an argument names its distribution by index."""

    def __init__(self, parts: Sequence[WorkDistribution]) -> None:
        self._values = np.concatenate([part.values for part in parts])
        self._shares = np.concatenate([part.shares for part in parts])
        self._by_value = Segments([part.places for part in parts])
        self._by_share = Segments([part.shares for part in parts], scale=0.5)

    def at(self, index: Ints, level: Floats) -> Floats:
        """The work at a level: inverse of `WorkDistribution.level`."""
        inside = np.minimum(np.maximum(level, 0.0), 1.0) - 1e-12  # shares are sums, and sums are rounded
        place = np.minimum(self._by_share.find(index, inside / 2.0), self._by_share.end[index] - 1)
        beyond: Floats = np.exp(np.minimum(level, 0.0) + np.maximum(level - 1.0, 0.0))
        return self._values[place] * beyond

    def below(self, index: Ints, work: Floats) -> Floats:
        """The share of jobs that have no more than this."""
        place = self._by_value.find(index, _place(work), side="right")
        return np.where(place > self._by_value.start[index], self._shares[place - 1], 0.0)

    def past(self, index: Ints, done: Floats) -> Flags:
        """True where no job had more than this."""
        return np.asarray(done >= self._values[self._by_value.end[index] - 1])

    def median_left(self, index: Ints, done: Floats) -> Floats:
        """Median remaining work of jobs that exceed `done`.

        Past all of them, as much again as was done, and less where all were alike.
        """
        left = np.maximum(0.0, self.at(index, (1.0 + self.below(index, done)) / 2.0) - done)
        past = self.past(index, done)
        for part in np.unique(index[past]):
            values = self._values[self._by_value.start[part] : self._by_value.end[part]]
            spread = max(float(np.log(values).std()), 1e-3)
            rows = past & (index == part)
            left[rows] = done[rows] * math.expm1(min(math.log(2.0), spread))
        return left


class Window:
    """The most recent numbers, in ascending order.

    `steady` is a copy that is renewed when a tenth more have come since the last time, for readers that need
    not see every single one; `changes` counts the renewals.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.added = 0
        self.changes = 0
        self.sorted: Floats = np.empty(0)
        self.steady: Floats = self.sorted
        self._next_change = 1.0
        self._order: deque[float] = deque()
        self._distribution: WorkDistribution | None = None

    def __len__(self) -> int:
        return len(self._order)

    def add(self, number: float) -> None:
        """Add a number; beyond `size` the oldest is dropped."""
        self.added += 1
        self._distribution = None
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

    def distribution(self) -> WorkDistribution:
        """All numbers with equal weight."""
        if self._distribution is None:
            shares = np.arange(1, len(self) + 1) / len(self)
            self._distribution = WorkDistribution.of(self.sorted, shares)
        return self._distribution


def mixed(levels: Sequence[Floats]) -> WorkDistribution:
    """Mixture of levels from the coarsest to the finest, each with a share by its number of values."""
    coarsest = levels[0]
    if len(coarsest) > _ATOMS:
        coarsest = coarsest[np.linspace(0, len(coarsest) - 1, _ATOMS).astype(int)]
    weights, rest = [], 1.0
    for level in reversed(levels[1:]):
        share = rest * len(level) / (len(level) + _STRENGTH)
        weights.append(np.full(len(level), share / len(level)))
        rest -= share
    weights.append(np.full(len(coarsest), rest / len(coarsest)))
    values = np.concatenate((*reversed(levels[1:]), coarsest))
    order = np.argsort(values, kind="stable")
    shares = np.cumsum(np.concatenate(weights)[order])
    return WorkDistribution.of(values[order], shares / shares[-1])


def _place(work: Floats) -> Floats:
    """The logarithm, scaled to 0 to below 1."""
    log = np.log(np.maximum(work, math.exp(-_WIDEST)))
    return np.minimum(log + _WIDEST, 2.0 * _WIDEST) / (2.0 * _WIDEST + 1.0)


_JUDGED = 300  # ended jobs that count in the backtest
_REMEMBERED = 4000  # and in the intervals
_ENOUGH = 20  # of them at least; with fewer, an interval is the range of all
_FARTHEST = 50.0  # logarithms by which a distribution goes on beyond its ends

Answer = tuple[Floats, Floats, Floats]
"""Remaining work, and the low and high end of its interval."""


@dataclass
class Record:
    """Levels at which recent truths fell in the distribution before them, and its error.

    `error` is the mean absolute logarithm of predicted over true remaining work, at start and half way.
    """

    levels: Window = field(default_factory=lambda: Window(_REMEMBERED))
    errors: deque[float] = field(default_factory=lambda: deque(maxlen=_JUDGED))
    error: float = math.inf

    def score(self, distribution: WorkDistribution, work: float) -> None:
        """Compare with the truth."""
        self.levels.add(min(max(distribution.level(work), -_FARTHEST), _FARTHEST))
        done = np.array([0.0, work / 2.0])
        left = WorkDistributions([distribution]).median_left(np.zeros(2, dtype=np.int64), done)
        self.errors.append(float(np.abs(np.log(np.maximum(left, 1e-9 * work) / (work - done))).mean()))
        self.error = sum(self.errors) / len(self.errors)


def left(
    distributions: Sequence[WorkDistribution],
    records: Sequence[Record],
    index: Ints,
    record: Ints,
    done: Floats,
    coverage: float,
) -> Answer:
    """Remaining work of jobs after `done`, with intervals; `index` and `record` are each job's."""
    together, levels = WorkDistributions(distributions), _Levels(records)
    tail = (1.0 - coverage) / 2.0
    value = together.median_left(index, done)
    passed = together.below(index, done)
    low = together.at(index, levels.quantile(record, passed, tail)) - done
    high = together.at(index, levels.quantile(record, passed, 1.0 - tail)) - done
    # Past all others nothing is known: the ends of the Pareto distribution whose median is "as much again".
    past, odds = together.past(index, done), tail / (1.0 - tail)
    low = np.where(past, value * odds, np.minimum(np.maximum(low, 0.0), value))
    return value, low, np.where(past, value / odds, np.maximum(high, value))


class _Levels:
    """The levels of several records, evaluated at once."""

    def __init__(self, records: Sequence[Record]) -> None:
        levels = [record.levels.sorted for record in records]
        self._levels = np.concatenate([*levels, [0.0]])  # the last is never read: a safe index
        self._segments = Segments([_level_place(part) for part in levels])

    def quantile(self, record: Ints, passed: Floats, share: float) -> Floats:
        """The level below which a share of the truths beyond `passed` stayed."""
        segments = self._segments
        after = segments.find(record, _level_place(passed), side="right")
        start = np.where(passed > 0.0, after, segments.start[record])
        count = segments.end[record] - start
        rank = conformal_rank(count, share)
        known = (count >= _ENOUGH) & (rank >= 1) & (rank <= count)
        level = self._levels[np.where(known, start + rank - 1, len(self._levels) - 1)]
        return np.where(known, level, passed if share < 0.5 else 1.0)


def _level_place(level: Floats) -> Floats:
    """The level, scaled to 0 to below 1."""
    return (level + _FARTHEST) / (2.0 * _FARTHEST + 1.0)


_ALL = 4096  # jobs of an application that count
_RECENT = 50  # jobs of a level that do
_TRIED = 20  # ended jobs that the backtest needs before the model may answer
_WIDER = 4.0  # how much wider the model's interval may be than the rule's, as logarithms
_LIKE = 2.0  # factor beyond the smallest and largest gangs that ended


class JobFeatures(NamedTuple):
    """Features of a job that are known before it ends. Work of one application is in one unit."""

    application: str = ""
    tenant: str = ""
    gpus: float = 1.0
    user: str = ""

    @property
    def levels(self) -> tuple[tuple[object, ...], ...]:
        """Keys of the groups it belongs to, from coarse to fine."""
        levels: tuple[tuple[object, ...], ...] = ((self.tenant,), (self.tenant, self.gpus))
        return (*levels, (self.tenant, self.gpus, self.user)) if self.user else levels


@dataclass(frozen=True, slots=True, eq=False)
class WorkLeft:
    """Remaining work of each job, its interval with the stated coverage, and where it is the model's answer.

    NaN where no job of the application has ended.
    """

    value: Floats
    low: Floats
    high: Floats
    by_model: Flags


@dataclass(frozen=True, slots=True)
class GuardedLeft:
    """Both answers, the chosen one, and the reason for the choice."""

    estimate: Estimate
    rule: Estimate
    model: Estimate
    chosen_by: str
    reason: str


@dataclass
class _Application:
    """Ended jobs of one application: all, by level, and the records of rule and model."""

    ended: Window = field(default_factory=lambda: Window(_ALL))
    by_level: dict[tuple[object, ...], Window] = field(default_factory=dict)
    rule: Record = field(default_factory=Record)
    model: Record = field(default_factory=Record)
    sizes: tuple[float, float] = (np.inf, 0.0)
    mixtures: dict[JobFeatures, tuple[tuple[int, ...], WorkDistribution]] = field(default_factory=dict)

    def mixture(self, features: JobFeatures) -> WorkDistribution:
        """The model's distribution: renewed when a job of the finest level ends, for coarser ones rarely."""
        levels = [self.by_level[level] for level in features.levels if level in self.by_level]
        *coarse, finest = self.ended, *levels
        state = (*(window.changes for window in coarse), finest.added)
        before, mixture = self.mixtures.get(features, ((), None))
        if mixture is None or before != state:
            mixture = mixed([*(window.steady for window in coarse), finest.sorted])
            self.mixtures[features] = (state, mixture)
        return mixture


# Reasons of the guard, filled in for one job.
_FEW = "only {tried} jobs of the application have put the model to the test"
_NEW_TENANT = "no job of this tenant has ended"
_SIZE = "jobs that ended had {least:g} to {most:g} accelerators, this one has {gpus:g}"
_WIDE = "the model's range is far wider than the rule's"
_SCORE = (
    "over the last {tried} jobs of the application the model was off by a factor of {model:.3g} on average, "
    "the rule by {rule:.3g}"
)


class Durations:
    """Learns from jobs that ended and predicts the remaining work of others. Deterministic."""

    def __init__(self, coverage: float = 0.9) -> None:
        self.coverage = coverage
        self._known: dict[str, _Application] = {}

    def ended(self, features: JobFeatures, work: float) -> None:
        """Record a job that ended after so much work: rule and model are scored on it, then learn from it."""
        if not 0.0 < work < np.inf:
            return
        known = self._known.setdefault(features.application, _Application())
        if len(known.ended):
            known.rule.score(known.ended.distribution(), work)
            known.model.score(known.mixture(features), work)
        known.ended.add(work)
        for level in features.levels:
            known.by_level.setdefault(level, Window(_RECENT)).add(work)
        known.sizes = (min(known.sizes[0], features.gpus), max(known.sizes[1], features.gpus))

    def left(self, features: JobFeatures, done: float) -> Estimate | None:
        """Remaining work of a job after `done`; None where no job of its application has ended."""
        answer = self.guarded(features, done)
        return answer.estimate if answer else None

    def guarded(self, features: JobFeatures, done: float) -> GuardedLeft | None:
        """Both answers and the choice; None where no job of its application has ended."""
        known = self._known.get(features.application)
        if known is None:
            return None
        at = np.array([max(0.0, done)])
        rule, model, chosen, verdict = self._answers([features], np.zeros(1, dtype=np.int64), at)
        reason = verdict.why().format(
            tried=len(known.model.errors),
            least=known.sizes[0],
            most=known.sizes[1],
            gpus=features.gpus,
            model=np.exp(known.model.error),
            rule=np.exp(known.rule.error),
        )
        estimates = []
        for answer in (chosen, rule, model):
            value, low, high = (float(column[0]) for column in answer)
            estimates.append(Estimate(value, low, high, self.coverage, "units of work"))
        return GuardedLeft(estimates[0], estimates[1], estimates[2], verdict.chosen_by(), reason)

    def left_many(self, features: Sequence[JobFeatures], done: Sequence[float] | Floats) -> WorkLeft:
        """Remaining work of many jobs at once."""
        at = np.maximum(0.0, np.asarray(done, dtype=float))
        kinds = [kind for kind in dict.fromkeys(features) if kind.application in self._known]
        place = {kind: number for number, kind in enumerate(kinds)}
        index = np.array([place.get(job, -1) for job in features], dtype=np.int64)
        rows = np.flatnonzero(index >= 0)
        value, low, high = (np.full(len(features), np.nan) for _ in range(3))
        by_model = np.zeros(len(features), dtype=bool)
        if rows.size:
            *_, (value[rows], low[rows], high[rows]), verdict = self._answers(kinds, index[rows], at[rows])
            by_model[rows] = verdict.by_model
        return WorkLeft(value, low, high, by_model)

    def _answers(
        self, kinds: Sequence[JobFeatures], index: Ints, at: Floats
    ) -> tuple[Answer, Answer, Answer, Verdict]:
        """Answers of rule, of model and of the guard for jobs of these kinds, and the guard's verdict.

        The chosen interval holds those of both. The jobs that are submitted change from week to week, and an
        interval that was right for the jobs that ended is too narrow for new ones: together they cover.
        """
        numbers = {name: number for number, name in enumerate(dict.fromkeys(k.application for k in kinds))}
        known = [self._known[name] for name in numbers]
        of_kind = [numbers[kind.application] for kind in kinds]
        application = np.array(of_kind)[index]
        pairs = [(known[number], kind) for number, kind in zip(of_kind, kinds, strict=True)]
        everyone = [jobs.ended.distribution() for jobs in known]
        mixtures = [jobs.mixture(kind) for jobs, kind in pairs]
        rule = left(everyone, [jobs.rule for jobs in known], application, application, at, self.coverage)
        model = left(mixtures, [jobs.model for jobs in known], index, application, at, self.coverage)
        wide, rule_wide = (
            np.log((at + high) / np.maximum(at + low, 1e-12)) for _, low, high in (model, rule)
        )
        new_tenant = np.array([kind.levels[0] not in jobs.by_level for jobs, kind in pairs])
        other_size = np.array(
            [not jobs.sizes[0] / _LIKE <= kind.gpus <= jobs.sizes[1] * _LIKE for jobs, kind in pairs]
        )
        few = np.array([len(jobs.model.errors) < _TRIED for jobs in known])
        errors = np.array([(jobs.model.error, jobs.rule.error) for jobs in known])[application]
        verdict = judge(
            (
                Ground(RULE, _FEW, few[application]),
                Ground(RULE, _NEW_TENANT, new_tenant[index]),
                Ground(RULE, _SIZE, other_size[index]),
                lost_backtest(errors[:, 0], errors[:, 1], _SCORE),
                Ground(RULE, _WIDE, wide > _WIDER * rule_wide + 1e-9),
                Ground(MODEL, _SCORE),
            ),
            len(at),
        )
        value = np.where(verdict.by_model, model[0], rule[0])
        chosen = value, np.minimum(model[1], rule[1]), np.maximum(model[2], rule[2])
        return rule, model, chosen, verdict
