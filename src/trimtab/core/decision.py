"""Decisions with their estimates, reasons and outcomes."""

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
            raise ValueError(f"the estimate {self.value} is outside its range {self.low} to {self.high}")
        if not 0.0 < self.coverage <= 1.0:
            raise ValueError(f"the coverage {self.coverage} is not a share between 0 and 1")

    def scaled(self, factor: float, unit: str | None = None) -> "Estimate":
        """This estimate times a factor, in another unit: seconds to dollars."""
        if factor < 0:
            raise ValueError("an estimate cannot be scaled by a negative factor")
        value, low, high = self.value * factor, self.low * factor, self.high * factor
        return Estimate(value, low, high, self.coverage, unit or self.unit)

    def contains(self, truth: float) -> bool:
        """Whether the range holds the measured value."""
        return self.low <= truth <= self.high


Scalar = str | int | float | bool | None
"""A value that survives JSON unchanged."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """The part of an estimate, in its unit, that is due to `name`."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Answer:
    """One decider's answer: `who` names the rule or model, `action` the action it would take."""

    who: str
    action: Mapping[str, Scalar]
    estimates: Mapping[str, Estimate] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """A choice with the rule's answer beside the model's.

    `chosen_by` names the answer whose `action` was taken; `estimates` are its estimates by quantity
    ("time" in s, "cost" in $). `created` is seconds since the epoch.
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
    """Measured quantities after a decision, under the names of its estimates.

    A `trusted` outcome was confirmed by the user: it counts however far it is from the estimate.
    """

    decision_id: str
    recorded: float
    measured: Mapping[str, float]
    note: str = ""
    trusted: bool = False
