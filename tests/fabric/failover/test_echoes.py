"""Whose probes come back: a machine that was away never takes a link for dead, and a dead one is noticed."""

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate

import pytest
from hypothesis import example, given, settings, strategies as st

from trimtab.fabric.failover.echo import Echoes

INTERVAL = 0.005
STEP = 2e-5  # s that reading or sending takes
WARM = 12  # ticks without a pause
TICKS = 100


@dataclass
class Machine:
    """One that stops at times, with all that runs on it; its own time goes on only while it runs.

    `pauses` are how long it runs before each, and how long that lasts. A probe is back after `back` seconds
    of the machine's own time; on the uplink `lost` none comes any more from `since` on.
    """

    pauses: list[tuple[float, float]]
    back: dict[str, float]
    multiplier: int = 6
    lost: str = ""
    since: float = float("inf")  # of its own time
    own: float = 0.0
    changes: list[tuple[float, str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        runs = [run for run, _ in self.pauses]
        self.stops = [WARM * INTERVAL + at for at in accumulate(runs)]
        self._away = [0.0, *accumulate(away for _, away in self.pauses)]
        self.echoes = Echoes(self.back, INTERVAL, self.multiplier, 0.0)
        self._coming: dict[str, list[tuple[float, int]]] = {device: [] for device in self.back}

    def wall(self, own: float) -> float:
        return own + self._away[bisect_right(self.stops, own)]

    def run(self, ticks: int) -> None:
        for _ in range(ticks):
            self._wait_until(self.echoes.next_tick)
            for device in self.back:
                self._read(device)
            now = self.wall(self.own)
            self.changes += [(now, device, state) for device, state in self.echoes.tick(now)]
            for device, delay in self.back.items():
                self.own += STEP
                self._coming[device].append((self.own + delay, self.echoes.number))

    def _wait_until(self, wall: float) -> None:
        while (ahead := wall - self.wall(self.own)) > 1e-12:
            pause = next((at for at in self.stops if at > self.own), float("inf"))
            self.own = min(self.own + ahead, pause)

    def _read(self, device: str) -> None:
        self.own += STEP
        for came, number in self._coming[device]:
            if came <= self.own and not (device == self.lost and came >= self.since):
                self.echoes.came(device, number)
        self._coming[device] = [probe for probe in self._coming[device] if probe[0] > self.own]


def pauses(least_run: float = 0.0) -> st.SearchStrategy[list[tuple[float, float]]]:
    runs = st.floats(least_run, least_run + 4 * INTERVAL)
    return st.lists(st.tuples(runs, st.floats(0, 20 * INTERVAL)), max_size=40)


@settings(max_examples=100, deadline=None)
@given(pauses(), st.floats(0, 3 * INTERVAL), st.integers(3, 8))
@example([(1e-4, INTERVAL)] * 90, 1e-3, 3)  # it runs only for its ticks, which all come in time
def test_no_pattern_of_pauses_makes_one_of_two_uplinks_dead(
    away: list[tuple[float, float]], back: float, multiplier: int
) -> None:
    machine = Machine(away, {"p1": back, "p2": back}, multiplier)
    machine.run(TICKS)
    assert [(device, state) for _, device, state in machine.changes] == [("p1", "well"), ("p2", "well")]


@settings(max_examples=100, deadline=None)
@given(
    pauses(2 * INTERVAL),
    st.lists(st.floats(0, INTERVAL / 5), min_size=2, max_size=3),
    st.booleans(),
    st.integers(3, 8),
)
def test_pauses_make_no_uplink_dead_however_unlike_they_are_or_if_one_is_alone(
    away: list[tuple[float, float]], back: list[float], alone: bool, multiplier: int
) -> None:
    """As long as the machine runs for two intervals between any two pauses."""
    delays = {f"p{number}": each for number, each in enumerate(back, start=1)}
    if alone:
        delays |= dict.fromkeys(list(delays)[1:], float("inf"))
    machine = Machine(away, delays, multiplier)
    machine.run(TICKS)
    well = [device for device, delay in delays.items() if delay < INTERVAL]
    assert sorted((device, state) for _, device, state in machine.changes) == [
        (each, "well") for each in well
    ]


@settings(max_examples=100, deadline=None)
@given(
    pauses(2 * INTERVAL),
    st.floats(0, INTERVAL / 5),
    st.booleans(),
    st.floats(WARM * INTERVAL, (WARM + 30) * INTERVAL),
    st.integers(3, 8),
)
def test_a_loss_is_noticed_after_the_intervals_and_what_the_machine_was_away(
    away: list[tuple[float, float]], back: float, alone: bool, since: float, multiplier: int
) -> None:
    """Within one interval more than the multiplier says, each pause, and an interval for each pause."""
    delays = {"p1": back, "p2": float("inf") if alone else back}
    machine = Machine(away, delays, multiplier, "p1", since)
    machine.run(TICKS)
    ((when, *_),) = [change for change in machine.changes if change[1:] == ("p1", "lost")]
    began = machine.wall(since)
    paused = [
        length
        for stop, (_, length) in zip(machine.stops, away, strict=True)
        if since < stop and machine.wall(stop) <= when
    ]
    assert when - began <= (multiplier + 1 + len(paused)) * INTERVAL + sum(paused) + 10 * STEP
    assert when - began >= multiplier * INTERVAL / 4 - back


def ticked(echoes: Echoes, *rows: tuple[int, ...]) -> list[list[tuple[str, str]]]:
    """Ticks in time, with the numbers of uplinks on which the probe before came back."""
    changes = []
    for row in rows:
        for number in row:
            echoes.came(f"p{number}", echoes.number)
        changes.append(list(echoes.tick(echoes.next_tick)))
    return changes


def test_an_uplink_whose_switch_sends_nothing_back_is_never_lost() -> None:
    echoes = Echoes(("p1", "p2"), INTERVAL, 3, 0.0)
    assert ticked(echoes, (), *[(1,)] * 3)[-1] == [("p1", "well")]
    assert not any(ticked(echoes, *[(1,)] * 20))
    assert echoes.comes_back("p1") is True
    assert echoes.comes_back("p2") is None


def test_a_lost_uplink_is_well_again_after_so_many_in_a_row() -> None:
    echoes = Echoes(("p1", "p2"), INTERVAL, 3, 0.0)
    ticked(echoes, (), *[(1, 2)] * 5)
    assert ticked(echoes, (1,), (1,), (1,)) == [[], [], [("p2", "lost")]]
    assert echoes.comes_back("p2") is False
    assert ticked(echoes, (1, 2), (1, 2), (1,), (1, 2), (1, 2), (1, 2))[-2:] == [[], [("p2", "well")]]


def test_uplinks_that_fall_silent_together_are_not_lost_until_one_comes_back() -> None:
    echoes = Echoes(("p1", "p2"), INTERVAL, 3, 0.0)
    ticked(echoes, (), *[(1, 2)] * 5)
    assert not any(ticked(echoes, *[()] * 50))
    assert echoes.comes_back("p1") is False
    assert ticked(echoes, (1,), (1,), (1,)) == [[], [], [("p2", "lost")]]


def test_a_forgotten_uplink_is_not_lost_until_it_was_well_again() -> None:
    echoes = Echoes(("p1", "p2"), INTERVAL, 3, 0.0)
    ticked(echoes, (), *[(1, 2)] * 5)
    echoes.forget("p2")
    assert not any(ticked(echoes, *[(1,)] * 20))
    assert ticked(echoes, *[(1, 2)] * 3)[-1] == [("p2", "well")]


def test_copies_old_ones_and_ones_never_sent_do_not_count() -> None:
    echoes = Echoes(("p1", "p2"), INTERVAL, 3, 0.0)
    ticked(echoes, (), *[(1, 2)] * 5)
    for _ in range(3):
        echoes.came("p2", 2)
        echoes.came("p2", 99)
        last = ticked(echoes, (1,))
    assert last == [[("p2", "lost")]]


def test_late_ticks_are_counted_and_the_next_one_leaves_time_to_come_back() -> None:
    echoes = Echoes(("p1",), INTERVAL, 3, 1.0)
    echoes.tick(1.0)
    echoes.tick(1.0 + 1.4 * INTERVAL)
    assert (echoes.late, echoes.next_tick) == (0, pytest.approx(1.0 + 2 * INTERVAL))
    echoes.tick(1.0 + 2.6 * INTERVAL)
    assert (echoes.late, echoes.next_tick) == (1, pytest.approx(1.0 + 3 * INTERVAL))
    echoes.tick(1.0 + 3.9 * INTERVAL)
    assert (echoes.late, echoes.next_tick) == (2, pytest.approx(1.0 + 5 * INTERVAL))
    echoes.tick(1.0 + 50.1 * INTERVAL)
    assert (echoes.late, echoes.next_tick) == (3, pytest.approx(1.0 + 51 * INTERVAL))
