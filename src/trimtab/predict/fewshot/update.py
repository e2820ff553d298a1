"""A new version of the weights from recorded outcomes, made current only if it does no worse.

The predictor of every data set that has new outcomes is fitted again, to the cases it once learned from and
to the user's. Before, old and new are compared on the same questions about applications that neither was
fitted to: some of the replayed ones, and the user's own as they were asked. "Worse" is an error that rose by
more than two standard errors of the difference between the two.
"""

import getpass
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trimtab.core import Clock, MissingDependencyError, RealClock, to_plain
from trimtab.predict.backtest import random_folds
from trimtab.predict.fewshot.blend import FittedBlend
from trimtab.predict.fewshot.case import Array, Case
from trimtab.predict.fewshot.forest import FittedForestPredictor
from trimtab.predict.fewshot.foundation import Foundation, replayed, shipped_foundation
from trimtab.predict.fewshot.outcomes import (
    Example,
    OutcomeRecord,
    asked_in,
    believable,
    catch_up,
    examples,
    measured_in,
)
from trimtab.predict.fewshot.predictor import Fitted, Rows
from trimtab.predict.fewshot.versions import Versions, version_name
from trimtab.store import Store

MODEL_EVENT = "model"  # the kind of event that says a version was made, or refused

_FOLDS = 3
_MOST_REPLAYED = 120  # applications in the comparison, so that it takes no longer than the fit
_STANDARD_ERRORS = 2.0

# Called before each step with what is being done.
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, eq=False)
class UpdatePlan:
    """Examples to learn from by data set, those that the weights have had, and new outcomes."""

    foundation: Foundation
    examples: Mapping[str, Sequence[Example]]
    before: Mapping[str, Sequence[Example]]
    outcomes: tuple[OutcomeRecord, ...]
    new: tuple[OutcomeRecord, ...]
    doubtful: tuple[OutcomeRecord, ...]  # too far from what was predicted to be true

    @property
    def corpora(self) -> tuple[str, ...]:
        """The data sets that have something new."""
        return tuple(
            name
            for name in self.examples
            if _measurements(self.examples, name) != _measurements(self.before, name)
        )


@dataclass(frozen=True, slots=True)
class WeightsComparison:
    """Mean absolute percentage errors of the weights before and after, on the same questions."""

    corpus: str
    about: str
    applications: int
    old: float
    new: float
    allowed: float  # how much more than the old error chance explains
    rule: float | None = None  # of the best rule, on the same questions

    @property
    def worse(self) -> bool:
        return self.new - self.old > self.allowed


@dataclass(frozen=True, slots=True)
class Update:
    """Result of an update: the name of the new version, or None where the old one stays."""

    version: str | None
    comparisons: tuple[WeightsComparison, ...]
    removed: tuple[str, ...] = ()


def plan_update(store: Store, foundation: Foundation) -> UpdatePlan:
    """Plan to learn from outcomes in the store that these weights have not learned from."""
    events = catch_up(store)
    asked = asked_in(events)
    decisions = {each.decision for each in asked}
    outcomes = tuple(one for one in measured_in(events) if one.decision in decisions)
    had = set(foundation.card.get("version", {}).get("outcomes", ()))
    usable = tuple(one for one in outcomes if believable(one))
    return UpdatePlan(
        foundation=foundation,
        examples=examples(asked, usable, foundation),
        before=examples(asked, [one for one in usable if one.key in had], foundation),
        outcomes=usable,
        new=tuple(one for one in usable if one.key not in had),
        doubtful=tuple(one for one in outcomes if not believable(one)),
    )


def update_weights(
    store: Store,
    plan: UpdatePlan,
    versions: Versions,
    progress: Progress = lambda step: None,
    clock: Clock | None = None,
    base: Foundation | None = None,
) -> Update:
    """Compare, and if nothing got worse fit, write and make current; `base` is what is replayed from.

    The caller holds `versions.alone()` and has made sure that the plan has something new.
    """
    now = (clock or RealClock()).now()
    base = base or shipped_foundation()
    parent = version_name(plan.foundation)
    for corpus in plan.corpora:
        _need_forests(plan.foundation.predictors[corpus])
    replays = {corpus: replayed(corpus, base) for corpus in plan.corpora}
    comparisons = tuple(
        comparison
        for corpus, cases in replays.items()
        for comparison in compare_weights(plan, corpus, cases, progress)
    )
    about = {"parent": parent, "comparisons": to_plain(comparisons)}
    if any(comparison.worse for comparison in comparisons):
        store.events.append(MODEL_EVENT, parent, {"refused": True, **about}, now)
        return Update(None, comparisons)
    predictors = {**base.predictors, **plan.foundation.predictors}
    for corpus, cases in replays.items():
        progress(f"learning from {corpus}")
        mine = [example.case for example in plan.examples[corpus]]
        predictors[corpus] = refitted(predictors[corpus], [*cases, *mine])
    card = {**base.card, "version": {**about, **_origin(plan, now)}}
    name = versions.add(replace(plan.foundation, predictors=predictors, card=card))
    versions.make_current(name, now)
    store.events.append(MODEL_EVENT, name, {"refused": False, **about}, now)
    return Update(name, comparisons, versions.prune())


def refitted(fitted: FittedBlend, cases: Sequence[Case]) -> FittedBlend:
    """A blend with its members fitted to these cases.

    Shares, margins and backtest stay: they come from many more applications than a user has. Its rules
    follow when it is written and read again.
    """
    return replace(fitted, members=tuple(member.refit(cases) for member in fitted.members))


