"""How much work a job has left, learned from jobs that have ended.

The rule: of the ended jobs of the same application, those that had more to do than this one has done; the
middle one. The model: the same question asked of a mixture in which the most recent jobs of the same tenant,
size and user count most. Each level has n jobs and gets n / (n + 5) of what the finer ones have left over, so
who is known well is judged by its own (the predictive law of a hierarchical Dirichlet process). A guard lets
one of the two answer. Ranges are conformal: they come from where earlier truths fell among the expected.
Everything is in the application's own units of work, and follows from what has ended in which order.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import numpy as np

from trimtab.core import Estimate
from trimtab.predict.jobs.durations.law import Flags, Law, Window, mixed
from trimtab.predict.jobs.durations.record import Answer, Record, left
from trimtab.predict.jobs.durations.segments import Floats, Ints

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
