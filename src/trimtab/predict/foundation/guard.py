"""The guard: model and rule side by side, and which of them answers.

The rule answers when the request is unlike everything that was learned from, when the rule won the backtest
that is kept with the weights, or when the model's range is so wide that it says nothing.
"""

from dataclasses import dataclass

import numpy as np

from trimtab.predict.fewshot import Array, Case, FittedCurves, FittedOurs, Rows

MODEL = "trimtab"
_TOO_WIDE = 25.0  # high over low
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

    @property
    def seconds(self) -> Array:
        """The chosen answer."""
        return self.model if self.chosen_by == "model" else self.rule


def guarded(fitted: FittedOurs, case: Case, known: Rows) -> Guarded:
    """Ask both, and choose."""
    low, model, high = fitted.interval(case, known)
    shots = min(len(known), 3)
    rule_name, rule_error = _best_rule(fitted, shots)
    rule = fitted.rules[rule_name].predict(case, known)
    unlike = _unlikeness(fitted, case, known)
    own_error = fitted.errors[MODEL][shots]
    targets = np.setdiff1d(np.arange(len(case)), known)
    width = float(np.median((high / low)[targets])) if targets.size else 1.0
    beaten = (
        f"in the backtest its mean error was {own_error:.0%}, that of the rule ({rule_name}) {rule_error:.0%}"
    )
    if unlike > _UNLIKE:
        chosen, why = (
            "rule",
            f"nothing like this was learned from (unlikeness {unlike:.1f}, limit {_UNLIKE:g})",
        )
    elif rule_error <= own_error:
        chosen, why = "rule", f"the rule won: the model: {beaten}"
    elif width > _TOO_WIDE:
        chosen, why = "rule", f"the model's range spans a factor of {width:.0f} and says nothing"
    else:
        chosen, why = "model", beaten
    return Guarded(
        chosen,
        why,
        model,
        np.minimum(low, rule) if chosen == "rule" else low,
        np.maximum(high, rule) if chosen == "rule" else high,
        rule,
        rule_name,
        unlike,
    )


def _best_rule(fitted: FittedOurs, shots: int) -> tuple[str, float]:
    errors = {name: by[shots] for name, by in fitted.errors.items() if name != MODEL and shots in by}
    name = min(errors, key=lambda rule: errors[rule])
    return name, errors[name]


def _unlikeness(fitted: FittedOurs, case: Case, known: Rows) -> float:
    """Root mean square distance, in standard deviations, to the nearest application learned from."""
    curves = next(member for member in fitted.members if isinstance(member, FittedCurves))
    return curves.unlikeness(case, known)
