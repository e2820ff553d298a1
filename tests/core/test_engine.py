import time

import pytest
from hypothesis import given, strategies as st

from trimtab.core import Clock, RealClock, SimulatedClock

seconds = st.floats(0, 1e9)


@given(st.floats(0, 2e9), st.lists(st.tuples(st.booleans(), st.floats(-1e6, 1e9))))
def test_simulated_time_never_goes_back(start: float, moves: list[tuple[bool, float]]) -> None:
    clock = SimulatedClock(start)
    for sleeps, amount in moves:
        before = clock.now(), clock.monotonic()
        if sleeps or amount >= 0:
            (clock.sleep if sleeps else clock.advance)(amount)
        else:
            with pytest.raises(ValueError, match="cannot advance"):
                clock.advance(amount)
        assert (clock.now(), clock.monotonic()) >= before
        assert clock.now() >= before[0]


@given(st.floats(0, 2e9), st.lists(seconds, max_size=20))
def test_sleeping_moves_a_simulated_clock_by_as_much(start: float, naps: list[float]) -> None:
    clock = SimulatedClock(start)
    for nap in naps:
        clock.sleep(nap)
    assert clock.monotonic() == pytest.approx(sum(naps))
    assert clock.now() == pytest.approx(start + sum(naps))


def test_a_simulated_clock_stands_still_by_itself() -> None:
    clock = SimulatedClock(1e9)
    time.sleep(0.002)
    assert (clock.now(), clock.monotonic()) == (1e9, 0.0)


def test_a_simulated_hour_takes_less_than_an_hour() -> None:
    clock, started = SimulatedClock(), time.monotonic()
    clock.sleep(3600.0)
    assert clock.monotonic() == 3600.0
    assert time.monotonic() - started < 3600.0


def test_an_advance_that_is_not_a_number_is_refused_and_time_stays() -> None:
    clock = SimulatedClock()
    with pytest.raises(ValueError, match="nan"):
        clock.advance(float("nan"))
    assert clock.monotonic() == 0.0


def test_the_real_clock_really_sleeps() -> None:
    clock = RealClock()
    before, wall = clock.monotonic(), clock.now()
    clock.sleep(0.01)
    clock.sleep(-1.0)
    assert 0.01 <= clock.monotonic() - before < 1.0
    assert abs(clock.now() - time.time()) < 1.0
    assert clock.now() >= wall


@pytest.mark.parametrize("clock", [RealClock(), SimulatedClock()])
def test_both_clocks_are_clocks(clock: object) -> None:
    assert isinstance(clock, Clock)
