"""A coarse graph adds up to the fine one, and a cut of it is a cut of the fine one."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from trimtab_bench.partition.random_graphs import FAMILIES, random_graph

from trimtab.partition import Devices, Graph, Layout, Recipe, SearchSettings, devices_of, solve
from trimtab.partition.coarse import coarsened
from trimtab.partition.cost.node_times import NodeTimes
from trimtab.partition.problem import problem_of
from trimtab.partition.solvers.cutting import Effort

ROWS = (((0,),), ((2,),))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(family=st.sampled_from(list(FAMILIES)), seed=st.integers(0, 99), most=st.integers(3, 40))
def test_everything_adds_up(family: str, seed: int, most: int) -> None:
    fine = random_graph(family, 120, seed)
    coarse = coarsened(fine, most)
    assert 2 <= len(coarse.graph) <= most + 1
    for name in ("flop", "traffic", "parameters", "saved", "calls"):
        assert getattr(coarse.graph, name).sum() == pytest.approx(getattr(fine, name).sum())
    for place, start in enumerate(coarse.starts.tolist()):
        assert coarse.graph.cut_bytes()[place] == pytest.approx(fine.cut_bytes()[start], rel=1e-6, abs=1.0)


def test_a_cut_of_the_coarse_graph_costs_what_it_costs_in_the_fine_one(four: Devices) -> None:
    fine = random_graph("layered", 200, 3)
    coarse = coarsened(fine, 30)
    recipe, layout = Recipe(32), Layout((8,), microbatches=4)
    times = NodeTimes(fine, recipe, coarse=coarse)
    small = problem_of(coarse.graph, four, recipe, layout, ROWS, times=times)
    large = problem_of(fine, four, recipe, layout, ROWS)
    stage_of = (np.arange(len(coarse.graph)) >= 12).astype(np.int64)
    assert small.seconds(stage_of, (0, 1)) == pytest.approx(
        large.seconds(coarse.spread(stage_of), (0, 1)), rel=1e-3
    )


def test_shared_weights_of_one_coarse_node_count_once(make_graph: Callable[..., Graph]) -> None:
    graph = make_graph(blocks=8)
    whole = coarsened(graph, 1)
    assert whole.graph.ties == ()
    assert whole.graph.total_parameters == graph.total_parameters
    assert coarsened(graph, 6).graph.total_parameters == graph.total_parameters


def test_a_very_large_graph_gets_a_plan_for_its_own_nodes() -> None:
    graph = random_graph("ordered", 3000, 1)
    few = SearchSettings(effort=Effort(places=60, seconds=0.1), finalists=2, most_tensor=1, most_replicas=1)
    found = solve(graph, devices_of("h200:2,h100:6", "25Gbit"), Recipe(16), few)
    assert sorted(node for stage in found.plan.stages for node in stage.nodes) == list(range(3000))
    assert found.forecast.fits
