"""The guard: model and rule side by side, and which of them answers.

The rule answers when the request is unlike everything that was learned from, by its numbers or by its
embedding, when the rule won the backtest that is kept with the weights, or when the model's range is so wide
that it says nothing.
"""

import math
from dataclasses import dataclass

import numpy as np

from trimtab.predict.encoder import Acquaintance
from trimtab.predict.fewshot import OURS, Array, Case, FittedOurs, Rows
from trimtab.predict.foundation.acquainted import Acquainted

_TOO_WIDE = 25.0  # high over low
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
    rule = fitted.rules[tested.rule].predict(case, known)
    unlike = fitted.curves.unlikeness(case, known)
    found = fitted.acquaintance(case, known) if isinstance(fitted, Acquainted) else None
    targets = np.setdiff1d(np.arange(len(case)), known)
    width = float(np.median((high / low)[targets])) if targets.size else 1.0
    doubt = _doubt(unlike, found, tested, width)
    return Guarded(
        "rule" if doubt else "model",
        doubt or tested.summary,
        model,
        np.minimum(low, rule) if doubt else low,
        np.maximum(high, rule) if doubt else high,
        rule,
        tested.rule,
        unlike,
        found.score if found else None,
        found.alike if found else (),
    )


def _doubt(unlike: float, found: Acquaintance | None, tested: "_Backtest", width: float) -> str:
    """Why the model should not answer; nothing if it should."""
    if unlike > _UNLIKE:
        return f"nothing like this was learned from (unlikeness {unlike:.1f}, limit {_UNLIKE:g})"
    if found and found.score > _FAR:
        return (
            f"nothing like this was learned from: {found.score:.1%} of the applications nobody had seen were "
            f"nearer to known ones (limit {_FAR:.0%}); most alike is {found.alike[0]}"
        )
    if tested.rule_error <= tested.own_error:
        return tested.summary
    if width > _TOO_WIDE:
        return f"the model's range spans a factor of {width:.0f} and says nothing"
    return ""


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
