"""The renewal formula: its optimum is one, it adds up, and a simulation of the process agrees."""

import math
import random

import pytest
from hypothesis import given, strategies as st

from trimtab.core import daly_interval, young_interval
from trimtab.fabric.advice import (
    Costs,
    best_interval,
    time_split,
    useful_share,
)

RATES = st.floats(1e-8, 1e-2)
SECONDS = st.floats(0.01, 1000.0)


@given(SECONDS, RATES, SECONDS, SECONDS, st.floats(0.3, 3.0))
def test_no_other_interval_is_better(
    saving: float, rate: float, noticing: float, restarting: float, factor: float
) -> None:
    costs = Costs(saving, noticing, restarting)
    best = best_interval(saving, rate)
    assert useful_share(best, rate, costs) >= useful_share(best * factor, rate, costs) * (1 - 1e-12)


@given(SECONDS, RATES)
def test_the_rules_come_close_where_saving_is_cheap(saving: float, rate: float) -> None:
    best = best_interval(saving, rate)
    small = math.sqrt(saving * rate)
    assert best <= young_interval(saving, rate) * (1 + 1e-6)
    if small < 0.1:
        assert young_interval(saving, rate) == pytest.approx(best, rel=small)
        assert daly_interval(saving, rate) == pytest.approx(best, rel=max(small**3, 1e-8))


@given(SECONDS, RATES, SECONDS, SECONDS, st.floats(0.01, 3.0))
def test_all_time_is_accounted_for(
    saving: float, rate: float, noticing: float, restarting: float, of_the_best: float
) -> None:
    interval = of_the_best * float(best_interval(saving, rate))
    split = time_split(interval, rate, Costs(saving, noticing, restarting))
    parts = (split.useful, split.saving, split.noticing, split.restarting, split.redone)
    assert min(parts) >= 0.0
    assert sum(parts) == pytest.approx(1.0, abs=1e-6)


def test_without_interruptions_only_saving_costs() -> None:
    assert useful_share(90.0, 0.0, Costs(10.0, 60.0, 60.0)) == pytest.approx(0.9)
    assert useful_share(90.0, 1e-15, Costs(10.0, 60.0, 60.0)) == pytest.approx(0.9)
    assert best_interval(10.0, 0.0) == math.inf


def test_a_job_that_is_always_interrupted_does_nothing_useful() -> None:
    assert useful_share(1e6, 1.0, Costs(10.0, 60.0, 60.0)) == 0.0


def simulated(interval: float, rate: float, costs: Costs, saves: int, seed: int) -> float:
    """Useful over all time of a job that is really interrupted, until it has saved so often."""
    chance = random.Random(seed)
    now = 0.0
    for _ in range(saves):
        while (alive := chance.expovariate(rate)) < interval + costs.saving:
            now += alive + costs.noticing
            while (alive := chance.expovariate(rate)) < costs.restarting:
                now += alive + costs.noticing
            now += costs.restarting
        now += interval + costs.saving
    return saves * interval / now


@pytest.mark.parametrize("interval", [300.0, 775.0, 2000.0])
def test_a_simulation_of_the_process_agrees(interval: float) -> None:
    costs = Costs(30.0, 400.0, 200.0)
    found = simulated(interval, 1e-3, costs, saves=20_000, seed=1)
    assert useful_share(interval, 1e-3, costs) == pytest.approx(found, rel=0.03)
