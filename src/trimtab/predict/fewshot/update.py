"""A new version of the weights from recorded outcomes, made current only if it is not worse.

The predictor of every data set that has new outcomes is fitted again, to the cases it once learned from and
to the user's. Before, old and new are compared on the same predictions for applications that neither was
fitted to: some of the replayed ones, and the user's own requests. "Worse" is an error that rose by more than
two standard errors of the difference between the two.
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
    believable,
    catch_up,
    examples,
    measured_in,
    requests_in,
)
from trimtab.predict.fewshot.predictor import Fitted, Rows
from trimtab.predict.fewshot.versions import Versions, version_name
from trimtab.store import Store

MODEL_EVENT = "model"  # the kind of event for a version that was made, or refused

_FOLDS = 3
_MOST_REPLAYED = 120  # applications in the comparison, so that it takes no longer than the fit
_STANDARD_ERRORS = 2.0

# Called before each step with its description.
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, eq=False)
class UpdatePlan:
    """Examples to learn from by data set, those that the weights learned from before, and new outcomes."""

    foundation: Foundation
    examples: Mapping[str, Sequence[Example]]
    before: Mapping[str, Sequence[Example]]
    outcomes: tuple[OutcomeRecord, ...]
    new: tuple[OutcomeRecord, ...]
    doubtful: tuple[OutcomeRecord, ...]  # too far from the prediction to be true

    @property
    def corpora(self) -> tuple[str, ...]:
        """The data sets that have new measurements."""

        def measurements(examples: Sequence[Example]) -> list[tuple[str, dict[str, float]]]:
            cases = [example.case for example in examples]
            return [(c.label, dict(zip(c.configurations, c.seconds.tolist(), strict=True))) for c in cases]

        before = {name: measurements(self.before.get(name, ())) for name in self.examples}
        return tuple(name for name, now in self.examples.items() if measurements(now) != before[name])


@dataclass(frozen=True, slots=True)
class WeightsComparison:
    """Mean absolute percentage errors of the weights before and after, on the same questions."""

    corpus: str
    about: str
    applications: int
    old: float
    new: float
    allowed: float  # rise of the error that chance explains
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
    requests = requests_in(events)
    decisions = {request.decision for request in requests}
    outcomes = tuple(record for record in measured_in(events) if record.decision in decisions)
    learned = set(foundation.card.get("version", {}).get("outcomes", ()))
    usable = tuple(record for record in outcomes if believable(record))
    return UpdatePlan(
        foundation=foundation,
        examples=examples(requests, usable, foundation),
        before=examples(requests, [record for record in usable if record.key in learned], foundation),
        outcomes=usable,
        new=tuple(record for record in usable if record.key not in learned),
        doubtful=tuple(record for record in outcomes if not believable(record)),
    )


def update_weights(
    store: Store,
    plan: UpdatePlan,
    versions: Versions,
    progress: Progress = lambda step: None,
    clock: Clock | None = None,
    base: Foundation | None = None,
) -> Update:
    """Compare, and if nothing got worse fit, write and make current; cases are replayed from `base`.

    The caller holds `versions.alone()` and has checked that the plan has new measurements.
    """
    now = (clock or RealClock()).now()
    base = base or shipped_foundation()
    parent = version_name(plan.foundation)
    fitted = [plan.foundation.predictors[corpus] for corpus in plan.corpora]
    if any(isinstance(member, FittedForestPredictor) for blend in fitted for member in blend.members):
        try:  # before a minute of work that would end here
            import sklearn  # noqa: F401
        except ImportError:
            raise MissingDependencyError(
                "learning from outcomes of functions needs scikit-learn; pip install 'trimtab[learn]'"
            ) from None
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
        own = [example.case for example in plan.examples[corpus]]
        predictors[corpus] = refitted(predictors[corpus], [*cases, *own])
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
    """Cross-validation of old and new on replayed applications and on the user's."""
    fitted = plan.foundation.predictors[corpus]
    applications = sorted({case.application for case in replay})
    chosen = set(np.random.default_rng(seed).permutation(applications)[:_MOST_REPLAYED].tolist())
    cases = [case for case in replay if case.application in chosen]
    own = plan.examples[corpus]
    before = [example.case for example in plan.before.get(corpus, ())]
    after = [example.case for example in own]
    on_replayed, on_own = dict[str, list[Array]](), dict[str, list[Array]]()
    for number, group in enumerate(_folds(cases, after, seed), 1):
        progress(f"comparing old and new on {corpus}, {number} of {_FOLDS}")
        rest, old_own, new_own = (
            [case for case in part if case.application not in group] for part in (cases, before, after)
        )
        old = new = refitted(fitted, [*rest, *old_own])
        if [_content(case) for case in old_own] != [_content(case) for case in new_own]:
            new = refitted(fitted, [*rest, *new_own])
        for case in (case for case in cases if case.application in group):
            # One to three known runs, drawn by the case's name alone.
            random = np.random.default_rng([seed, *case.label.encode()])
            for shots in range(1, min(4, len(case))):
                known = np.sort(random.choice(len(case), shots, replace=False))
                targets = np.setdiff1d(np.arange(len(case)), known)
                errors = _errors((old, new), case, known, targets)
                on_replayed.setdefault(case.application, []).append(errors)
        for example in (example for example in own if example.case.application in group):
            for known, target in example.tests:
                errors = _errors((old, new), example.case, known, np.array([target]))
                on_own.setdefault(example.case.application, []).append(errors)
    replayed_errors = np.array([np.mean(errors, axis=0) for errors in on_replayed.values()])
    noise = _deviation(replayed_errors)
    comparisons = [_comparison(corpus, "replayed applications", replayed_errors, noise)]
    if on_own:
        own_errors = np.array([np.mean(errors, axis=0) for errors in on_own.values()])
        deviation = max(noise, _deviation(own_errors))
        tests = [(example.case, known, target) for example in own for known, target in example.tests]
        best_rule = min(
            float(
                np.mean([_errors((rule,), case, known, np.array([target])) for case, known, target in tests])
            )
            for rule in fitted.rules.values()
        )
        comparison = _comparison(corpus, "your outcomes", own_errors, deviation)
        comparisons.append(replace(comparison, rule=best_rule))
    return comparisons


