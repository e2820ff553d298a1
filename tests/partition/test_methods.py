"""Plans by the name of a method."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from trimtab.core import BadInputError
from trimtab.partition import (
    Devices,
    Graph,
    Recipe,
    SearchSettings,
    devices_of,
    plan_by,
    solve,
    with_usual_plans,
)

RECIPE = Recipe(8, training=False)


def options(**more: object) -> SearchSettings:
    return SearchSettings(objective="latency", **{"pipeline_only": True, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize("training", [False, True])
def test_a_placement_comes_with_the_plan_where_it_is_better(
    branches: Graph, pair: Devices, training: bool
) -> None:
    result = solve(branches, pair, Recipe(8, training=training), options())
    assert result.placement is not None
    assert result.placement.latency < 0.7 * result.forecast.latency
    assert result.placement.latency < 0.7 * result.placement.alone
    assert result.placement.loss < result.placement.loss_of(result.forecast.latency, result.forecast.idle)


def test_replicas_that_are_faster_still_are_the_plan_and_the_placement_is_told(
    branches: Graph, pair: Devices
) -> None:
    result = solve(branches, pair, Recipe(64, training=False), options(pipeline_only=False))
    assert result.plan.replicas * result.plan.tensor == 2
    assert result.placement is None
    assert "T4:0" in result.reasons[-1]


@pytest.mark.parametrize(
    "settings",
    [
        SearchSettings(pipeline_only=True),
        options(idle_weight=2.0),  # one device leaves less memory idle
        options(microbatches=2),  # its latency is that of fewer samples
    ],
)
def test_there_is_no_placement_where_something_else_counts(
    branches: Graph, pair: Devices, settings: SearchSettings
) -> None:
    assert solve(branches, pair, RECIPE, settings).placement is None


def test_a_model_without_branches_has_no_placement(make_graph: Callable[..., Graph], pair: Devices) -> None:
    assert solve(make_graph(), pair, RECIPE, options()).placement is None


MakeGraph = Callable[..., Graph]
SETTINGS = SearchSettings(pipeline_only=True)


@pytest.mark.parametrize("method", ["ours", "milp", "equal", "single", "random"])
def test_every_method_runs_every_operation_once(make_graph: MakeGraph, method: str) -> None:
    graph, devices = make_graph(blocks=2, width=512), devices_of("a100:1,t4:1", network="100Gbit")
    result = plan_by(method, graph, devices, Recipe(4, "bf16"), SETTINGS)
    assert result.method == method
    assert result.forecast.fits
    assert sorted(node for stage in result.plan.stages for node in stage.nodes) == list(range(len(graph)))


def test_the_exact_program_is_no_slower_than_equal_parts(make_graph: MakeGraph) -> None:
    graph, devices = make_graph(blocks=3, width=2048), devices_of("a100:1,t4:1", network="100Gbit")
    recipe = Recipe(8, "bf16")
    exact, equal = (plan_by(name, graph, devices, recipe, SETTINGS).forecast for name in ("milp", "equal"))
    assert exact.seconds <= equal.seconds * (1 + 1e-6)


def test_the_exact_program_takes_the_better_schedule_unless_one_is_named(make_graph: MakeGraph) -> None:
    graph, devices = make_graph(blocks=3, width=2048), devices_of("t4:2/1", network="25Gbit")
    options = [replace(SETTINGS, schedule=schedule, microbatches=8) for schedule in (None, "1f1b", "gpipe")]
    free, one, other = (plan_by("milp", graph, devices, Recipe(8, "bf16"), item).forecast for item in options)
    assert free.seconds <= min(one.seconds, other.seconds) * (1 + 1e-6)
    assert other.seconds < one.seconds, "as where links are slow"


def test_what_does_not_fit_is_still_a_plan(make_graph: MakeGraph) -> None:
    graph, devices = make_graph(blocks=4, width=16384), devices_of("t4:2")
    for method in ("ours", "equal", "single"):
        result = plan_by(method, graph, devices, Recipe(4, "bf16"), SETTINGS)
        assert not result.forecast.fits
        assert result.forecast.short > 0


def test_the_exact_program_refuses_large_graphs(make_graph: MakeGraph) -> None:
    graph = make_graph(blocks=40)
    with pytest.raises(BadInputError, match=r"\b60\b.*tiny.*\b124\b"):
        plan_by("milp", graph, devices_of("t4:2"), Recipe(4), SETTINGS)


def test_usual_plans_are_named_and_none_is_better(make_graph: MakeGraph, four: Devices) -> None:
    graph, settings = make_graph(width=1024), SearchSettings()
    result = with_usual_plans(plan_by("ours", graph, four, Recipe(16, "bf16"), settings), settings)
    others = dict(result.alternatives)
    assert {
        "all of it on every device (data parallel)",
        "equal parts, one after the other",
        "the best single device",
        "only 2 A100",
        "only 2 T4",
    } <= set(others)
    for name, other in others.items():
        assert other.throughput <= result.forecast.throughput * 1.001, name


def test_one_device_has_no_alternatives(make_graph: MakeGraph) -> None:
    settings = SearchSettings()
    alone = plan_by("ours", make_graph(), devices_of("t4"), Recipe(4), settings)
    assert with_usual_plans(alone, settings) is alone
