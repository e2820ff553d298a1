"""Whether an uplink can be used: who says so, how long it is held, how flapping is held off."""

import pytest
from hypothesis import given, settings, strategies as st

from trimtab.core import SimulatedClock
from trimtab.fabric.failover.routes import Uplinks

HOLD, WINDOW = 2.0, 30.0


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def uplinks() -> Uplinks:
    return Uplinks(("p1", "p2"), HOLD, WINDOW)


def test_one_that_comes_back_is_held_and_then_used(clock: SimulatedClock, uplinks: Uplinks) -> None:
    assert uplinks.down("p1", "bfd", clock.monotonic()) == "bfd"
    assert uplinks.state("p1", clock.monotonic()) == "dead"
    clock.advance(5)
    uplinks.up("p1", "bfd", clock.monotonic())
    assert uplinks.state("p1", clock.monotonic()) == "held"
    assert uplinks.held_until("p1", clock.monotonic()) == pytest.approx(7.0)
    clock.advance(HOLD)
    assert uplinks.state("p1", clock.monotonic()) == "up"
    assert uplinks.state("p2", clock.monotonic()) == "up"


def test_it_is_dead_until_everyone_who_said_so_takes_it_back(clock: SimulatedClock, uplinks: Uplinks) -> None:
    assert uplinks.down("p1", "carrier", 0.0) == "carrier"
    assert uplinks.down("p1", "bfd", 0.0) is None
    uplinks.up("p1", "carrier", 1.0)
    assert uplinks.state("p1", 100.0) == "dead"
    uplinks.up("p1", "bfd", 100.0)
    assert uplinks.state("p1", 101.0) == "held"


def test_one_that_never_was_up_has_not_failed_and_is_not_held(uplinks: Uplinks) -> None:
    assert uplinks.down("p1", "bfd", 0.0, failed=False) is None
    assert uplinks.state("p1", 0.5) == "dead"
    uplinks.up("p1", "bfd", 1.0)
    assert uplinks.state("p1", 1.0) == "up"


def test_failures_that_follow_hold_longer_and_are_forgotten(uplinks: Uplinks) -> None:
    now, holds = 0.0, []
    for _ in range(8):
        cause = uplinks.down("p1", "bfd", now)
        uplinks.up("p1", "bfd", now + 0.1)
        held = uplinks.held_until("p1", now + 0.1)
        assert held is not None
        holds.append(held - now - 0.1)
        now += 1.0
    assert cause == "flap"
    assert holds[:4] == pytest.approx([2, 4, 8, 16])
    assert holds[-1] == pytest.approx(16 * HOLD)
    assert uplinks.down("p1", "bfd", now + 9 * WINDOW) == "bfd"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.floats(0.05, 5), st.floats(0.05, 5)), min_size=20, max_size=200))
def test_flapping_moves_traffic_few_times(pauses: list[tuple[float, float]]) -> None:
    """However it flaps, it is used again at most once in each longest hold, but for a few at first."""
    uplinks = Uplinks(("p1",), HOLD, WINDOW)
    now, used_again = 0.0, 0
    for down, up in pauses:
        uplinks.down("p1", "carrier", now)
        now += down
        uplinks.up("p1", "carrier", now)
        now += up
        used_again += uplinks.state("p1", now) == "up"
    assert used_again <= 5 + now / (16 * HOLD)


def test_what_was_known_of_one_goes_on(uplinks: Uplinks) -> None:
    uplinks.resume("p1", 3, since=10.0, held_until=15.0)
    uplinks.resume("p9", 3, since=10.0, held_until=15.0)
    assert uplinks.devices() == ("p1", "p2")
    assert (uplinks.state("p1", 14.0), uplinks.state("p1", 16.0)) == ("held", "up")
    assert uplinks.down("p1", "bfd", 17.0) == "flap"
    uplinks.up("p1", "bfd", 18.0)
    assert uplinks.held_until("p1", 18.0) == pytest.approx(18.0 + 8 * HOLD)
    uplinks.resume("p2", 1, since=10.0, held_until=1e9)  # of a clock that was set
    assert uplinks.state("p2", 10.0 + 16 * HOLD) == "up"
