"""Any devices for any nodes become stages that can run one after the other."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from trimtab_bench.partition.random_graphs import FAMILIES, random_graph

from trimtab.partition import Recipe
from trimtab.partition.rivals.stages import microbatch_counts, plans_of, stages_of


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
