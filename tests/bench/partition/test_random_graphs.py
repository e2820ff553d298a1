"""Random models look like models."""

import numpy as np
import pytest
from trimtab_bench.partition.random_graphs import FAMILIES, random_graph


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("nodes", [8, 25, 300])
def test_all_begins_with_one_input_and_ends_in_one_output(family: str, nodes: int) -> None:
    graph = random_graph(family, nodes, seed=1)
    sources, targets, _ = graph.edges
    assert len(graph) == nodes
    assert (sources < targets).all()
    assert set(sources.tolist()) == set(range(nodes - 1))
    assert set(targets.tolist()) == set(range(1, nodes))
    assert (graph.kinds[0], graph.kinds[-1]) == ("input", "output")
    assert (graph.flop[1:-1] > 0).all()
    assert graph.flop[0] == graph.flop[-1] == graph.parameters[0] == 0.0


@pytest.mark.parametrize("family", FAMILIES)
def test_a_seed_gives_the_same_graph_and_another_seed_another(family: str) -> None:
    one, again, other = (random_graph(family, 20, seed) for seed in (3, 3, 4))
    assert np.array_equal(one.flop, again.flop)
    assert np.array_equal(one.used, again.used)
    assert not np.array_equal(one.flop, other.flop)
