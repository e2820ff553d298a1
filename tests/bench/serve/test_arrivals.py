"""The plan of a load has exactly what was asked for, at moments that are random but repeatable."""

from collections import Counter

import numpy as np
from hypothesis import given, strategies as st
from trimtab_bench.serve.arrivals import arrivals, mixed

SHARES = st.dictionaries(st.text(min_size=1, max_size=5), st.floats(0.1, 10.0), min_size=1, max_size=6)


@given(SHARES, st.integers(1, 2000), st.integers(0, 3), st.integers(1, 3), st.integers(0, 9))
def test_a_plan_has_as_many_requests_after_the_warm_up_as_its_rate_says(
    shares: dict[str, float], rate: int, warm_up: int, seconds: int, seed: int
) -> None:
    plan = arrivals(mixed(shares, float(rate)), float(warm_up), float(seconds), seed)
    measured = [time for time in plan.times if time >= warm_up]
    assert len(measured) == rate * seconds
    assert len(plan.times) == len(plan.names) == rate * (warm_up + seconds)
    assert plan.times == sorted(plan.times)
    assert all(0.0 <= time <= warm_up + seconds for time in plan.times)


def test_a_plan_keeps_the_shares_of_its_operations_and_of_reads_and_writes_exactly() -> None:
    rates = mixed({"a": 1.0, "b": 2.0}, 1500.0) | mixed({"w": 1.0, "x": 0.7}, 300.0)
    plan = arrivals(rates, 5.0, 30.0, 0)
    counts = Counter(name for time, name in zip(plan.times, plan.names, strict=True) if time >= 5.0)
    assert (counts["a"], counts["b"]) == (15_000, 30_000)
    assert counts["w"] + counts["x"] == 9_000


def test_moments_are_random_and_the_same_for_the_same_seed() -> None:
    plan = arrivals({"a": 1000.0}, 0.0, 10.0, 3)
    gaps = np.diff(plan.times)
    # Of independent moments, the gaps spread as widely as their mean.
    assert 0.9 < gaps.std() / gaps.mean() < 1.1
    assert plan == arrivals({"a": 1000.0}, 0.0, 10.0, 3)
    assert plan != arrivals({"a": 1000.0}, 0.0, 10.0, 4)
