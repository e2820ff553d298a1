"""Placements: a chain's latency is a sum, a parallel graph's the longest path's; idle memory has a weight."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from trimtab_bench.partition.small import random_graph

from trimtab.partition import Devices, Graph, Layout, Recipe, place, problem_of
from trimtab.partition.forecast import PassTimes
from trimtab.partition.solvers.placing import _Placing

RECIPE = Recipe(8, training=False)


def _times(graph: Graph, devices: Devices, recipe: Recipe = RECIPE) -> PassTimes:
    rows = tuple(((device,),) for device in range(len(devices)))
    return PassTimes(problem_of(graph, devices, recipe, Layout((recipe.batch,)), rows))


def test_a_chains_latency_is_the_sum(pair: Devices) -> None:
    graph = random_graph("skips", 12, 3)
    keep = graph.producer[graph.used] + 1 == graph.user
    chain = replace(graph, used=graph.used[keep], user=graph.user[keep])
    times = _times(chain, pair)
    device_of = [0] * 6 + [1] * 6
    problem = times.problem
    compute = sum(float(problem.forward[device, node]) for node, device in enumerate(device_of))
    hand = float(problem.hand_seconds(0, 1, float(problem.tensor_bytes[5])))
    assert times.latency(device_of) == pytest.approx(compute + hand)


def test_branches_on_two_devices_take_the_longest_way_not_the_sum(branches: Graph, pair: Devices) -> None:
    times = _times(branches, pair)
    alone = times.latency([0] * 12)
    apart = times.latency([0, *[0] * 5, *[1] * 5, 0])
    assert 0.5 * alone < apart < 0.65 * alone
    training = _times(branches, pair, Recipe(8))
    assert training.latency([0, *[0] * 5, *[1] * 5, 0]) < 0.65 * training.latency([0] * 12)


def test_branches_are_placed_side_by_side(branches: Graph, pair: Devices) -> None:
    result = place(branches, pair, RECIPE)
    assert result.loss < 0.65
    assert {len(set(result.device_of[1:6])), len(set(result.device_of[6:11]))} == {1}
    assert result.device_of[1] != result.device_of[6]
    assert result.fits
    assert result.alone_fits
    assert result.alone == pytest.approx(sum(result.busy.values()))
    assert result.loss == pytest.approx(result.loss_of(result.latency, result.idle))


def test_idle_memory_that_counts_keeps_the_second_device_out(branches: Graph, pair: Devices) -> None:
    result = place(branches, pair, RECIPE, idle_weight=2.0)
    assert len(result.used) == 1
    assert result.idle == pytest.approx(pair[0].memory - next(iter(result.used.values())))


def test_no_placement_of_a_small_graph_has_a_smaller_loss(pair: Devices) -> None:
    graph = random_graph("series-parallel", 9, 5)
    result = place(graph, pair, RECIPE, idle_weight=0.1)
    judge = _Placing(_times(graph, pair), pair, 0.1)
    best = min(judge.loss(np.array(device_of)) for device_of in product(range(2), repeat=9))
    assert result.loss <= best * 1.02
