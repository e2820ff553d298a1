"""The best cut found is legal, close to the best there is, and better with more effort."""

from collections.abc import Callable
from dataclasses import replace
from time import monotonic

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from trimtab_bench.partition.small import FAMILIES

from trimtab.partition.graph import Ints
from trimtab.partition.problem import CutProblem
from trimtab.partition.solvers.chain import Cut, narrow_order, places_of_sets
from trimtab.partition.solvers.cutting import (
    QUICK,
    CutEffort,
    annealed,
    best_cut,
    classes_of,
    improved,
    polished,
)

MakeProblem = Callable[..., CutProblem]


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    family=st.sampled_from(list(FAMILIES)),
    nodes=st.integers(5, 30),
    seed=st.integers(0, 99),
    memory=st.sampled_from([40e9, 1.5e9]),
)
def test_a_cut_is_legal_and_fits(
    make_problem: MakeProblem, family: str, nodes: int, seed: int, memory: float
) -> None:
    problem = make_problem(family, nodes, 3, seed, memory=memory, microbatches=4)
    cut = best_cut(problem, CutEffort(seconds=0.2, moves=500, sets=60))
    if cut is None:
        return
    sources, targets, _ = problem.graph.edges
    assert (cut.stage_of[sources] <= cut.stage_of[targets]).all()
    assert set(cut.stage_of.tolist()) == set(range(len(cut.row_of)))
    assert len(set(cut.row_of)) == len(cut.row_of)
    cost = problem.cost(cut.stage_of, cut.row_of)
    assert cost.short <= 0.0
    assert cost.seconds == pytest.approx(cut.seconds)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_a_small_graph_is_cut_as_well_as_can_be(
    make_problem: MakeProblem, best_of_all: Callable[[CutProblem], float], family: str
) -> None:
    problem = make_problem(family, 7, 3, seed=11, microbatches=4)
    cut = best_cut(problem, CutEffort())
    assert cut is not None
    assert cut.seconds <= best_of_all(problem) * 1.0011


def test_few_places_at_a_time_come_close_to_all_at_once(make_problem: MakeProblem) -> None:
    problem = make_problem("skips", 300, 3, seed=5, microbatches=8)
    levels = best_cut(problem, CutEffort(places=40, sets=0, seconds=0.0))
    whole = best_cut(problem, CutEffort(places=400, sets=0, seconds=0.0))
    assert levels is not None
    assert whole is not None
    assert levels.seconds <= whole.seconds * 1.01


def test_moves_and_chance_only_make_a_cut_better(make_problem: MakeProblem) -> None:
    problem = make_problem("layered", 30, 3, seed=7, microbatches=8)
    stage_of = np.minimum(np.arange(30) // 10, 2).astype(np.int64)
    start = Cut(stage_of, (0, 1, 2), problem.seconds(stage_of, (0, 1, 2)))
    moved = improved(problem, start, monotonic() + 5)
    warm = annealed(problem, start, 3000, monotonic() + 5)
    for result in (moved, warm):
        assert result.seconds < start.seconds
        assert problem.seconds(result.stage_of, result.row_of) == pytest.approx(result.seconds)


def test_a_judge_of_its_own_decides_which_moves_are_better(make_problem: MakeProblem) -> None:
    problem = make_problem("layered", 24, 3, seed=3, microbatches=4)
    start = Cut(np.zeros(24, dtype=np.int64), (2,), 24.0)
    tried = list[tuple[int, ...]]()

    def judge(stage_of: Ints, row_of: tuple[int, ...]) -> float:
        """The largest stage's nodes; row 1 must not be used."""
        tried.append(row_of)
        sources, targets, _ = problem.graph.edges
        assert (stage_of[sources] <= stage_of[targets]).all()
        return np.inf if 1 in row_of else float(np.bincount(stage_of).max())

    result = polished(problem, start, (0, 1), judge, 200)
    assert (set(result.row_of), result.seconds) == ({0, 2}, 12.0)
    assert len(tried) <= 200
    few = len(tried)
    tried.clear()
    polished(problem, start, (0, 1), judge, few - 1)
    assert len(tried) == few - 1
    assert polished(problem, start, (), judge, 200) == start


def test_chance_keeps_to_memory(make_problem: MakeProblem) -> None:
    problem = make_problem("layered", 24, 3, seed=3, microbatches=4)
    start = best_cut(problem, QUICK)
    assert start is not None
    need = problem.cost(start.stage_of, start.row_of).row_memory.max()
    tight = replace(problem, capacity=np.full(3, need * 1.02))
    result = annealed(tight, start, 2000, monotonic() + 5)
    assert tight.cost(result.stage_of, result.row_of).short <= 0.0


def test_rows_that_are_alike_are_found_alike(make_problem: MakeProblem) -> None:
    problem = make_problem("skips", 10, 3, seed=1)
    assert classes_of(problem) == [[0], [1], [2]]
    same = replace(
        problem,
        forward=np.repeat(problem.forward[:1], 3, axis=0),
        backward=np.repeat(problem.backward[:1], 3, axis=0),
        once=np.repeat(problem.once[:1], 3, axis=0),
        row_once=np.repeat(problem.row_once[:1], 3),
        hand_rate=np.full((3, 3), 1e9),
        hand_latency=np.zeros((3, 3)),
    )
    assert classes_of(same) == [[0, 1, 2]]
    assert classes_of(replace(same, hand_rate=same.hand_rate + np.diag([0, 5.0], 1) * 1e8)) != [[0, 1, 2]]


def test_a_narrow_order_keeps_fewer_bytes_waiting(make_problem: MakeProblem) -> None:
    graph = make_problem("layered", 40, 3, seed=2).graph
    order = narrow_order(graph)
    assert sorted(order.tolist()) == list(range(40))
    assert graph.reordered(order).cut_bytes().sum() <= graph.cut_bytes().sum() * 1.02


def test_of_many_sets_those_with_few_bytes_are_kept(make_problem: MakeProblem) -> None:
    problem = make_problem("layered", 30, 3, seed=2)
    places, whole = places_of_sets(problem, 100)
    assert not whole
    assert 30 <= len(places) <= 110
    assert places.crossing[0] == 0.0
    assert places.crossing[-1] == 0.0
