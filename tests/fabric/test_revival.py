"""When daemons that die are started again, on a clock that only goes as far as it is told."""

from pathlib import Path

import pytest

from trimtab.core import SimulatedClock, TrimtabError
from trimtab.fabric.agent import Revival


class Dying:
    """Daemons that can be told to be dead, and to stay so."""

    folder = Path()

    def __init__(self, clock: SimulatedClock) -> None:
        self.clock = clock
        self.dead, self.stays_dead = set[str](), False
        self.started: list[tuple[str, float]] = []

    def missing(self) -> tuple[str, ...]:
        return tuple(sorted(self.dead))

    def restart(self, name: str) -> None:
        self.started.append((name, self.clock.monotonic()))
        if self.stays_dead:
            raise TrimtabError(f"{name} does not start")
        self.dead.discard(name)

    def wait_for_death(self, seconds: float, wake: int) -> bool:
        self.clock.advance(seconds)
        return False


def lived(revival: Revival, daemons: Dying, seconds: float) -> list[float]:
    """When something was started within that time, from its beginning."""
    began = daemons.clock.monotonic()
    before = len(daemons.started)
    while (left := began + seconds - daemons.clock.monotonic()) > 0:
        if revival.wait(left, -1):
            try:
                revival.revive()
            except TrimtabError:
                assert daemons.stays_dead
    return [when - began for _, when in daemons.started[before:]]


def test_the_first_death_is_answered_at_once_and_further_ones_after_growing_pauses() -> None:
    clock = SimulatedClock()
    daemons = Dying(clock)
    revival = Revival(daemons, clock)
    daemons.dead = {"bgpd"}
    revival.revive()
    assert daemons.started == [("bgpd", clock.monotonic())]
    daemons.dead, daemons.stays_dead = {"bgpd"}, True
    revival.revive()
    assert lived(revival, daemons, 100.0) == pytest.approx([1.0, 3.0, 7.0, 15.0, 31.0, 61.0, 91.0])
    daemons.stays_dead = False
    assert lived(revival, daemons, 30.0) == pytest.approx([21.0])
    clock.advance(61.0)
    revival.revive()
    daemons.dead = {"bgpd"}
    revival.revive()
    assert daemons.dead == set(), "a daemon that has lived for long is started at once again"


def test_one_that_waits_keeps_no_other_from_being_started() -> None:
    clock = SimulatedClock()
    daemons = Dying(clock)
    revival = Revival(daemons, clock)
    for dead in ({"bgpd"}, {"bgpd"}, {"bfdd", "bgpd"}):
        daemons.dead = set(dead)
        revival.revive()
    assert [name for name, _ in daemons.started] == ["bgpd", "bfdd"]
