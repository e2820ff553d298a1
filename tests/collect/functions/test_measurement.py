"""Turns become a row."""

import pytest

from trimtab.collect.functions.measurement import COLUMNS, Turn, Usage, statistics_of


def test_durations_are_pooled_and_usage_is_per_invocation() -> None:
    found = statistics_of(
        [
            Turn((0.1, 0.2), Usage(cpu_user_s=0.3, throttled_periods=4)),
            Turn((0.6,), Usage(cpu_user_s=0.3, bytes_sent=30)),
        ]
    )
    assert found["mean_s"] == pytest.approx(0.3)
    assert found["median_s"] == 0.2
    assert (found["min_s"], found["max_s"], found["p95_s"], found["p99_s"]) == (0.1, 0.6, 0.6, 0.6)
    assert found["std_s"] == pytest.approx(0.216, abs=0.001)
    assert found["cpu_user_s"] == pytest.approx(0.2)
    assert found["throttled_periods"] == pytest.approx(4 / 3)
    assert found["bytes_sent"] == 10
    assert found.keys() < set(COLUMNS)


def test_usage_is_a_difference() -> None:
    assert Usage(2.0, 1.0, bytes_read=7) - Usage(0.5, 1.0, bytes_read=2) == Usage(1.5, 0.0, bytes_read=5)
