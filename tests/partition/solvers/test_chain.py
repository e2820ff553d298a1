"""The dynamic program finds the best of all cuts, and respects memory and links."""

from collections.abc import Callable

import numpy as np
import pytest
from trimtab_bench.partition.small import FAMILIES, random_graph

from trimtab.partition import Layout, Recipe, devices_of
from trimtab.partition.problem import CutProblem, problem_of
from trimtab.partition.solvers.chain import (
    ChainSolver,
    places_of_order,
    places_of_sets,
    states_of_classes,
    states_of_order,
)
from trimtab.partition.solvers.cutting import classes_of

MakeProblem = Callable[..., CutProblem]


@pytest.mark.parametrize("family", list(FAMILIES))
@pytest.mark.parametrize(
    "options",
    [
        {"microbatches": 1},
        {"microbatches": 8},
        {"microbatches": 8, "memory": 0.6e9},
        {"microbatches": 8, "memory": 0.6e9, "recompute": True},
        {"microbatches": 4, "schedule": "gpipe"},
        {"microbatches": 4, "training": False},
    ],
)
def test_over_all_sets_it_is_the_best_of_all_cuts(
    make_problem: MakeProblem,
    best_of_all: Callable[[CutProblem], float],
    family: str,
    options: dict[str, object],
) -> None:
    problem = make_problem(family, 7, 3, seed=len(family), **options)
    places, whole = places_of_sets(problem, 1000)
    assert whole
    states = states_of_classes(problem, classes_of(problem), 1000)
    assert states is not None
    result = ChainSolver(places, states).best()
    best = best_of_all(problem)
    if result is None:
        assert best == np.inf
    else:
        assert result.seconds == pytest.approx(best, rel=1e-6)
        assert problem.seconds(result.stage_of, result.row_of) == pytest.approx(result.seconds)


@pytest.mark.parametrize("options", ["t4:3", "a10g:1,p100:2", "t4:3/1"])
def test_devices_that_are_alike_still_hand_over_their_links(
    best_of_all: Callable[[CutProblem], float], options: str
) -> None:
    devices, layout = devices_of(options, "1Gbit"), Layout((8,), microbatches=4)
    rows = tuple(((device,),) for device in range(len(devices)))
    problem = problem_of(random_graph("layered", 7, 2), devices, Recipe(32), layout, rows)
    states = states_of_classes(problem, classes_of(problem), 1000)
    assert states is not None
    result = ChainSolver(places_of_sets(problem, 1000)[0], states).best()
    assert result is not None
    assert result.seconds == pytest.approx(best_of_all(problem), rel=1e-6)


def test_over_the_places_of_an_order_it_is_the_best_contiguous_cut(make_problem: MakeProblem) -> None:
    problem = make_problem("layered", 9, 3, seed=4, microbatches=4)
    states = states_of_classes(problem, classes_of(problem), 1000)
    assert states is not None
    result = ChainSolver(places_of_order(problem), states).best()
    assert result is not None
    best = np.inf
    for first in range(1, 9):
        for second in range(first, 9):
            stage_of = np.searchsorted([first, second], np.arange(9), side="right")
            _, stage_of = np.unique(stage_of, return_inverse=True)
            stages = stage_of.max() + 1
            for rows in np.ndindex(*(3,) * stages):
                if len(set(rows)) == stages:
                    best = min(best, problem.seconds(stage_of, rows))
    assert result.seconds <= best * (1 + 1e-9)


def test_in_a_given_order_of_rows_the_first_may_stay_unused(make_problem: MakeProblem) -> None:
    problem = make_problem("skips", 12, 3, seed=1, microbatches=1)
    result = ChainSolver(places_of_order(problem), states_of_order(problem, (2, 1, 0))).best()
    assert result is not None
    assert result.row_of == (0,)  # one micro-batch is fastest on the fastest device alone


def test_nothing_fits_is_no_cut(make_problem: MakeProblem) -> None:
    problem = make_problem("skips", 12, 3, seed=1, memory=1e6)
    assert ChainSolver(places_of_order(problem), states_of_order(problem, (0, 1, 2))).best() is None


def test_too_many_ways_to_use_rows_are_not_listed(make_problem: MakeProblem) -> None:
    problem = make_problem("skips", 12, 3, seed=1)
    assert states_of_classes(problem, [[0], [1], [2]], 10) is None
