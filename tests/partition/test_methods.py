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


def asked(**more: object) -> SearchSettings:
    return SearchSettings(objective="latency", **{"pipeline_only": True, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize("training", [False, True])
def test_a_placement_comes_with_the_plan_where_it_is_better(
    branches: Graph, pair: Devices, training: bool
) -> None:
    found = solve(branches, pair, Recipe(8, training=training), asked())
    assert found.placement is not None
    assert found.placement.latency < 0.7 * found.forecast.latency
    assert found.placement.latency < 0.7 * found.placement.alone
    assert found.placement.loss < found.placement.loss_of(found.forecast.latency, found.forecast.idle)


def test_replicas_that_are_faster_still_are_the_plan_and_the_placement_is_told(
    branches: Graph, pair: Devices
) -> None:
    found = solve(branches, pair, Recipe(64, training=False), asked(pipeline_only=False))
    assert found.plan.replicas * found.plan.tensor == 2
    assert found.placement is None
    assert "branches side by side would take" in found.reasons[-1]
    assert "on T4:0 alone" in found.reasons[-1]


@pytest.mark.parametrize(
    "settings",
    [
        SearchSettings(pipeline_only=True),
        asked(idle_weight=2.0),  # one device leaves less memory idle
        asked(microbatches=2),  # its latency is that of fewer samples
    ],
)
def test_there_is_no_placement_where_something_else_counts(
    branches: Graph, pair: Devices, settings: SearchSettings
) -> None:
    assert solve(branches, pair, RECIPE, settings).placement is None


def test_a_model_without_branches_has_no_placement(make_graph: Callable[..., Graph], pair: Devices) -> None:
    assert solve(make_graph(), pair, RECIPE, asked()).placement is None


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


def test_usual_plans_are_named_and_none_is_better(make_graph: MakeGraph, four: Devices) -> None:
    graph, settings = make_graph(width=1024), SearchSettings()
    found = with_usual_plans(plan_by("ours", graph, four, Recipe(16, "bf16"), settings), settings)
    others = dict(found.alternatives)
    assert {
        "all of it on every device (data parallel)",
        "equal parts, one after the other",
        "the best single device",
        "only 2 A100",
        "only 2 T4",
    } <= set(others)
    for name, other in others.items():
        assert other.throughput <= found.forecast.throughput * 1.001, name


def test_one_device_has_no_alternatives(make_graph: MakeGraph) -> None:
    settings = SearchSettings()
    alone = plan_by("ours", make_graph(), devices_of("t4"), Recipe(4), settings)
    assert with_usual_plans(alone, settings) is alone
