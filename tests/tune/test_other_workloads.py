"""Searching with other workloads' measurements: where it begins, whom it resembles, where it fails."""

import math

import numpy as np
import pytest
from searched_spaces import grid, trial, tried, workload

from trimtab.tune.other_workloads import OtherWorkloads
from trimtab.tune.searcher import Choice, Searcher, Stop
from trimtab.tune.space import Observation, Space

SMALL = [workload(f"small{work:g}", work) for work in (100.0, 200.0, 400.0)]
HUNGRY = [workload(f"hungry{work:g}", work, 100e9) for work in (100.0, 200.0, 400.0)]


def searcher(objective: str, others: list, space: Space | None = None, **options: float) -> Searcher:
    space = space or grid()
    return Searcher(space, objective, OtherWorkloads(space, others), **options)


def _first(objective: str, others: list) -> int:
    choice = searcher(objective, others).next([])
    assert isinstance(choice, Choice)
    return choice.row


@pytest.mark.parametrize("objective", ["cost", "time"])
def test_it_begins_where_the_others_are_best(objective: str) -> None:
    assert _first(objective, SMALL) == int(grid().values(objective, SMALL[0].seconds).argmin())


def test_it_does_not_begin_where_others_failed() -> None:
    assert HUNGRY[0].ok[_first("cost", HUNGRY)]
    assert not HUNGRY[0].ok[_first("cost", SMALL)]


def test_words_say_whom_it_is_like() -> None:
    from dataclasses import replace

    mixed = [replace(case, name=f"a{i}-light") for i, case in enumerate(SMALL)]
    mixed += [replace(case, name=f"b{i}-heavy") for i, case in enumerate(HUNGRY)]
    for word, alike in (("light", SMALL), ("heavy", HUNGRY)):
        space = replace(grid(), words=frozenset({word}))
        choice = searcher("cost", mixed, space).next([])
        assert isinstance(choice, Choice)
        assert choice.row == _first("cost", alike)


def test_after_a_failure_it_goes_where_failing_is_less_likely() -> None:
    others = [*SMALL, HUNGRY[0]]
    search = searcher("cost", others)
    first = search.next([])
    assert isinstance(first, Choice)
    assert not HUNGRY[1].ok[first.row]
    seen, _ = tried(search, HUNGRY[1], 3)
    assert any(one.ok for one in seen)


def test_a_workload_ten_times_as_large_is_found_at_once() -> None:
    """The level is free: only what goes with the configuration matters."""
    case = workload("searched", 4000.0)
    seen, _ = tried(searcher("cost", SMALL), case, 2)
    values = grid().values("cost", case.seconds)
    assert min(values[one.row] for one in seen) == values.min()


def test_without_other_workloads_it_searches_all_the_same() -> None:
    case = workload("searched", 1000.0)
    search = searcher("time", [])
    assert search.knowledge.belief([]) is None
    seen, _ = tried(search, case, 6)
    assert min(case.seconds[one.row] for one in seen) <= 1.1 * case.seconds.min()


def test_its_belief_holds_and_narrows() -> None:
    case = workload("searched", 4000.0)
    search = searcher("cost", SMALL)
    wide, narrow = (
        search.knowledge.belief([]),
        search.knowledge.belief([trial(case, row) for row in (0, 4, 8)]),
    )
    assert wide is not None
    assert narrow is not None
    assert (narrow.high / narrow.low < wide.high / wide.low).all()
    assert ((narrow.low <= case.seconds) & (case.seconds <= narrow.high)).mean() >= 0.9


def test_a_short_trial_says_less_than_a_full_one() -> None:
    case = workload("searched", 4000.0)
    search = searcher("cost", SMALL)
    widths = []
    for fidelity in (1.0, 0.05):
        belief = search.knowledge.belief([Observation(0, float(case.seconds[0]), fidelity=fidelity)])
        assert belief is not None
        widths.append(float(np.log(belief.high[0] / belief.low[0])))
    assert widths[0] < widths[1]


def test_the_promise_shrinks_until_it_stops() -> None:
    case = workload("searched", 4000.0)
    seen, stop = tried(searcher("cost", SMALL, stop_below=0.02), case)
    assert isinstance(stop, Stop)
    assert "promises 2%" in stop.reason
    assert 1 <= len(seen) < len(grid())


def test_metrics_tell_workloads_apart_that_take_as_long() -> None:
    from dataclasses import replace

    from trimtab.predict.fewshot.case import metrics_table

    busy = [replace(c, metrics=metrics_table(len(c), bytes_read=1e9)) for c in SMALL]
    steep = [
        replace(c, name=f"steep{i}", seconds=c.seconds**2, metrics=metrics_table(len(c), bytes_read=1.0))
        for i, c in enumerate(SMALL)
    ]
    search = searcher("time", [*busy, *steep])
    beliefs = []
    for shown in (1e9, 1.0):
        belief = search.knowledge.belief([Observation(5, 20.0, metrics={"bytes_read": shown})])
        assert belief is not None
        beliefs.append(belief.value[0] / belief.value[5])
    assert beliefs[1] > beliefs[0]


def test_workloads_that_never_completed_teach_only_that() -> None:
    never = workload("never", 100.0, math.inf)
    search = searcher("cost", [never])
    assert isinstance(search.next([]), Choice)
    seen, _ = tried(search, workload("searched", 1000.0), 4)
    assert len({one.row for one in seen}) == 4


def test_others_measured_elsewhere_are_drawn_here() -> None:
    """No configuration is the same; their settings say what they have in common."""
    from dataclasses import replace

    renamed = [replace(case, configurations=tuple(f"x {n}" for n in case.configurations)) for case in SMALL]
    row = _first("cost", renamed)
    values = grid().values("cost", SMALL[0].seconds)
    assert values[row] <= 1.3 * values.min()
