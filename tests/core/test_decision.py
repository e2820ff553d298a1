import math

import pytest
from hypothesis import given, strategies as st

from trimtab.core import Estimate

ranges = st.lists(st.floats(-1e9, 1e9), min_size=3, max_size=3).map(sorted)
shares = st.floats(0.0, 1.0, exclude_min=True)


@given(ranges, shares)
def test_an_estimate_holds_its_value_and_both_ends_and_nothing_beyond(
    values: list[float], coverage: float
) -> None:
    low, value, high = values
    estimate = Estimate(value, low, high, coverage, "s")
    assert all(estimate.contains(v) for v in values)
    assert not estimate.contains(math.nextafter(low, -math.inf))
    assert not estimate.contains(math.nextafter(high, math.inf))
    assert not estimate.contains(math.nan)


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [(0.0, 1.0, 2.0), (3.0, 1.0, 2.0), (1.5, 2.0, 1.0), (math.nan, 1.0, 2.0), (1.5, math.nan, 2.0)],
)
def test_a_value_outside_its_own_range_is_refused(value: float, low: float, high: float) -> None:
    with pytest.raises(ValueError, match="range"):
        Estimate(value, low, high, 0.9, "s")


@pytest.mark.parametrize("coverage", [0.0, -0.1, 1.1, 90.0, math.nan])
def test_a_coverage_that_is_no_share_is_refused(coverage: float) -> None:
    with pytest.raises(ValueError, match="coverage"):
        Estimate(1.0, 1.0, 1.0, coverage, "s")


@given(ranges, st.floats(0, 1e6))
def test_scaling_changes_the_unit_and_keeps_the_order(values: list[float], factor: float) -> None:
    low, value, high = values
    scaled = Estimate(value, low, high, 0.9, "s").scaled(factor, "$")
    assert scaled == Estimate(value * factor, low * factor, high * factor, 0.9, "$")


def test_scaling_without_a_unit_keeps_it() -> None:
    assert Estimate(2.0, 1.0, 3.0, 0.9, "s").scaled(2.0) == Estimate(4.0, 2.0, 6.0, 0.9, "s")


def test_a_negative_factor_would_turn_the_range_around_and_is_refused() -> None:
    with pytest.raises(ValueError, match="negative factor"):
        Estimate(2.0, 1.0, 3.0, 0.9, "s").scaled(-1.0)
