"""Latencies are summed up by values that were really measured."""

import math

from hypothesis import given, strategies as st
from trimtab_bench.serve.latency import Measured, latency


@given(st.lists(st.floats(0.0, 100.0), min_size=1))
def test_quantiles_are_measured_values_and_at_most_a_hundredth_lies_above(seconds: list[float]) -> None:
    found = latency(seconds)
    assert found.count == len(seconds)
    assert {found.p50_ms, found.p99_ms, found.max_ms} <= {each * 1e3 for each in seconds}
    assert found.p50_ms <= found.p99_ms <= found.max_ms
    assert sum(each * 1e3 > found.p99_ms for each in seconds) <= 0.01 * len(seconds)


def test_a_load_without_an_answer_has_no_good_latency() -> None:
    assert math.isinf(latency([]).p99_ms)


def test_operations_are_taken_together_and_failures_counted() -> None:
    seen = Measured(
        2.0, {"a": [0.001, 0.002], "b": [0.5]}, {"a": 2, "b": 0}, {"a: 500": 2, "b: 404": 1}, 0.1, 0.0
    )
    assert seen.per_second(["a", "b", "c"]) == 1.0
    assert seen.of(["a", "b"]).max_ms == 500.0
    assert seen.of(["a"]).max_ms == 2.0
    assert seen.failed == 3
