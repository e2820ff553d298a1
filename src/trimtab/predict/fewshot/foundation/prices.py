"""What one run costs: by the second and, on Lambda, by the request. Only this module knows prices."""

from dataclasses import dataclass

import numpy as np

from trimtab.core import GIB, HOUR, Contribution, Estimate
from trimtab.predict.fewshot import Array, Case

# Lambda's list prices for x86 in US East before any discount or free tier.
LAMBDA_PER_GIB_SECOND = 0.0000166667  # dollars
LAMBDA_PER_REQUEST = 0.20 / 1e6  # dollars
LAMBDA_PRICES_OF = "2024"


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars for every second of a run, and for the run itself however long it is."""

    per_second: float
    per_run: float = 0.0

    def cost(self, time: Estimate) -> Estimate:
        """What a run of that time costs, in dollars."""
        low, value, high = (
            seconds * self.per_second + self.per_run for seconds in (time.low, time.value, time.high)
        )
        return Estimate(value, low, high, time.coverage, "$")

    def parts(self, seconds: float) -> tuple[Contribution, ...]:
        """What the cost of a run is made of; a fee that is not charged has no part."""
        for_time = Contribution("time", seconds * self.per_second)
        return (for_time, Contribution("requests", self.per_run)) if self.per_run else (for_time,)


def prices(case: Case) -> list[Price | None]:
    """By configuration; None where nothing is charged or the price is not known."""
    if case.environment == "lambda":
        per_second = LAMBDA_PER_GIB_SECOND * case.setting("memory_bytes") / GIB
        return _each(per_second, LAMBDA_PER_REQUEST)
    return _each(case.setting("price_per_hour") * case.setting("nodes") / HOUR, 0.0)


def price_note(environment: str) -> str:
    """Where the prices come from and of when they are."""
    if environment == "lambda":
        return f"Lambda's list prices of {LAMBDA_PRICES_OF} in US East"
    return "prices of when the data learned from was measured"


def _each(per_second: Array, per_run: float) -> list[Price | None]:
    return [None if np.isnan(price) else Price(price, per_run) for price in per_second.tolist()]
