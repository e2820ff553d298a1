"""Other ways to split a model."""

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from trimtab_bench.partition.small import FAMILIES, random_graph

from trimtab.core import MissingDependencyError
from trimtab.partition import RIVALS, Devices, Graph, Recipe, devices_of
from trimtab.partition.forecast import evaluate
from trimtab.partition.graph import Tie
from trimtab.partition.rivals import (
    layers,
    microbatch_counts,
    plans_of,
    reached_by,
    repeated_block,
    stages_of,
)


def test_the_outermost_numbered_module_is_the_block() -> None:
    assert repeated_block("model.h.3.experts.2.up") == "model.h.3"
    assert repeated_block("model.norm") == "model.norm"


def test_what_is_between_modules_belongs_to_the_layer_before() -> None:
    graph = random_graph("skips", 6, 0)
    named = replace(graph, blocks=("", "words", "h.0.up", "", "h.1.up", "head"))
    assert layers(named).tolist() == [0, 0, 1, 1, 2, 3]


def test_without_modules_every_node_is_a_layer() -> None:
    assert layers(random_graph("skips", 6, 0)).tolist() == list(range(6))


@settings(max_examples=60, deadline=None)
@given(
    family=st.sampled_from(list(FAMILIES)),
    nodes=st.integers(4, 40),
    seed=st.integers(0, 99),
    devices=st.integers(1, 6),
)
def test_every_node_is_in_one_stage_after_all_that_it_needs(
    family: str, nodes: int, seed: int, devices: int
) -> None:
    graph = random_graph(family, nodes, seed)
    device_of = np.random.default_rng(seed).integers(0, devices, nodes)
    stages = stages_of(graph, device_of)
    assert sorted(node for stage in stages for node in stage.nodes) == list(range(nodes))
    stage_of = np.empty(nodes, dtype=int)
    for number, stage in enumerate(stages):
        stage_of[list(stage.nodes)] = number
        inner = [node for node in stage.nodes if graph.kinds[node] not in ("input", "output")]
        assert {int(device_of[node]) for node in inner} <= {stage.ranks[0][0]}
    sources, targets, _ = graph.edges
    assert (stage_of[sources] <= stage_of[targets]).all()
    assert stage_of[-1] == len(stages) - 1


def test_a_cut_in_order_is_a_stage_per_device() -> None:
    graph = random_graph("ordered", 30, 1)
    cut = np.searchsorted([10, 20], np.arange(30), side="right")
    stages = stages_of(graph, np.array([2, 0, 1])[cut])
    assert [stage.ranks for stage in stages] == [((2,),), ((0,),), ((1,),)]


def test_a_device_that_comes_back_has_two_stages() -> None:
    graph = random_graph("skips", 12, 0)
    stages = stages_of(graph, np.searchsorted([4, 8], np.arange(12), side="right") % 2)
    assert [stage.ranks for stage in stages] == [((0,),), ((1,),), ((0,),)]


def test_branches_on_two_devices_are_not_run_by_turns() -> None:
    graph = random_graph("skips", 8, 0)
    # Two chains beside each other, 1 3 5 and 2 4 6, between the ends 0 and 7.
    used, user = np.array([0, 0, 1, 2, 3, 4, 5, 6]), np.array([1, 2, 3, 4, 5, 6, 7, 7])
    graph = replace(graph, used=used, user=user)
    stages = stages_of(graph, np.array([0, 0, 1, 0, 1, 0, 1, 0]))
    assert [stage.nodes for stage in stages] == [(0, 1, 3, 5), (2, 4, 6, 7)]


def test_plans_try_every_microbatch_count_schedule_and_recomputation() -> None:
    graph = random_graph("skips", 8, 0)
    plans = list(plans_of(graph, np.zeros(8, dtype=int), Recipe(12)))
    assert {(plan.microbatches, plan.shares) for plan in plans} == {(1, (12,)), (2, (6,)), (4, (3,))}
    assert len(plans) == 3 * 2 * 2
    assert all(
        not plan.recompute for plan in plans_of(graph, np.zeros(8, dtype=int), Recipe(12, training=False))
    )


@pytest.mark.parametrize(("batch", "counts"), [(1, [1]), (8, [1, 2, 4, 8]), (12, [1, 2, 4]), (7, [1])])
def test_microbatches_are_powers_of_two_that_divide_the_batch(batch: int, counts: list[int]) -> None:
    assert microbatch_counts(batch) == counts


@pytest.mark.parametrize("family", FAMILIES)
def test_looking_at_promising_plans_first_misses_none(family: str) -> None:
    graph, devices, recipe = random_graph(family, 12, 5), devices_of("v100:1,t4:2", "25Gbit"), Recipe(8)
    for proposal in list(RIVALS["random"](graph, devices, recipe))[:4]:
        all_plans = [evaluate(graph, devices, recipe, plan) for plan in plans_of(graph, proposal, recipe)]
        reached = reached_by([proposal], graph, devices, recipe)
        assert reached.throughput == max(item.throughput for item in all_plans) > 0.0
        assert reached.throughputs == (reached.throughput,)


def test_the_best_proposal_counts() -> None:
    graph, devices, recipe = random_graph("skips", 16, 5), devices_of("v100:1,t4:1"), Recipe(8)
    reached = reached_by(RIVALS["single"](graph, devices, recipe), graph, devices, recipe)
    assert len(reached.throughputs) == 2
    assert reached.throughput == max(reached.throughputs) > min(reached.throughputs) > 0.0
    assert reached.plan is not None
    assert reached.plan.stages[0].ranks == ((0,),)


