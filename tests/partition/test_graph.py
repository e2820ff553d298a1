"""A graph knows its order, what crosses each place, and which weights are shared."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, strategies as st
from trimtab_bench.partition.random_graphs import FAMILIES, random_graph

from trimtab.core import BadInputError
from trimtab.partition import Graph, in_order

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
    with pytest.raises(BadInputError, match=r"here: there is a cycle: .*b.*→.*c"):
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
