"""Where latency counts, branches may run side by side; where something else is better, they do not."""

from collections.abc import Callable

import pytest

from trimtab.partition import Devices, Graph, Recipe, SearchSettings, solve

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
