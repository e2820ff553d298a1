"""CherryPick: its starts, its promise and its rule to stop."""

import pytest
from searched_spaces import grid, tried, workload

from trimtab.tune import CherryPick, Choice, RandomSearch

pytest.importorskip("sklearn", reason="the Gaussian process is scikit-learn's")


def test_it_starts_where_random_search_does() -> None:
    case = workload("searched", 1000.0)
    own = tried(CherryPick().begin(grid(), "cost", [], 4), case, 3)[0]
    assert own == tried(RandomSearch().begin(grid(), "cost", [], 4), case, 3)[0]


def test_it_stops_after_six_trials_at_the_earliest_and_says_why() -> None:
    seen, stop = tried(CherryPick().begin(grid(), "time", [], 0), workload("searched", 1000.0))
    assert stop is not None
    assert 6 <= len(seen) < len(grid())
    assert stop.reason == "no configuration promises 10% of the best value"


def test_it_finds_the_best_before_all_are_tried() -> None:
    case = workload("searched", 1000.0)
    best = int(grid().values("cost", case.seconds).argmin())
    found = []
    for seed in range(5):
        seen, _ = tried(CherryPick(stop_below=0.0).begin(grid(), "cost", [], seed), case, 8)
        found.append(best in [one.row for one in seen])
    assert sum(found) >= 4


def test_it_states_what_it_expects() -> None:
    search = CherryPick(stop_below=0.0).begin(grid(), "cost", [], 0)
    seen, _ = tried(search, workload("searched", 1000.0), 4)
    choice = search.next(seen)
    assert isinstance(choice, Choice)
    assert choice.expected_gain is not None
    assert choice.expected_gain >= 0
