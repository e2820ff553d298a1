"""The rivals: laws of all of them, CherryPick's starts and rule to stop, Ernest's law of machines."""

import math

import numpy as np
import pytest
from searched_spaces import grid, trial, tried, workload
from trimtab_bench.training_config.rivals import (
    SEARCHES,
    Begin,
    cherrypick,
    ernest,
    random_search,
    with_failures,
)

from trimtab.core import BadInputError
from trimtab.predict.fewshot.case import settings_table
from trimtab.tune.searcher import Choice, Stop
from trimtab.tune.space import Observation, Space, Trials

pytest.importorskip("sklearn", reason="two of the searches need scikit-learn")

OTHERS = [workload("first", 300.0), workload("second", 5000.0, 30e9), workload("third", 90.0)]
every_rival = pytest.mark.parametrize("begin", SEARCHES.values(), ids=SEARCHES.keys())


@every_rival
def test_no_configuration_is_tried_twice_and_the_end_has_a_reason(begin: Begin) -> None:
    case = workload("searched", 1000.0, 20e9)
    seen, stop = tried(begin(grid(), "cost", OTHERS, 0), case)
    assert sorted(one.row for one in seen) == list(range(len(grid())))
    assert stop == Stop("every configuration has been tried")


@every_rival
@pytest.mark.parametrize("objective", ["cost", "time"])
def test_the_same_seed_tries_the_same(begin: Begin, objective: str) -> None:
    case = workload("searched", 1000.0, 20e9)
    once, again = (tried(begin(grid(), objective, OTHERS, 7), case, 7)[0] for _ in range(2))
    assert once == again


@every_rival
def test_a_search_in_the_middle_is_taken_up_by_another(begin: Begin) -> None:
    """A search keeps nothing: what was seen is all it needs."""
    case = workload("searched", 1000.0)
    search = begin(grid(), "time", OTHERS, 3)
    seen, _ = tried(search, case, 5)
    assert begin(grid(), "time", OTHERS, 3).next(seen) == search.next(seen)


@every_rival
def test_a_space_of_one_is_tried_once(begin: Begin) -> None:
    only = Space(("only",), settings_table(1, cpus=2.0, nodes=1.0, price_per_hour=1.0), np.ones(1))
    search = begin(only, "cost", [], 0)
    choice = search.next([])
    assert isinstance(choice, Choice)
    assert choice.row == 0
    assert isinstance(search.next([Observation(0, 1.0)]), Stop)


@every_rival
def test_nothing_but_failures_still_finds_what_is_left(begin: Begin) -> None:
    search = begin(grid(), "cost", [], 0)
    failed = [Observation(row, math.nan, ok=False) for row in range(1, len(grid()))]
    choice = search.next(failed)
    assert isinstance(choice, Choice)
    assert choice.row == 0


@every_rival
def test_a_short_trial_leaves_the_configuration_to_be_tried_whole(begin: Begin) -> None:
    case = workload("searched", 1000.0)
    short = [Observation(row, float(case.seconds[row]), fidelity=0.1) for row in range(len(grid()))]
    assert isinstance(begin(grid(), "cost", OTHERS, 0).next(short), Choice)


@every_rival
def test_a_trial_of_no_configuration_is_refused(begin: Begin) -> None:
    with pytest.raises(BadInputError, match="12"):
        begin(grid(), "cost", OTHERS, 0).next([Observation(12, 1.0)])


def test_failures_count_as_twice_the_worst_where_a_model_knows_none() -> None:
    seen = [Observation(0, 10.0), Observation(1, 30.0), Observation(2, math.nan, ok=False)]
    rows, values = with_failures(Trials.of(grid(), "time", seen))
    assert rows.tolist() == [0, 1, 2]
    assert values.tolist() == [10.0, 30.0, 60.0]


def test_it_starts_where_random_search_does() -> None:
    case = workload("searched", 1000.0)
    own = tried(cherrypick(grid(), "cost", [], 4), case, 3)[0]
    assert own == tried(random_search(grid(), "cost", [], 4), case, 3)[0]


def test_it_stops_after_six_trials_at_the_earliest_and_says_why() -> None:
    seen, stop = tried(cherrypick(grid(), "time", [], 0, stop_below=0.1), workload("searched", 1000.0))
    assert stop is not None
    assert 6 <= len(seen) < len(grid())
    assert stop.reason == "no configuration promises 10% of the best value"


def test_it_finds_the_best_before_all_are_tried() -> None:
    case = workload("searched", 1000.0)
    best = int(grid().values("cost", case.seconds).argmin())
    found = []
    for seed in range(5):
        seen, _ = tried(cherrypick(grid(), "cost", [], seed), case, 8)
        found.append(best in [one.row for one in seen])
    assert sum(found) >= 4


def test_it_states_what_it_expects() -> None:
    search = cherrypick(grid(), "cost", [], 0)
    seen, _ = tried(search, workload("searched", 1000.0), 4)
    choice = search.next(seen)
    assert isinstance(choice, Choice)
    assert choice.expected_gain is not None
    assert choice.expected_gain >= 0


def test_it_predicts_the_best_number_of_machines_of_a_type_it_knows() -> None:
    case = workload("searched", 1000.0)
    search = ernest(grid(), "time", [], 0)
    small = [row for row, name in enumerate(grid().names) if name.startswith("small")]
    choice = search.next([trial(case, row) for row in small[:3]])
    assert isinstance(choice, Choice)
    assert case.seconds[choice.row] < case.seconds[small[:3]].min()


def test_configurations_without_a_number_of_machines_are_refused() -> None:
    space = Space(("one", "two"), settings_table(2, cpus=[1.0, 2.0]), np.ones(2))
    with pytest.raises(BadInputError, match="one"):
        ernest(space, "cost", [], 0)
