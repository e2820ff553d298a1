"""Decisions: who decided what for whom, with which estimate and why, and how it turned out."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Estimate:
    """`value`, and the range `low` to `high` that should hold the truth in a share `coverage` of cases."""

    value: float
    low: float
    high: float
    coverage: float
    unit: str

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise ValueError(f"an estimate of {self.value} outside its own range {self.low} to {self.high}")
        if not 0.0 < self.coverage <= 1.0:
            raise ValueError(f"a coverage of {self.coverage} is not a share between 0 and 1")

    def scaled(self, factor: float, unit: str | None = None) -> "Estimate":
        """This estimate in another unit: seconds into dollars, say."""
        if factor < 0:
            raise ValueError("an estimate cannot be scaled by a negative factor")
        return Estimate(
            self.value * factor, self.low * factor, self.high * factor, self.coverage, unit or self.unit
        )

    def contains(self, truth: float) -> bool:
        """Whether the range held."""
        return self.low <= truth <= self.high


Scalar = str | int | float | bool | None
"""A value that survives JSON unchanged."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """One part of a reason: how much of the estimate, in its unit, is due to `name`."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Answer:
    """One decider's answer: `who` is a rule's or a model's name, `action` what it would do."""

    who: str
    action: Mapping[str, Scalar]
    estimates: Mapping[str, Estimate] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """A choice with the rule's answer beside the model's.

    `action` is what was done, taken from `rule` or `model` as `chosen_by` says; `estimates` are the
    chosen answer's, by quantity ("time" in s, "cost" in $). `created` is seconds since the epoch.
    """

    id: str
    created: float
    kind: str
    subject: str
    action: Mapping[str, Scalar]
    estimates: Mapping[str, Estimate]
    chosen_by: str
    rule: Answer
    model: Answer | None
    alternatives: tuple[Answer, ...]
    reason: str
    contributions: tuple[Contribution, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """Measured quantities after a decision, under the names of its estimates."""

    decision_id: str
    recorded: float
    measured: Mapping[str, float]
    note: str = ""
