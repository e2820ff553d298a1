"""Plans from the search: every mix is considered, none that does not fit is chosen, prices count."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from trimtab.core import BadInputError
from trimtab.partition import Devices, Graph, Recipe, SearchSettings, devices_of, evaluate, solve
from trimtab.partition.solvers.cutting import CutEffort
from trimtab.partition.solvers.search import groupings


def test_unequal_replicas_share_by_their_speed(four: Devices) -> None:
    speed = np.array([4.0, 4.0, 1.0, 1.0])
    every = [item for item in groupings(four, speed, 4, 1) if item.replicas == 4]
    shares = {item.shares(20) for item in every}
    assert (8, 8, 2, 2) in shares
    assert all(sum(item) == 20 for item in shares if item)
    assert all(item.shares(3) is None for item in every)


def test_groups_of_devices_that_share_products_are_in_one_machine() -> None:
    devices = devices_of("a100:8/4", "10Gbit")
    for item in groupings(devices, np.ones(8), 8, 8):
        for row in item.rows:
            assert len({device for rank in row for device in rank}) == item.replicas * item.tensor
            for rank in row:
                assert len({devices[device].machine for device in rank}) == 1
    assert {item.tensor for item in groupings(devices, np.ones(8), 8, 8)} == {1, 2, 4}


MakeGraph = Callable[..., Graph]
LITTLE = CutEffort(seconds=0.1, moves=200, sets=40)


def _settings(**options: object) -> SearchSettings:
    return SearchSettings(effort=LITTLE, **options)  # type: ignore[arg-type]


def test_the_plan_uses_each_device_once_and_makes_up_the_batch(make_graph: MakeGraph, four: Devices) -> None:
    graph = make_graph(blocks=8, width=2048, tokens=512)
    result = solve(graph, four, Recipe(64), _settings())
    devices = [device for device, _, _ in result.plan.devices()]
    assert len(devices) == len(set(devices))
    assert result.plan.batch == 64
    assert result.forecast.fits
    assert sorted(n for s in result.plan.stages for n in s.nodes) == list(range(len(graph)))


def test_no_other_mix_that_was_looked_at_is_faster(make_graph: MakeGraph, four: Devices) -> None:
    result = solve(make_graph(blocks=8, width=2048, tokens=512), four, Recipe(64), _settings())
    assert result.alternatives
    assert all(result.forecast.seconds <= other.seconds * 1.001 for _, other in result.alternatives)


def test_a_small_model_on_equal_devices_is_copied_and_a_large_one_cut(make_graph: MakeGraph) -> None:
    devices = devices_of("a100:4", "10Gbit")
    small = solve(
        make_graph(blocks=8, width=1024, tokens=2048), devices, Recipe(256), _settings(most_tensor=1)
    )
    assert small.plan.replicas == 4
    large = make_graph(blocks=20, width=6144, tokens=64)
    cut = solve(large, devices, Recipe(16), _settings(most_tensor=1, most_replicas=1))
    assert len(cut.plan.stages) > 1
    assert cut.forecast.fits


def test_pipeline_only_is_a_chain_of_single_devices(make_graph: MakeGraph, four: Devices) -> None:
    result = solve(make_graph(blocks=8, width=2048), four, Recipe(64), _settings(pipeline_only=True))
    assert result.plan.replicas == result.plan.tensor == 1


def test_what_does_not_fit_comes_back_as_the_nearest_plan(make_graph: MakeGraph, four: Devices) -> None:
    graph = make_graph(blocks=8, width=2048)
    tiny = Devices(tuple(replace(d, memory=150e6) for d in four.devices), four.bandwidth, four.latency)
    result = solve(graph, tiny, Recipe(4), _settings())
    assert not result.forecast.fits
    assert 0 < result.forecast.short < 16 * graph.total_parameters


def test_devices_without_links_are_used_one_at_a_time(make_graph: MakeGraph, four: Devices) -> None:
    graph = make_graph(blocks=8, width=2048)
    alone = Devices(four.devices, np.zeros_like(four.bandwidth), four.latency)
    assert len(solve(graph, alone, Recipe(4), _settings()).plan.stages) == 1


def test_low_cost_leaves_dear_devices_out(make_graph: MakeGraph, four: Devices) -> None:
    graph = make_graph(blocks=8, width=1024)
    priced = tuple(replace(d, price=1.0 if d.kind == "T4" else 1000.0) for d in four.devices)
    devices = Devices(priced, four.bandwidth, four.latency)
    cheap = solve(graph, devices, Recipe(32), _settings(objective="cost"))
    assert {devices[use.device].kind for use in cheap.forecast.uses} == {"T4"}
    unpriced = Devices(tuple(replace(d, price=None) for d in four.devices), four.bandwidth, four.latency)
    with pytest.raises(BadInputError, match="price"):
        solve(graph, unpriced, Recipe(32), _settings(objective="cost"))


def test_latency_wants_one_micro_batch(make_graph: MakeGraph, four: Devices) -> None:
    recipe = Recipe(8, training=False)
    result = solve(make_graph(blocks=8, width=1024), four, recipe, _settings(objective="latency"))
    assert result.plan.microbatches == 1
    thrifty = _settings(objective="latency", idle_weight=5.0)
    few = solve(make_graph(blocks=8, width=1024), four, recipe, thrifty)
    assert few.forecast.idle <= result.forecast.idle


def test_micro_batches_must_divide_the_batch(make_graph: MakeGraph, four: Devices) -> None:
    with pytest.raises(BadInputError, match=r"\b7\b.*\b32\b"):
        solve(make_graph(), four, Recipe(32), _settings(microbatches=7))


def test_the_same_question_has_the_same_answer(make_graph: MakeGraph, four: Devices) -> None:
    graph = make_graph(blocks=6, width=1024)
    first, second = (solve(graph, four, Recipe(32), _settings(seed=3)) for _ in range(2))
    assert first.plan == second.plan
    assert evaluate(graph, four, Recipe(32), first.plan).seconds == second.forecast.seconds
