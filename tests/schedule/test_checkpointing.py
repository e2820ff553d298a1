"""Saving as often as Young and Daly say, and leaving spot in time."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.special import lambertw

from trimtab.core import daly_interval
from trimtab.schedule import (
    Checkpoint,
    Market,
    NodeGroup,
    Refuge,
    efficiency,
    expected_run,
    gang_rate,
    latest_switch,
    must_leave_spot,
)

HOUR = 3600.0


def spot(reclaims: float) -> NodeGroup:
    return NodeGroup("s", "A100", 8, 8, 96.0, 1e12, price=0.003, market=Market.SPOT, reclaims=reclaims)


def run(
    useful: float, interval: float, saving: float, restart: float, rate: float, random: np.random.Generator
) -> float:
    """Wall seconds of one job, interruption by interruption: the model's world, not its formula."""
    wall, saved, next_loss = 0.0, 0.0, random.exponential(1 / rate)
    while saved < useful - 1e-9:
        part = min(interval, useful - saved)
        if wall + part + saving <= next_loss:
            wall, saved = wall + part + saving, saved + part
            continue
        wall = next_loss
        next_loss = wall + random.exponential(1 / rate)
        while next_loss < wall + restart:
            wall = next_loss
            next_loss = wall + random.exponential(1 / rate)
        wall += restart
    return wall


def test_a_gang_is_lost_with_any_of_its_nodes() -> None:
    assert gang_rate(8, 1e-5, 1e-6) == pytest.approx(8 * 1.1e-5)


def test_without_interruptions_only_saving_costs() -> None:
    assert efficiency(math.inf, 30.0, 60.0, 0.0) == 1.0
    assert efficiency(300.0, 30.0, 60.0, 0.0) == pytest.approx(300 / 330)


@settings(deadline=None)
@given(st.floats(1.0, 300.0), st.floats(600.0, 1e6))
def test_daly_is_as_good_as_the_exact_optimum(saving: float, between: float) -> None:
    exact = between * (1 + lambertw(-math.exp(-1 - saving / between)).real)
    best = float(efficiency(exact, saving, 60.0, 1 / between))
    assert efficiency(daly_interval(saving, 1 / between), saving, 60.0, 1 / between) > 0.995 * best


@pytest.mark.parametrize(("between", "saving", "restart"), [(HOUR, 30.0, 60.0), (10 * HOUR, 120.0, 300.0)])
def test_the_closed_form_is_what_a_simulation_shows(between: float, saving: float, restart: float) -> None:
    random = np.random.default_rng(7)
    interval = float(daly_interval(saving, 1 / between))
    useful = 40 * interval
    walls = [run(useful, interval, saving, restart, 1 / between, random) for _ in range(400)]
    told = useful / float(efficiency(interval, saving, restart, 1 / between))
    assert np.mean(walls) == pytest.approx(told, abs=4 * np.std(walls) / 20)


def test_columns_are_answered_as_columns() -> None:
    rate = gang_rate(np.array([[1], [4]]), np.array([[0.0, 1e-5]]))
    assert efficiency(daly_interval(30.0, rate), 30.0, 60.0, rate).shape == (2, 2)


def test_spot_is_cheaper_until_it_is_taken_away_too_often() -> None:
    own = NodeGroup("o", "A100", 8, 8, 96.0, 1e12, price=0.009)
    safe = expected_run(10 * HOUR, own, 4, Checkpoint(seconds=60, restart=120))
    seldom = expected_run(10 * HOUR, spot(1 / (12 * HOUR)), 4, Checkpoint(seconds=60, restart=120))
    often = expected_run(10 * HOUR, spot(1 / 600), 4, Checkpoint(seconds=60, restart=120))
    assert seldom.seconds > safe.seconds
    assert seldom.dollars < 0.5 * safe.dollars
    assert often.dollars > safe.dollars
    assert safe.interval > seldom.interval > often.interval


def test_an_interval_of_ones_own_is_kept() -> None:
    assert expected_run(HOUR, spot(1e-5), 1, Checkpoint(interval=100.0)).interval == 100.0


def test_the_latest_switch_leaves_time_for_what_on_demand_takes() -> None:
    refuge = Refuge(provisioning=100.0, rate=0.0)
    checkpoint = Checkpoint(seconds=0.0, restart=50.0)
    assert latest_switch(10_000.0, 3000.0, refuge, checkpoint) == 10_000 - 3000 - 150
    assert not must_leave_spot(6000.0, 6300.0, 10_000.0, 3000.0, refuge, checkpoint)
    assert must_leave_spot(6600.0, 6900.0, 10_000.0, 3000.0, refuge, checkpoint)


def test_a_lost_deadline_is_no_reason_to_pay() -> None:
    assert not must_leave_spot(9000.0, 9300.0, 10_000.0, 3000.0, Refuge(), Checkpoint())


@settings(deadline=None)
@given(st.floats(600.0, 1e6), st.floats(0.5, 0.999))
def test_who_wants_to_be_surer_leaves_no_later(useful: float, confidence: float) -> None:
    checkpoint = Checkpoint(seconds=60.0, restart=120.0)
    unsure = Refuge(rate=1e-6, confidence=confidence).seconds(useful, checkpoint)
    sure = Refuge(rate=1e-6, confidence=(1 + confidence) / 2).seconds(useful, checkpoint)
    assert useful < unsure <= sure


def finish(stay: bool, random: np.random.Generator, deadline: float) -> float:
    """A job of 4 hours on spot nodes that are lost every hour; looks every minute; saves every 5 minutes."""
    every, look, rate = 300.0, 60.0, 1 / HOUR
    checkpoint = Checkpoint(seconds=10.0, restart=60.0, interval=every)
    refuge = Refuge(provisioning=120.0, rate=1 / (20 * HOUR), confidence=0.95)
    now, saved, unsaved, back = 0.0, 0.0, 0.0, 0.0
    while saved < 4 * HOUR:
        if not stay and must_leave_spot(now, now + look, deadline, 4 * HOUR - saved, refuge, checkpoint):
            left = 4 * HOUR - saved
            start = now + refuge.provisioning + checkpoint.restart
            return start + run(left, every, checkpoint.seconds, checkpoint.restart, refuge.rate, random)
        now += look
        if now < back:
            continue
        unsaved += look
        if random.random() < rate * look:
            unsaved, back = 0.0, now + 900.0 + checkpoint.restart  # it takes a while to get spot nodes again
        elif unsaved >= every:
            saved, unsaved = saved + unsaved, 0.0
    return now


def test_leaving_spot_in_time_keeps_the_deadline_as_often_as_was_asked() -> None:
    deadline = 5.2 * HOUR
    random = np.random.default_rng(3)
    stayed = np.mean([finish(True, random, deadline) <= deadline for _ in range(150)])
    left = np.mean([finish(False, random, deadline) <= deadline for _ in range(150)])
    assert stayed < 0.75
    assert left > 0.93
