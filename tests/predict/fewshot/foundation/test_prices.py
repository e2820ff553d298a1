"""What a run costs, and of what that consists."""

import pytest
from hypothesis import given, strategies as st

from trimtab.core import Estimate
from trimtab.predict.fewshot.foundation.prices import LAMBDA_PRICES_OF, Price, price_note


@given(seconds=st.floats(0, 1e9), per_second=st.floats(0, 1e3), per_run=st.floats(0, 1e3))
def test_the_parts_of_a_cost_add_up_to_it(seconds: float, per_second: float, per_run: float) -> None:
    price = Price(per_second, per_run)
    cost = price.cost(Estimate(seconds, seconds / 2, seconds * 2, 0.9, "s"))
    assert sum(part.value for part in price.parts(seconds)) == pytest.approx(cost.value)
    assert per_run <= cost.low <= cost.value <= cost.high
    assert (cost.unit, cost.coverage) == ("$", 0.9)


def test_a_fee_that_is_not_charged_is_no_part() -> None:
    assert [part.name for part in Price(1.0).parts(2.0)] == ["time"]
    assert [part.name for part in Price(1.0, 0.5).parts(2.0)] == ["time", "requests"]


def test_prices_say_of_when_they_are() -> None:
    assert LAMBDA_PRICES_OF in price_note("lambda")
    assert "when the data learned from was measured" in price_note("ec2")
