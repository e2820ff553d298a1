"""When a size has been measured enough."""

from hypothesis import given, strategies as st

from trimtab.collect.functions import Effort

EFFORT = Effort(least=8, seconds=2.0, ceiling=30.0)


def test_both_invocations_and_seconds_are_needed() -> None:
    assert EFFORT.progress(8, 1.0, 1.5) == 0.5
    assert EFFORT.progress(4, 9.0, 9.5) == 0.5
    assert EFFORT.progress(8, 2.0, 3.0) == 1


def test_the_ceiling_ends_what_would_take_too_long() -> None:
    assert EFFORT.progress(2, 20.0, 29.0) < 1
    assert EFFORT.progress(3, 25.0, 31.0) >= 1


@given(st.integers(0, 100), st.floats(0, 100), st.floats(0, 100), st.integers(1, 9), st.floats(0.1, 9))
def test_every_invocation_is_progress(
    count: int, seconds: float, spent: float, more: int, longer: float
) -> None:
    before = EFFORT.progress(count, seconds, spent)
    assert EFFORT.progress(count + more, seconds + longer, spent + longer) > before
