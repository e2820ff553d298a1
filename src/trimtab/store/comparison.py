"""How far off a decision was: its estimates beside what was measured."""

import math
from dataclasses import dataclass

from trimtab.core import BadInputError, Decision, Estimate, Outcome


@dataclass(frozen=True, slots=True)
class Comparison:
    """One estimated quantity and its truth, `measured` in the estimate's unit."""

    quantity: str
    estimate: Estimate
    measured: float

    @property
    def error(self) -> float:
        """(estimate - measured) / |measured|: 0.1 is ten percent too high, negative is too low.

        Infinite where nothing was measured but something was expected.
        """
        difference = self.estimate.value - self.measured
        if difference == 0 or self.estimate.value == self.measured:
            return 0.0
        return difference / abs(self.measured) if self.measured else math.copysign(math.inf, difference)

    @property
    def held(self) -> bool:
        """Whether the truth lay within the estimate's range."""
        return self.estimate.contains(self.measured)


def compare(decision: Decision, outcome: Outcome) -> tuple[Comparison, ...]:
    """Every measured quantity that the decision had an estimate of, in the order of its estimates."""
    if outcome.decision_id != decision.id:
        raise BadInputError(
            f"an outcome of decision {outcome.decision_id} cannot be compared with decision {decision.id}; "
            f"take one of its own outcomes"
        )
    return tuple(
        Comparison(quantity, estimate, outcome.measured[quantity])
        for quantity, estimate in decision.estimates.items()
        if quantity in outcome.measured
    )
