"""Our search on a forecast: what it proposes first, what it hopes for, when it has nothing to propose."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab.predict.fewshot import settings_table
from trimtab.tune import Choice, Observation, Space, Stop
from trimtab.tune.forecast_search import ForecastSearch
from trimtab.tune.rule_forecast import RuleForecast

CPUS = np.array([1.0, 2.0, 4.0, 8.0])
SPACE = Space(tuple("abcd"), settings_table(4, cpus=CPUS), np.array([1.0, 1.5, 4.5, 10.0]))
SECONDS = 800.0 / CPUS
FITS = np.ones(4)


def search(objective: str = "cost", fits: np.ndarray = FITS) -> ForecastSearch:
    return ForecastSearch(SPACE, objective, RuleForecast(SPACE, SECONDS, fits))


@pytest.mark.parametrize(("objective", "first"), [("cost", 1), ("time", 3)])
def test_it_begins_with_the_best_forecast(objective: str, first: int) -> None:
    choice = search(objective).next([])
    assert isinstance(choice, Choice)
    assert choice.row == first
    assert choice.expected_gain is not None
    assert choice.expected_gain > 0
    assert "forecast to be the best" in choice.reason


def test_what_is_not_expected_to_have_the_memory_is_not_proposed() -> None:
    choice = search(fits=np.array([1.0, 0.0, 1.0, 1.0])).next([])
    assert isinstance(choice, Choice)
    assert choice.row == 0
    assert isinstance(search(fits=np.zeros(4)).next([]), Stop)


@given(st.permutations(range(4)), st.lists(st.booleans(), min_size=4, max_size=4), st.floats(0.2, 5.0))
def test_nothing_is_proposed_twice_and_it_ends(rows: list[int], oks: list[bool], off: float) -> None:
    seen: list[Observation] = []
    for row in rows:
        choice = search().next(seen)
        if isinstance(choice, Choice):
            assert choice.row not in [one.row for one in seen]
            assert choice.expected_gain is not None
            assert choice.expected_gain >= 0
        seconds = SECONDS[row] * off if oks[row] else float("nan")
        seen.append(Observation(row, float(seconds), oks[row]))
    assert isinstance(search().next(seen), Stop)


def test_a_short_look_may_be_followed_by_a_full_one() -> None:
    seen = [Observation(1, float(SECONDS[1]), fidelity=1 / 3)]
    tried = [search().next([*seen, *(Observation(row, 1e6) for row in (0, 2, 3))])]
    assert isinstance(tried[0], Choice)
    assert tried[0].row == 1


def test_trials_move_the_forecast_of_all_and_narrow_it() -> None:
    before = search().belief([])
    after = search().belief([Observation(1, 2.0 * float(SECONDS[1]))])
    assert (after.value > 1.2 * before.value).all()
    assert (after.high / after.low < before.high / before.low).all()
    assert after.low[1] < 2.0 * SECONDS[1] * SPACE.price_per_second[1] < after.high[1]
    assert (after.low <= after.value).all()
    assert (after.value <= after.high).all()


def test_the_less_there_is_to_gain_the_less_is_expected() -> None:
    gains = []
    for found in (1.0, 0.7, 0.4):
        choice = search().next([Observation(1, found * float(SECONDS[1]))])
        assert isinstance(choice, Choice)
        gains.append(choice.expected_gain)
    worse = search().next([Observation(1, 3.0 * float(SECONDS[1])), Observation(0, float(SECONDS[0]))])
    assert isinstance(worse, Choice)
    assert worse.row != 1
    assert all(gain is not None and gain < 0.3 for gain in gains)
