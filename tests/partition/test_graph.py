"""A graph knows its order, what crosses each place, and which weights are shared."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from trimtab_bench.partition.small import FAMILIES, random_graph

from trimtab.core import BadInputError
from trimtab.partition import Devices, Graph, Layout, Recipe, SearchSettings, devices_of, in_order, solve
from trimtab.partition.graph import coarsened
from trimtab.partition.node_times import NodeTimes
from trimtab.partition.problem import problem_of
from trimtab.partition.solvers.cutting import CutEffort

MakeGraph = Callable[..., Graph]


@given(family=st.sampled_from(list(FAMILIES)), nodes=st.integers(5, 40), seed=st.integers(0, 99))
def test_a_place_is_crossed_by_what_is_made_before_and_needed_after(
    family: str, nodes: int, seed: int
) -> None:
    graph = random_graph(family, nodes, seed)
    crossing = graph.cut_bytes()
    for place in range(nodes + 1):
        there = {
            int(tensor)
            for tensor, user in zip(graph.used, graph.user, strict=True)
            if graph.producer[tensor] < place <= user
        }
        assert crossing[place] == pytest.approx(sum(float(graph.size[t]) for t in there), abs=1e-3)


def test_an_order_puts_needs_first_and_otherwise_keeps_what_came() -> None:
    order = in_order(np.array([3, 0]), np.array([1, 2]), 4, "abcd", "here")
    assert order.tolist() == [0, 2, 3, 1]


def test_a_cycle_is_named() -> None:
    with pytest.raises(BadInputError, match=r"here: .*b.*→.*c"):
        in_order(np.array([0, 1, 2]), np.array([1, 2, 1]), 3, "abc", "here")


def test_a_graph_in_another_order_is_the_same_graph(make_graph: MakeGraph) -> None:
    graph = make_graph(skip=True)
    order = np.array([1, 0, *range(2, len(graph))])
    with pytest.raises(ValueError, match="after what they need"):
        graph.reordered(order)
    sources, targets, _ = graph.edges
    order = in_order(targets.max() - targets, targets.max() - sources, len(graph), graph.names, "")
    turned = graph.reordered(len(graph) - 1 - order[::-1])
    assert sorted(turned.names) == sorted(graph.names)
    assert turned.total_parameters == graph.total_parameters
    named = {(turned.names[s], turned.names[t]) for s, t in zip(*turned.edges[:2], strict=True)}
    assert named == {(graph.names[s], graph.names[t]) for s, t in zip(sources, targets, strict=True)}


def test_shared_weights_count_once(make_graph: MakeGraph) -> None:
    graph = make_graph()
    assert graph.total_parameters == graph.parameters.sum() - graph.ties[0].parameters


def test_a_graph_without_nodes_is_refused() -> None:
    none = np.zeros(0)
    with pytest.raises(BadInputError, match="nothing to split"):
        Graph("empty", (), (), (), *[none] * 9, none.astype(int), none, none.astype(int), none.astype(int))


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
    few = SearchSettings(
        effort=CutEffort(places=60, seconds=0.1), finalists=2, most_tensor=1, most_replicas=1
    )
    result = solve(graph, devices_of("h200:2,h100:6", "25Gbit"), Recipe(16), few)
    assert sorted(node for stage in result.plan.stages for node in stage.nodes) == list(range(3000))
    assert result.forecast.fits
