"""The guard: model and rule side by side, and which of them answers.

The rule answers when the request is unlike everything that was learned from, by its numbers or by its
embedding, when the rule won the backtest that is kept with the weights, or when the model's range is so wide
that it says nothing. What is unlike everything but was run twice or more is answered by the encoder after
fine-tuning on those runs, if that predicts each of them from the others better than the rule does.
"""

import math
from dataclasses import dataclass

import numpy as np

from trimtab.predict.fewshot import OURS, Array, Case, Fitted, FittedOurs, Rows
from trimtab.predict.fewshot.encoder import Acquaintance, Adapted, adapt, missed_by
from trimtab.predict.fewshot.foundation.acquainted import Acquainted
from trimtab.predict.guard import MODEL, RULE, Ground, judge, lost_backtest, too_wide

_ENOUGH = 2  # known runs to fine-tune on
_FAR = 0.99  # part of the unseen applications that were nearer, in embedding space, to those learned from
_UNLIKE = 4.0  # standard deviations per known number, from the most alike application that was learned from


@dataclass(frozen=True, slots=True, eq=False)
class Guarded:
    """Both answers, in seconds for every configuration of the case, and who was chosen."""

    chosen_by: str  # "model" or "rule"
    reason: str
    model: Array
    low: Array
    high: Array
    rule: Array
    rule_name: str
    unlike: float  # how unlike anything learned from; above 4 the rule answers
    answering: Fitted  # who gave the chosen answer
    # Part of the unseen applications that were nearer to known ones; above 0.99 the rule answers.
    score: float | None = None
    alike: tuple[str, ...] = ()  # the known applications that are most alike

    @property
    def seconds(self) -> Array:
        """The chosen answer."""
        return self.model if self.chosen_by == "model" else self.rule


def guarded(fitted: FittedOurs, case: Case, known: Rows) -> Guarded:
    """Ask both, and choose."""
    low, model, high = fitted.interval(case, known)
    tested = _Backtest.of(fitted, len(known))
    rule = fitted.rules[tested.rule]
    by_rule = rule.predict(case, known)
    unlike = fitted.curves.unlikeness(case, known)
    found = fitted.acquaintance(case, known) if isinstance(fitted, Acquainted) else None
    far = _far(unlike, found)
    tuned = _fine_tuned(fitted, rule, case, known) if far else None
    verdict = judge(
        [
            Ground(MODEL, f"{far}, but {tuned.summary if tuned else ''}", tuned is not None),
            Ground(RULE, far, bool(far)),
            lost_backtest(tested.own_error, tested.rule_error, tested.summary),
            too_wide(_width(low, high, known)),
            Ground(MODEL, tested.summary),
        ]
    )
    answering: Fitted = fitted
    if tuned:
        answering, model = tuned.adapted, tuned.seconds
        low, high = np.minimum(low, tuned.low), np.maximum(high, tuned.high)
    elif verdict.chosen_by() == RULE:
        answering = rule
    if tuned or answering is rule:
        # Nobody can vouch for the answer: the range holds whatever anyone would say.
        low, high = np.minimum(low, by_rule), np.maximum(high, by_rule)
    score, alike = (found.score, found.alike) if found else (None, ())
    return Guarded(
        verdict.chosen_by(),
        verdict.why(),
        model,
        low,
        high,
        by_rule,
        tested.rule,
        unlike,
        answering,
        score,
        alike,
    )


def _far(unlike: float, found: Acquaintance | None) -> str:
    """Why it is like nothing that was learned from; nothing if it is."""
    if unlike > _UNLIKE:
        return f"nothing like this was learned from (unlikeness {unlike:.1f}, limit {_UNLIKE:g})"
    if found and found.score > _FAR:
        return (
            f"nothing like this was learned from: {found.score:.1%} of the applications nobody had seen were "
            f"nearer to known ones (limit {_FAR:.0%}), most alike is {found.alike[0]}"
        )
    return ""


def _width(low: Array, high: Array, known: Rows) -> float:
    targets = np.setdiff1d(np.arange(len(low)), known)
    return float(np.median((high / low)[targets])) if targets.size else 1.0


@dataclass(frozen=True, slots=True, eq=False)
class _FineTuned:
    """The encoder after a few steps on the request's own runs, which it predicts better than the rule."""

    adapted: Adapted
    seconds: Array
    low: Array
    high: Array
    summary: str


def _fine_tuned(fitted: FittedOurs, rule: Fitted, case: Case, known: Rows) -> _FineTuned | None:
    """Nothing where there is no encoder, too little to learn from, or the rule predicts the runs as well."""
    if not isinstance(fitted, Acquainted) or fitted.shared is None or len(known) < _ENOUGH:
        return None
    adapted = adapt(fitted.shared.encoder, case, known)
    by_rule = missed_by(rule, case, known)
    if not adapted.missed < by_rule:
        return None
    spread = adapted.spread(case, known)
    tail = (1 - fitted.coverage) / 2
    return _FineTuned(
        adapted,
        adapted.predict(case, known),
        np.exp(spread.quantile(tail)),
        np.exp(spread.quantile(1 - tail)),
        f"fine-tuned on its own runs the encoder misses each from the others by "
        f"{math.expm1(adapted.missed):.0%}, the rule by {math.expm1(by_rule):.0%}",
    )


@dataclass(frozen=True, slots=True)
class _Backtest:
    """The rule that did best with as many known runs, and the mean errors of it and the model."""

    rule: str
    rule_error: float
    own_error: float

    @classmethod
    def of(cls, fitted: FittedOurs, runs: int) -> "_Backtest":
        """Where that many runs were not tested, the nearest below counts; a model never tested has lost."""
        shots = max((tested for tested in fitted.errors.get(OURS, {}) if tested <= runs), default=0)
        errors = {name: fitted.errors.get(name, {}).get(shots, math.inf) for name in fitted.rules}
        rule = min(errors, key=lambda name: errors[name])
        return cls(rule, errors[rule], fitted.errors[OURS][shots] if shots else math.inf)

    @property
    def summary(self) -> str:
        if math.isinf(self.own_error):
            return "the model was never tested on an application that it had not seen"
        return (
            f"in the backtest the model's mean error was {self.own_error:.0%}, "
            f"that of the best rule ({self.rule}) {self.rule_error:.0%}"
        )