def test_what_does_not_fit_reaches_nothing() -> None:
    graph, devices, recipe = random_graph("skips", 8, 0), devices_of("t4:1"), Recipe(100_000)
    reached = reached_by([np.zeros(8, dtype=int)], graph, devices, Recipe(99_999))
    assert reached.plan is None
    assert reached.throughput == 0.0
    assert reached_by([], graph, devices, recipe).throughput == 0.0


ADAM = Recipe(8)


def _transformer(blocks: int, weights: float, ends: float = 0.0) -> Graph:
    """Blocks of two products each between an embedding and a head, all in a chain."""
    graph = random_graph("skips", 2 * blocks + 4, 0)
    names = [f"h.{block}.{part}" for block in range(blocks) for part in ("up", "down")]
    parameters = np.full(len(graph), weights)
    parameters[[0, -1]], parameters[[1, -2]] = 0.0, ends
    chain = np.arange(len(graph) - 1)
    return replace(
        graph,
        blocks=("", "words", *names, "head", ""),
        parameters=parameters,
        flop=np.where(parameters > 0, 1e9, 0.0),
        used=chain,
        user=chain + 1,
    )


def _proposals(name: str, graph: Graph, devices: Devices) -> list[list[int]]:
    return [item.tolist() for item in RIVALS[name](graph, devices, ADAM)]


@pytest.mark.parametrize("name", RIVALS)
def test_every_rival_names_a_device_for_every_node(name: str) -> None:
    devices = devices_of("v100:2,t4:1", "25Gbit")
    for graph in (_transformer(6, 1e6, 1e6), random_graph("layered", 24, 3)):
        proposals = _proposals(name, graph, devices)
        assert proposals
        assert all(len(item) == len(graph) and set(item) <= {0, 1, 2} for item in proposals)


def test_equal_gives_everyone_as_many_layers() -> None:
    by_layers, by_nodes = _proposals("equal", _transformer(7, 1e6, 1e6), devices_of("t4:3"))
    assert by_layers == [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2]
    assert by_nodes == [0] * 6 + [1] * 6 + [2] * 6


def test_single_tries_each_kind_of_device_once() -> None:
    assert _proposals("single", random_graph("skips", 5, 0), devices_of("v100:2,t4:2")) == [[0] * 5, [2] * 5]


def test_random_is_the_same_again_and_differs_by_seed() -> None:
    graph, devices = _transformer(8, 1e6), devices_of("t4:3")
    first = _proposals("random", graph, devices)
    assert first == _proposals("random", graph, devices)
    assert len({tuple(item) for item in first}) > 1


def test_metis_gives_fast_devices_more_and_its_repair_lets_nothing_flow_back() -> None:
    graph = _transformer(20, 1e6)
    raw, repaired = _proposals("metis", graph, devices_of("v100:1,t4:1"))[:2]
    assert raw.count(0) > 1.5 * raw.count(1) > 0
    branched, devices = random_graph("layered", 40, 0), devices_of("t4:4")
    for _, repaired in zip(range(5), _proposals("metis", branched, devices)[1::2], strict=True):
        assert len(stages_of(branched, np.array(repaired))) == len(set(repaired))


def test_accelerate_balances_bytes_and_never_splits_a_block() -> None:
    graph = _transformer(9, 1e7)
    proposals = _proposals("accelerate-balanced", graph, devices_of("t4:3"))
    assert {len(set(item)) for item in proposals} == {1, 2, 3}
    whole = [item for item in proposals if item[2:-2:2] == item[3:-2:2]]
    most = {len(set(item)): max(item.count(device) for device in item) for item in whole}
    assert most[3] < most[2] < most[1]


def test_accelerate_fills_one_device_after_the_other() -> None:
    graph = _transformer(20, 1e8)  # 3.2 GB each with Adam: 16 GB hold four, less one it keeps free at first
    proposal = _proposals("accelerate-sequential", graph, devices_of("t4:12"))[0]
    assert proposal == sorted(proposal)
    counts = [proposal[2:-2].count(device) // 2 for device in range(max(proposal))]
    assert counts[0] <= counts[1]
    assert len(set(counts[1:])) == 1


def test_accelerate_proposes_nothing_where_weights_would_go_to_a_disk() -> None:
    for name in ("accelerate-balanced", "accelerate-sequential"):
        assert _proposals(name, _transformer(20, 1e8), devices_of("t4:2")) == []


def test_accelerate_sees_a_shared_weight_once() -> None:
    from accelerate.utils import compute_module_sizes

    from trimtab.partition.rivals import stand_in

    graph = _transformer(2, 1e6, 5e6)
    tied = replace(graph, ties=(Tie((1, len(graph) - 2), 5e6),))
    for item in (graph, tied):
        model = stand_in(item)
        assert sum(p.numel() for p in model.parameters()) == item.total_parameters
        assert all(p.device.type == "meta" for p in model.parameters())
    assert compute_module_sizes(stand_in(graph))["h.0"] == 2 * 4e6


@pytest.mark.parametrize(
    ("package", "name"), [("pymetis", "metis"), ("accelerate.utils", "accelerate-balanced")]
)
def test_without_its_package_a_rival_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, package: str, name: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    propose: Callable[..., Any] = RIVALS[name]
    with pytest.raises(MissingDependencyError, match="rivals"):
        list(propose(_transformer(2, 1e6), devices_of("t4:2"), ADAM))
