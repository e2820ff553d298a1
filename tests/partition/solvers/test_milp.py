"""The program says of every cut what the problem says, and finds the best of all of them."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from trimtab_bench.partition.small import FAMILIES

from trimtab.partition.graph import Tie
from trimtab.partition.problem import CutProblem
from trimtab.partition.solvers.milp import CutProgram, solve_exactly

LAYOUTS = [
    {"microbatches": 1},
    {"microbatches": 4},
    {"microbatches": 4, "recompute": True},
    {"microbatches": 4, "schedule": "gpipe"},
]


def _random_cut(problem: CutProblem, seed: int) -> tuple[np.ndarray, tuple[int, ...]]:
    """Stages that follow the edges, and rows in any order."""
    draw = np.random.default_rng(seed)
    stages = int(draw.integers(1, len(problem.rows) + 1))
    cuts = np.sort(draw.choice(np.arange(1, len(problem.graph)), stages - 1, replace=False))
    stage_of = np.searchsorted(cuts, np.arange(len(problem.graph)), side="right")
    return stage_of, tuple(draw.permutation(len(problem.rows))[:stages].tolist())


def _priced(problem: CutProblem, stage_of: np.ndarray, row_of: tuple[int, ...]) -> float:
    """What the program says of one cut, all its choices being made."""
    cut = CutProgram(problem)
    first = len(problem.rows) - len(row_of)
    for node, stage in enumerate(stage_of):
        for k in range(len(problem.rows)):
            cut.program.equal([(cut.before[node, k], 1.0)], float(stage + first <= k))
    for k in range(len(problem.rows)):
        for row in range(len(problem.rows)):
            cut.program.equal([(cut.runs[k, row], 1.0)], float(k >= first and row_of[k - first] == row))
    result = cut.program.solve(30.0, 0.0)
    return np.inf if result.values is None else result.bound / cut.unit


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    family=st.sampled_from(list(FAMILIES)),
    seed=st.integers(0, 999),
    options=st.sampled_from(LAYOUTS),
    overlapped=st.booleans(),
)
def test_it_says_of_any_cut_what_the_problem_says(
    make_problem: Callable[..., CutProblem],
    family: str,
    seed: int,
    options: dict[str, object],
    overlapped: bool,
) -> None:
    problem = replace(make_problem(family, 12, 3, seed, memory=2.5e9, **options), overlapped=overlapped)
    stage_of, row_of = _random_cut(problem, seed)
    assert _priced(problem, stage_of, row_of) == pytest.approx(problem.seconds(stage_of, row_of), rel=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("options", LAYOUTS, ids=str)
def test_no_cut_is_better_than_the_one_it_proves(
    make_problem: Callable[..., CutProblem],
    best_of_all: Callable[[CutProblem], float],
    family: str,
    options: dict[str, object],
) -> None:
    problem = make_problem(family, 7, 3, seed=0, memory=0.4e9, **options)
    result = solve_exactly(problem, gap=0.0)
    best = best_of_all(problem)
    assert result.proven
    assert np.isfinite(best)
    assert result.seconds == pytest.approx(best, rel=1e-6)
    assert result.bound == pytest.approx(best, rel=1e-5)
    assert result.stage_of is not None
    assert problem.seconds(result.stage_of, result.row_of) == result.seconds


def test_in_inference_nothing_comes_back(
    make_problem: Callable[..., CutProblem], best_of_all: Callable[[CutProblem], float]
) -> None:
    problem = make_problem("skips", 7, 3, seed=1, training=False, microbatches=8)
    assert solve_exactly(problem, gap=0.0).seconds == pytest.approx(best_of_all(problem), rel=1e-6)


def test_memory_that_is_short_costs_time(make_problem: Callable[..., CutProblem]) -> None:
    much, little = (make_problem("ordered", 8, 3, seed=0, memory=m, microbatches=4) for m in (0.8e9, 0.3e9))
    assert solve_exactly(much).seconds < solve_exactly(little).seconds < np.inf


def test_a_shared_weight_counts_once_where_its_users_are_together(
    make_problem: Callable[..., CutProblem], best_of_all: Callable[[CutProblem], float]
) -> None:
    problem = make_problem("skips", 7, 2, seed=0, memory=0.75e9, microbatches=4)
    problem = replace(problem, hand_rate=np.zeros((2, 2)))
    parameters = problem.graph.parameters.copy()
    parameters[[1, 4]] = 2.5e7
    tied = replace(problem.graph, parameters=parameters, ties=(Tie((1, 4), 2.5e7),))
    problem = replace(problem, graph=tied, resident=16.0 * parameters)
    assert solve_exactly(problem, gap=0.0).seconds == pytest.approx(best_of_all(problem), rel=1e-6)
    apart = replace(problem, graph=replace(tied, ties=()))
    assert solve_exactly(apart, gap=0.0).stage_of is None


def test_rows_that_are_not_joined_do_not_follow_each_other(make_problem: Callable[..., CutProblem]) -> None:
    problem = make_problem("layered", 10, 2, seed=0, microbatches=8)
    assert len(solve_exactly(problem).row_of) == 2
    apart = replace(problem, hand_rate=np.zeros((2, 2)))
    assert len(solve_exactly(apart).row_of) == 1


def test_where_nothing_fits_it_says_so(make_problem: Callable[..., CutProblem]) -> None:
    result = solve_exactly(make_problem("layered", 10, 3, seed=0, memory=1e8))
    assert (result.stage_of, result.seconds, result.proven) == (None, np.inf, True)


def test_out_of_time_it_has_a_bound_and_no_proof(make_problem: Callable[..., CutProblem]) -> None:
    result = solve_exactly(make_problem("ordered", 40, 4, seed=0, microbatches=8), time_limit=0.2)
    assert not result.proven
    assert result.bound <= result.seconds