def compare_weights(
    plan: UpdatePlan, corpus: str, replay: Sequence[Case], progress: Progress, seed: int = 0
) -> list[WeightsComparison]:
    """Old and new without the applications that they are asked about, fold by fold."""
    fitted = plan.foundation.predictors[corpus]
    cases = _some(replay, seed)
    mine = plan.examples[corpus]
    before = [example.case for example in plan.before.get(corpus, ())]
    after = [example.case for example in mine]
    on_replayed, on_mine = dict[str, list[Array]](), dict[str, list[Array]]()
    for number, group in enumerate(_folds(cases, after, seed), 1):
        progress(f"comparing old and new on {corpus}, {number} of {_FOLDS}")
        rest = [case for case in cases if case.application not in group]
        old, new = _arms(fitted, rest, _outside(before, group), _outside(after, group))
        for case in cases:
            if case.application in group:
                for known in _questions(case, seed):
                    targets = np.setdiff1d(np.arange(len(case)), known)
                    errors = _errors((old, new), case, known, targets)
                    on_replayed.setdefault(case.application, []).append(errors)
        for example in mine:
            if example.case.application in group:
                for known, target in example.tests:
                    errors = _errors((old, new), example.case, known, np.array([target]))
                    on_mine.setdefault(example.case.application, []).append(errors)
    replayed_errors = _by_application(on_replayed)
    noise = _deviation(replayed_errors)
    found = [_comparison(corpus, "replayed applications", replayed_errors, noise)]
    if on_mine:
        errors = _by_application(on_mine)
        mine_noise = max(noise, _deviation(errors))
        told = _comparison(corpus, "your outcomes", errors, mine_noise)
        found.append(replace(told, rule=_best_rule_error(fitted, mine)))
    return found


def _measurements(found: Mapping[str, Sequence[Example]], corpus: str) -> list[tuple[str, dict[str, float]]]:
    """Measured seconds of the examples, to compare them with earlier ones."""
    return [
        (each.case.label, dict(zip(each.case.configurations, each.case.seconds.tolist(), strict=True)))
        for each in found.get(corpus, ())
    ]


def _origin(plan: UpdatePlan, now: float) -> dict[str, object]:
    try:
        by = getpass.getuser()
    except (KeyError, OSError):
        by = "unknown"
    return {
        "made": now,
        "by": by,
        "outcomes": [one.key for one in plan.outcomes],
        "applications": {corpus: len(each) for corpus, each in plan.examples.items()},
    }


def _arms(
    fitted: FittedBlend, rest: Sequence[Case], before: Sequence[Case], after: Sequence[Case]
) -> tuple[FittedBlend, FittedBlend]:
    """Both predictors; where nothing is new in this fold they are the same one."""
    old = refitted(fitted, [*rest, *before])
    same = [case.label for case in before] == [case.label for case in after] and all(
        np.array_equal(one.seconds, other.seconds) for one, other in zip(before, after, strict=True)
    )
    return old, old if same else refitted(fitted, [*rest, *after])


def _outside(cases: Sequence[Case], group: frozenset[str]) -> list[Case]:
    return [case for case in cases if case.application not in group]


def _some(replay: Sequence[Case], seed: int) -> list[Case]:
    """The cases of at most so many applications."""
    applications = sorted({case.application for case in replay})
    chosen = set(np.random.default_rng(seed).permutation(applications)[:_MOST_REPLAYED].tolist())
    return [case for case in replay if case.application in chosen]


def _folds(cases: Sequence[Case], mine: Sequence[Case], seed: int) -> Iterator[frozenset[str]]:
    """Groups of applications, the replayed and the user's spread over them alike."""
    random = np.random.default_rng(seed)
    parts = [random_folds([case.application for case in part], _FOLDS, random) for part in (cases, mine)]
    for number in range(_FOLDS):
        yield frozenset(name for folds in parts for name in (folds[number] if number < len(folds) else ()))


def _questions(case: Case, seed: int) -> Iterator[Rows]:
    """One to three known runs, drawn by the case's name alone."""
    random = np.random.default_rng([seed, *case.label.encode()])
    for shots in range(1, min(4, len(case))):
        yield np.sort(random.choice(len(case), shots, replace=False))


def _errors(arms: Sequence[Fitted], case: Case, known: Rows, targets: Rows) -> Array:
    """The mean absolute percentage error of each."""
    seen, truth = case.seen_at(known), case.seconds[targets]
    return np.array([np.abs(arm.predict(seen, known)[targets] / truth - 1.0).mean() for arm in arms])


def _by_application(found: Mapping[str, Sequence[Array]]) -> Array:
    """A row of old and new error for each."""
    return np.array([np.mean(errors, axis=0) for errors in found.values()])


def _deviation(errors: Array) -> float:
    return float((errors[:, 1] - errors[:, 0]).std(ddof=1)) if len(errors) > 1 else 0.0


def _comparison(corpus: str, about: str, errors: Array, deviation: float) -> WeightsComparison:
    old, new = errors.mean(axis=0).tolist()
    allowed = _STANDARD_ERRORS * deviation / len(errors) ** 0.5
    return WeightsComparison(corpus, about, len(errors), old, new, allowed)


def _best_rule_error(fitted: FittedBlend, mine: Sequence[Example]) -> float:
    """On the user's outcomes, that of the rule which does best on them."""
    return min(
        float(
            np.mean(
                [
                    _errors((rule,), example.case, known, np.array([target]))
                    for example in mine
                    for known, target in example.tests
                ]
            )
        )
        for rule in fitted.rules.values()
    )


def _need_forests(fitted: FittedBlend) -> None:
    """Say at once that trees cannot be grown, and not after a minute."""
    if any(isinstance(member, FittedForestPredictor) for member in fitted.members):
        try:
            import sklearn  # noqa: F401
        except ImportError:
            raise MissingDependencyError(
                "learning from outcomes of functions needs scikit-learn; pip install 'trimtab[learn]'"
            ) from None
