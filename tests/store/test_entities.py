import math
from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from trimtab.core import BadInputError, Decision, Estimate, Outcome
from trimtab.store import Comparison, compare

finite = st.floats(-1e150, 1e150)


def test_each_measured_quantity_with_an_estimate_is_compared(make_decision: Callable[..., Decision]) -> None:
    outcome = Outcome("d1", 2.0, {"cost": 8.0, "time": 110.0, "energy": 3.0})
    time, cost = compare(make_decision("d1"), outcome)
    assert (time.quantity, time.measured, time.held) == ("time", 110.0, True)
    assert time.error == pytest.approx(-10 / 110)
    assert (cost.quantity, cost.held) == ("cost", False)
    assert cost.error == pytest.approx(-3 / 8)


def test_an_estimate_that_was_not_measured_is_left_out(make_decision: Callable[..., Decision]) -> None:
    assert compare(make_decision("d1"), Outcome("d1", 2.0, {})) == ()


def test_the_outcome_of_another_decision_is_refused(make_decision: Callable[..., Decision]) -> None:
    with pytest.raises(BadInputError, match=r"decision d2 .*decision d1"):
        compare(make_decision("d1"), Outcome("d2", 2.0, {"time": 1.0}))


@pytest.mark.parametrize(("expected", "error"), [(0.0, 0.0), (1.0, math.inf), (-1.0, -math.inf)])
def test_the_error_against_a_measured_zero_is_zero_or_infinite(expected: float, error: float) -> None:
    estimate = Estimate(expected, expected, expected, 0.9, "s")
    assert Comparison("time", estimate, 0.0).error == error


@given(finite, finite)
def test_an_error_is_positive_exactly_when_the_estimate_was_too_high(expected: float, truth: float) -> None:
    error = Comparison("time", Estimate(expected, expected, expected, 0.9, "s"), truth).error
    assert (error > 0) == (expected > truth)
    assert (error == 0) == (expected == truth)