def _content(case: Case) -> tuple[str, list[float]]:
    return case.label, case.seconds.tolist()


def _origin(plan: UpdatePlan, now: float) -> dict[str, object]:
    try:
        by = getpass.getuser()
    except (KeyError, OSError):
        by = "unknown"
    return {
        "made": now,
        "by": by,
        "outcomes": [record.key for record in plan.outcomes],
        "applications": {corpus: len(cases) for corpus, cases in plan.examples.items()},
    }


def _folds(cases: Sequence[Case], own: Sequence[Case], seed: int) -> Iterator[frozenset[str]]:
    """Groups of applications, the replayed and the user's spread evenly over them."""
    random = np.random.default_rng(seed)
    parts = [random_folds([case.application for case in part], _FOLDS, random) for part in (cases, own)]
    for number in range(_FOLDS):
        yield frozenset(name for folds in parts for name in (folds[number] if number < len(folds) else ()))


def _errors(predictors: Sequence[Fitted], case: Case, known: Rows, targets: Rows) -> Array:
    shown, truth = case.known_at(known), case.seconds[targets]
    return np.array([np.abs(p.predict(shown, known)[targets] / truth - 1.0).mean() for p in predictors])


def _deviation(errors: Array) -> float:
    return float((errors[:, 1] - errors[:, 0]).std(ddof=1)) if len(errors) > 1 else 0.0


def _comparison(corpus: str, about: str, errors: Array, deviation: float) -> WeightsComparison:
    old, new = errors.mean(axis=0).tolist()
    allowed = _STANDARD_ERRORS * deviation / len(errors) ** 0.5
    return WeightsComparison(corpus, about, len(errors), old, new, allowed)
