"""A placement in words: who has which layers, and what other ways would take."""

from dataclasses import replace

import pytest

from trimtab.partition import Devices, Graph, Recipe, SearchSettings, Solution, explained_placement, solve
from trimtab.partition.explain_placement import PlacedRow


@pytest.fixture
def found(branches: Graph, pair: Devices) -> Solution:
    settings = SearchSettings(objective="latency", pipeline_only=True)
    return solve(branches, pair, Recipe(8, training=False), settings)


def test_every_layer_has_one_device_and_all_is_compared(found: Solution) -> None:
    words = explained_placement(found)
    assert words is not None
    assert words.summary.startswith("branches side by side on 2 devices: a pass takes")
    assert sorted(row.layers for row in words.rows) == [("left",), ("right",)]
    assert sum(row.parameters for row in words.rows) == found.graph.total_parameters
    assert all(row.used > 0.0 < row.free and 0.5 < row.busy <= 1.0 for row in words.rows)
    figures = dict(words.figures)
    assert figures["in stages"].endswith("1 stage, 1 micro-batch of 8")
    assert figures["one device"].endswith(" on T4:0")


def test_a_device_that_is_too_small_for_all_of_it_is_said(found: Solution) -> None:
    assert found.placement is not None
    small = replace(found, placement=replace(found.placement, alone_fits=False))
    words = explained_placement(small)
    assert words is not None
    assert dict(words.figures)["one device"].endswith("on T4:0, where it does not fit")


def test_a_solution_without_a_placement_has_nothing_to_say(found: Solution) -> None:
    assert explained_placement(replace(found, placement=None)) is None


def test_many_layers_are_counted() -> None:
    row = PlacedRow("T4:0", tuple("abcdef"), 1.0, 1.0, 1.0, 0.5)
    assert row.layers_in_short() == "a, b, c, d and 2 more"
    assert row.layers_in_short(6) == "a, b, c, d, e, f"
