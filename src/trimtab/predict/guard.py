"""The guard: decides whether the rule or the model answers, and why.

No learned answer without a rule that it must beat. The rule answers where the input is out of distribution,
where the rule won the backtest, and where the model's interval is too wide; each is a `Ground`, and the first
that applies to a row decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trimtab.predict.tables import Flags

RULE, MODEL = "rule", "model"
WIDEST_RANGE = 25.0  # high over low; a wider interval is of no use


@dataclass(frozen=True, slots=True, eq=False)
class Ground:
    """A reason for rule or model to answer, and the rows to which it applies: one flag, or one per row."""

    answers: str  # RULE or MODEL
    reason: str
    applies: bool | Flags = True


def out_of_distribution(score: ArrayLike, limit: float, reason: str) -> Ground:
    """The rule answers where the input is further than `limit` from the training data."""
    return Ground(RULE, reason, np.asarray(score) > limit)


def lost_backtest(model_error: ArrayLike, rule_error: ArrayLike, reason: str) -> Ground:
    """The rule answers where the model was not better on held-out groups."""
    return Ground(RULE, reason, ~(np.asarray(model_error) < np.asarray(rule_error)))


def too_wide(factor: ArrayLike, limit: float = WIDEST_RANGE) -> Ground:
    """The rule answers where the model's interval spans more than `limit`; `factor` is high over low."""
    spans = np.asarray(factor, dtype=float)
    span = f"{spans:.0f} (limit {limit:g})" if spans.ndim == 0 else f"more than {limit:g}"
    return Ground(RULE, f"the model's range spans a factor of {span}, which is of no use", spans > limit)


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """Choice between rule and model for every row, with the reason."""

    by_model: Flags
    reasons: tuple[str, ...]
    reason: NDArray[np.intp]  # index into `reasons`, by row

    def chosen_by(self, row: int = 0) -> str:
        """MODEL or RULE."""
        return MODEL if self.by_model[row] else RULE

    def why(self, row: int = 0) -> str:
        return self.reasons[int(self.reason[row])]

    def words(self, row: int = 0) -> str:
        """Sentence without its full stop: "the rule answers: …"."""
        return f"the {self.chosen_by(row)} answers: {self.why(row)}"

    def at(self, rows: NDArray[np.intp]) -> "Verdict":
        """The verdict for these rows, in this order; rows may repeat."""
        return Verdict(self.by_model[rows], self.reasons, self.reason[rows])


def judge(grounds: Sequence[Ground], rows: int = 1) -> Verdict:
    """The first ground that applies decides each row; every row needs one."""
    applies = np.stack([np.broadcast_to(ground.applies, rows) for ground in grounds])
    if not applies.any(axis=0).all():
        raise ValueError("no ground applies to some of the rows")
    first = applies.argmax(axis=0)
    by_model = np.array([ground.answers == MODEL for ground in grounds])
    return Verdict(by_model[first], tuple(ground.reason for ground in grounds), first)
