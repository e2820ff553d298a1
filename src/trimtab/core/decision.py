"""Who decided what for whom, why, and how it turned out."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trimtab.core.estimate import Estimate

Scalar = str | int | float | bool | None
"""What an action may hold: values that survive JSON unchanged."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """One part of a reason: how much of the estimate, in its unit, is due to `name`."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What one decider said: `who` is a rule's or a model's name, `action` what it would do."""

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
    """What really happened after a decision: measured quantities under the names of its estimates."""

    decision_id: str
    recorded: float
    measured: Mapping[str, float]
    note: str = ""
