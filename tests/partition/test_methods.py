"""Ways to a plan by name."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from trimtab.core import BadInputError
from trimtab.partition import Graph, Recipe, SearchSettings, devices_of, plan_by

MakeGraph = Callable[..., Graph]
SETTINGS = SearchSettings(pipeline_only=True)


@pytest.mark.parametrize("method", ["ours", "milp", "equal", "single", "random"])
def test_every_method_runs_every_operation_once(make_graph: MakeGraph, method: str) -> None:
    graph, devices = make_graph(blocks=2, width=512), devices_of("a100:1,t4:1", network="100Gbit")
    found = plan_by(method, graph, devices, Recipe(4, "bf16"), SETTINGS)
    assert found.method == method
    assert found.forecast.fits
    assert sorted(node for stage in found.plan.stages for node in stage.nodes) == list(range(len(graph)))


def test_the_exact_program_is_no_slower_than_equal_parts(make_graph: MakeGraph) -> None:
    graph, devices = make_graph(blocks=3, width=2048), devices_of("a100:1,t4:1", network="100Gbit")
    recipe = Recipe(8, "bf16")
    exact, equal = (plan_by(name, graph, devices, recipe, SETTINGS).forecast for name in ("milp", "equal"))
    assert exact.seconds <= equal.seconds * (1 + 1e-6)


def test_the_exact_program_takes_the_better_schedule_unless_one_is_named(make_graph: MakeGraph) -> None:
    graph, devices = make_graph(blocks=3, width=2048), devices_of("t4:2/1", network="25Gbit")
    asked = [replace(SETTINGS, schedule=schedule, microbatches=8) for schedule in (None, "1f1b", "gpipe")]
    free, one, other = (plan_by("milp", graph, devices, Recipe(8, "bf16"), each).forecast for each in asked)
    assert free.seconds <= min(one.seconds, other.seconds) * (1 + 1e-6)
    assert other.seconds < one.seconds, "as where links are slow"


def test_what_does_not_fit_is_still_a_plan(make_graph: MakeGraph) -> None:
    graph, devices = make_graph(blocks=4, width=16384), devices_of("t4:2")
    for method in ("ours", "equal", "single"):
        found = plan_by(method, graph, devices, Recipe(4, "bf16"), SETTINGS)
        assert not found.forecast.fits
        assert found.forecast.short > 0


def test_the_exact_program_refuses_large_graphs(make_graph: MakeGraph) -> None:
    graph = make_graph(blocks=40)
    with pytest.raises(BadInputError, match="at most 60 operations; tiny has 124"):
        plan_by("milp", graph, devices_of("t4:2"), Recipe(4), SETTINGS)
