"""Laws of every way to search."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from searched_spaces import grid, trial, tried, workload

from trimtab.core import BadInputError
from trimtab.predict.fewshot import settings_table
from trimtab.tune import METHODS, CherryPick, Choice, Method, Observation, Space, Stop, best_row
from trimtab.tune.method import Trials

pytest.importorskip("sklearn", reason="two of the methods need scikit-learn")

ENDLESS = {**METHODS, "cherrypick": CherryPick(stop_below=0.0)}
OTHERS = [workload("first", 300.0), workload("second", 5000.0, 30e9), workload("third", 90.0)]
every_method = pytest.mark.parametrize("method", ENDLESS.values(), ids=ENDLESS.keys())


@every_method
def test_no_configuration_is_tried_twice_and_the_end_has_a_reason(method: Method) -> None:
    case = workload("searched", 1000.0, 20e9)
    seen, stop = tried(method.begin(grid(), "cost", OTHERS, 0), case)
    assert sorted(one.row for one in seen) == list(range(len(grid())))
    assert stop == Stop("every configuration has been tried")


@every_method
@pytest.mark.parametrize("objective", ["cost", "time"])
def test_the_same_seed_tries_the_same(method: Method, objective: str) -> None:
    case = workload("searched", 1000.0, 20e9)
    once, again = (tried(method.begin(grid(), objective, OTHERS, 7), case, 7)[0] for _ in range(2))
    assert once == again


@every_method
def test_a_search_in_the_middle_is_taken_up_by_another(method: Method) -> None:
    """A search keeps nothing: what was seen is all it needs."""
    case = workload("searched", 1000.0)
    search = method.begin(grid(), "time", OTHERS, 3)
    seen, _ = tried(search, case, 5)
    assert method.begin(grid(), "time", OTHERS, 3).next(seen) == search.next(seen)


@every_method
def test_a_space_of_one_is_tried_once(method: Method) -> None:
    only = Space(("only",), settings_table(1, cpus=2.0, nodes=1.0, price_per_hour=1.0), np.ones(1))
    search = method.begin(only, "cost", [], 0)
    choice = search.next([])
    assert isinstance(choice, Choice)
    assert choice.row == 0
    assert isinstance(search.next([Observation(0, 1.0)]), Stop)


@every_method
def test_nothing_but_failures_still_finds_what_is_left(method: Method) -> None:
    search = method.begin(grid(), "cost", [], 0)
    failed = [Observation(row, math.nan, ok=False) for row in range(1, len(grid()))]
    choice = search.next(failed)
    assert isinstance(choice, Choice)
    assert choice.row == 0


@every_method
def test_a_short_trial_leaves_the_configuration_to_be_tried_whole(method: Method) -> None:
    case = workload("searched", 1000.0)
    short = [Observation(row, float(case.seconds[row]), fidelity=0.1) for row in range(len(grid()))]
    assert isinstance(method.begin(grid(), "cost", OTHERS, 0).next(short), Choice)


@every_method
def test_a_trial_of_no_configuration_is_refused(method: Method) -> None:
    with pytest.raises(BadInputError, match="only 12 configurations"):
        method.begin(grid(), "cost", OTHERS, 0).next([Observation(12, 1.0)])


@every_method
def test_a_belief_is_a_range_around_a_value(method: Method) -> None:
    case = workload("searched", 1000.0)
    belief = method.begin(grid(), "cost", OTHERS, 0).belief([trial(case, row) for row in (0, 5, 9)])
    if belief is not None:
        assert (belief.low <= belief.value).all()
        assert (belief.value <= belief.high).all()
        assert np.isfinite(belief.high).all()


@given(st.lists(st.tuples(st.integers(0, 11), st.booleans(), st.floats(0.01, 1e5)), min_size=1, max_size=20))
@settings(max_examples=50, deadline=None)
def test_a_failed_configuration_is_never_the_answer(shown: list[tuple[int, bool, float]]) -> None:
    seen = [Observation(row, seconds, ok) for row, ok, seconds in shown]
    answer = best_row(grid(), "cost", seen)
    completed = [one for one in seen if one.ok]
    assert (answer is None) == (not completed)
    if answer is not None:
        least = min(float(grid().values("cost", one.seconds, np.array([one.row]))[0]) for one in completed)
        assert any(one.row == answer for one in completed)
        own = [one for one in completed if one.row == answer]
        assert least in [float(grid().values("cost", one.seconds, np.array([one.row]))[0]) for one in own]


def test_a_full_trial_is_believed_before_a_short_one() -> None:
    seen = [Observation(0, 1.0, fidelity=0.1), Observation(1, 500.0)]
    assert best_row(grid(), "time", seen) == 1


def test_failures_count_as_twice_the_worst_where_a_model_knows_none() -> None:
    seen = [Observation(0, 10.0), Observation(1, 30.0), Observation(2, math.nan, ok=False)]
    rows, values = Trials.of(grid(), "time", seen).punished()
    assert rows.tolist() == [0, 1, 2]
    assert values.tolist() == [10.0, 30.0, 60.0]
