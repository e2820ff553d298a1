"""Layers by the names of modules."""

from dataclasses import replace

from trimtab_bench.partition.random_graphs import random_graph

from trimtab.partition.rivals.layers import layers, repeated_block


def test_the_outermost_numbered_module_is_the_block() -> None:
    assert repeated_block("model.h.3.experts.2.up") == "model.h.3"
    assert repeated_block("model.norm") == "model.norm"


def test_what_is_between_modules_belongs_to_the_layer_before() -> None:
    graph = random_graph("skips", 6, 0)
    named = replace(graph, blocks=("", "words", "h.0.up", "", "h.1.up", "head"))
    assert layers(named).tolist() == [0, 0, 1, 1, 2, 3]


def test_without_modules_every_node_is_a_layer() -> None:
    assert layers(random_graph("skips", 6, 0)).tolist() == list(range(6))
