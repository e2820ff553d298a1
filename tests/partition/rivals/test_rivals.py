"""What rivals propose."""

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from trimtab_bench.partition.random_graphs import random_graph

from trimtab.core import MissingDependencyError
from trimtab.partition import RIVALS, Devices, Graph, Recipe, Tie, devices_of
from trimtab.partition.rivals.stages import stages_of

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
    return [each.tolist() for each in RIVALS[name](graph, devices, ADAM)]


@pytest.mark.parametrize("name", RIVALS)
def test_every_rival_names_a_device_for_every_node(name: str) -> None:
    devices = devices_of("v100:2,t4:1", "25Gbit")
    for graph in (_transformer(6, 1e6, 1e6), random_graph("layered", 24, 3)):
        proposals = _proposals(name, graph, devices)
        assert proposals
        assert all(len(each) == len(graph) and set(each) <= {0, 1, 2} for each in proposals)


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
    assert len({tuple(each) for each in first}) > 1


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
    assert {len(set(each)) for each in proposals} == {1, 2, 3}
    whole = [each for each in proposals if each[2:-2:2] == each[3:-2:2]]
    most = {len(set(each)): max(each.count(device) for device in each) for each in whole}
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

    from trimtab.partition.rivals.accelerate_map import stand_in

    graph = _transformer(2, 1e6, 5e6)
    tied = replace(graph, ties=(Tie((1, len(graph) - 2), 5e6),))
    for each in (graph, tied):
        model = stand_in(each)
        assert sum(p.numel() for p in model.parameters()) == each.total_parameters
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
