"""Laws of the searcher, whatever is known: a forecast, other workloads, or nothing."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, strategies as st
from searched_spaces import grid, trial, tried, workload

from trimtab.core import BadInputError
from trimtab.predict.fewshot.case import settings_table
from trimtab.tune.job_forecast import JobForecast
from trimtab.tune.other_workloads import OtherWorkloads
from trimtab.tune.searcher import Choice, Searcher, Stop
from trimtab.tune.space import Observation, Space

OTHERS = [workload("first", 300.0), workload("second", 5000.0, 30e9), workload("third", 90.0)]
Begin = Callable[[Space, str], Searcher]


def with_others(space: Space, objective: str) -> Searcher:
    others = OTHERS if len(space) == len(grid()) else []
    return Searcher(space, objective, OtherWorkloads(space, others), 3)


def with_nothing(space: Space, objective: str) -> Searcher:
    return Searcher(space, objective, OtherWorkloads(space), 3)


def at_random(space: Space, objective: str) -> Searcher:
    return Searcher(space, objective, OtherWorkloads(space), 3, at_random=True)


def with_rule(space: Space, objective: str) -> Searcher:
    return Searcher(space, objective, rule_forecast(space, 1000.0 / np.arange(1.0, len(space) + 1)))


def rule_forecast(space: Space, seconds: np.ndarray, fits: np.ndarray | None = None) -> JobForecast:
    """A forecast by the rule alone, which needs no local run."""
    ones = np.ones(len(space))
    fits = ones if fits is None else fits
    return JobForecast(space, None, ones, None, seconds, ones, fits, None, 0, "alone", "alone")  # type: ignore[arg-type]


every_knowledge = pytest.mark.parametrize("search", [with_others, with_nothing, with_rule, at_random])


@every_knowledge
def test_no_configuration_is_tried_twice_and_the_end_has_a_reason(search: Begin) -> None:
    case = workload("searched", 1000.0, 20e9)
    seen, stop = tried(search(grid(), "cost"), case)
    assert sorted(one.row for one in seen) == list(range(len(grid())))
    assert stop == Stop("every configuration has been tried")


@every_knowledge
@pytest.mark.parametrize("objective", ["cost", "time"])
def test_the_same_seed_tries_the_same(search: Begin, objective: str) -> None:
    case = workload("searched", 1000.0, 20e9)
    once, again = (tried(search(grid(), objective), case, 7)[0] for _ in range(2))
    assert once == again


@every_knowledge
def test_a_search_in_the_middle_is_taken_up_by_another(search: Begin) -> None:
    """A search keeps nothing: what was seen is all it needs."""
    case = workload("searched", 1000.0)
    begun = search(grid(), "time")
    seen, _ = tried(begun, case, 5)
    assert search(grid(), "time").next(seen) == begun.next(seen)


@every_knowledge
def test_a_space_of_one_is_tried_once(search: Begin) -> None:
    only = Space(("only",), settings_table(1, cpus=2.0, nodes=1.0, price_per_hour=1.0), np.ones(1))
    begun = search(only, "cost")
    choice = begun.next([])
    assert isinstance(choice, Choice)
    assert choice.row == 0
    assert isinstance(begun.next([Observation(0, 1.0)]), Stop)


@every_knowledge
def test_nothing_but_failures_still_finds_what_is_left(search: Begin) -> None:
    failed = [Observation(row, math.nan, ok=False) for row in range(1, len(grid()))]
    choice = search(grid(), "cost").next(failed)
    assert isinstance(choice, Choice)
    assert choice.row == 0


@every_knowledge
def test_a_short_trial_leaves_the_configuration_to_be_tried_whole(search: Begin) -> None:
    case = workload("searched", 1000.0)
    short = [Observation(row, float(case.seconds[row]), fidelity=0.1) for row in range(len(grid()))]
    assert isinstance(search(grid(), "cost").next(short), Choice)


@every_knowledge
def test_a_trial_of_no_configuration_is_refused(search: Begin) -> None:
    with pytest.raises(BadInputError, match="12 configurations"):
        search(grid(), "cost").next([Observation(12, 1.0)])


@every_knowledge
def test_a_belief_is_a_range_around_a_value(search: Begin) -> None:
    case = workload("searched", 1000.0)
    belief = search(grid(), "cost").knowledge.belief([trial(case, row) for row in (0, 5, 9)])
    if belief is not None:
        assert (belief.low <= belief.value).all()
        assert (belief.value <= belief.high).all()
        assert np.isfinite(belief.high).all()


CPUS = np.array([1.0, 2.0, 4.0, 8.0])
SPACE = Space(tuple("abcd"), settings_table(4, cpus=CPUS), np.array([1.0, 1.5, 4.5, 10.0]))
SECONDS = 800.0 / CPUS
FITS = np.ones(4)


def by_rule(objective: str = "cost", fits: np.ndarray = FITS) -> Searcher:
    return Searcher(SPACE, objective, rule_forecast(SPACE, SECONDS, fits))


@pytest.mark.parametrize(("objective", "first"), [("cost", 1), ("time", 3)])
def test_it_begins_with_the_best_forecast(objective: str, first: int) -> None:
    choice = by_rule(objective).next([])
    assert isinstance(choice, Choice)
    assert choice.row == first
    assert choice.expected_gain is not None
    assert choice.expected_gain > 0
    assert "forecast to be the best" in choice.reason


def test_what_is_not_expected_to_have_the_memory_is_not_proposed() -> None:
    choice = by_rule(fits=np.array([1.0, 0.0, 1.0, 1.0])).next([])
    assert isinstance(choice, Choice)
    assert choice.row == 0
    assert isinstance(by_rule(fits=np.zeros(4)).next([]), Stop)


@given(st.permutations(range(4)), st.lists(st.booleans(), min_size=4, max_size=4), st.floats(0.2, 5.0))
def test_nothing_is_proposed_twice_and_it_ends(rows: list[int], oks: list[bool], off: float) -> None:
    seen: list[Observation] = []
    for row in rows:
        choice = by_rule().next(seen)
        if isinstance(choice, Choice):
            assert choice.row not in [one.row for one in seen]
            assert choice.expected_gain is not None
            assert choice.expected_gain >= 0
        seconds = SECONDS[row] * off if oks[row] else float("nan")
        seen.append(Observation(row, float(seconds), oks[row]))
    assert isinstance(by_rule().next(seen), Stop)


def test_a_short_look_may_be_followed_by_a_full_one() -> None:
    seen = [Observation(1, float(SECONDS[1]), fidelity=1 / 3)]
    tried = [by_rule().next([*seen, *(Observation(row, 1e6) for row in (0, 2, 3))])]
    assert isinstance(tried[0], Choice)
    assert tried[0].row == 1


def test_trials_move_the_forecast_of_all_and_narrow_it() -> None:
    before = by_rule().knowledge.belief([])
    after = by_rule().knowledge.belief([Observation(1, 2.0 * float(SECONDS[1]))])
    assert (after.value > 1.2 * before.value).all()
    assert (after.high / after.low < before.high / before.low).all()
    assert after.low[1] < 2.0 * SECONDS[1] < after.high[1]
    assert (after.low <= after.value).all()
    assert (after.value <= after.high).all()


def test_the_less_there_is_to_gain_the_less_is_expected() -> None:
    gains = []
    for found in (1.0, 0.7, 0.4):
        choice = by_rule().next([Observation(1, found * float(SECONDS[1]))])
        assert isinstance(choice, Choice)
        gains.append(choice.expected_gain)
    worse = by_rule().next([Observation(1, 3.0 * float(SECONDS[1])), Observation(0, float(SECONDS[0]))])
    assert isinstance(worse, Choice)
    assert worse.row != 1
    assert all(gain is not None and gain < 0.3 for gain in gains)
