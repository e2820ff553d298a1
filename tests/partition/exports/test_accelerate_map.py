"""Device maps, checked by the tool that uses them."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from trimtab.core import BadInputError
from trimtab.partition import (
    Devices,
    Graph,
    Placement,
    Plan,
    Recipe,
    Stage,
    device_map,
    devices_of,
    load_builder,
    load_graph,
    place,
    placement_map,
)


def _between(graph: Graph, first_of_second: str) -> Plan:
    """Two stages, the second from the first node of a module on."""
    cut = next(i for i, block in enumerate(graph.blocks) if block.startswith(first_of_second))
    nodes = tuple(range(len(graph)))
    return Plan((Stage(nodes[:cut], ((0,),)), Stage(nodes[cut:], ((1,),))), (1,), 1)


def test_modules_are_placed_no_finer_than_needed(make_graph: Any, four: Devices) -> None:
    graph = make_graph()
    assert device_map(_between(graph, "net.h.2"), graph) == {
        "net.wte": 0,
        "net.h.0": 0,
        "net.h.1": 0,
        "net.h.2": 1,
        "net.h.3": 1,
        "net.head": 1,
    }


def test_a_model_on_one_device_is_one_entry(make_graph: Any, even_plan: Any) -> None:
    graph = make_graph()
    assert device_map(even_plan(graph, 1, order=(2,)), graph) == {"": 2}


def test_a_block_that_is_cut_in_two_goes_whole_to_one_device(make_graph: Any) -> None:
    graph = make_graph()
    placed = device_map(_between(graph, "net.h.1.down"), graph)
    assert (placed["net.h.0"], placed["net.h.1"], placed["net.h.2"]) == (0, 0, 1)


def test_a_skip_to_another_device_cannot_be_placed(make_graph: Any) -> None:
    graph = make_graph(skip=True)
    with pytest.raises(BadInputError, match=r'"join" in "net.join" takes tensors .* 0 and 1'):
        device_map(_between(graph, "net.h.2"), graph)


def test_a_module_that_is_split_itself_is_named(make_graph: Any) -> None:
    graph = make_graph()
    blocks = tuple("net.h.1" if block.startswith("net.h.1") else block for block in graph.blocks)
    whole = Graph(**{name: getattr(graph, name) for name in Graph.__slots__} | {"blocks": blocks})
    cut = graph.names.index("down_1")
    nodes = tuple(range(len(graph)))
    plan = Plan((Stage(nodes[:cut], ((0,),)), Stage(nodes[cut:], ((1,),))), (1,), 1)
    with pytest.raises(BadInputError, match=r'the module "net.h.1" is split over devices 0 and 1'):
        device_map(plan, whole)


def test_shared_products_cannot_be_placed(make_graph: Any, even_plan: Any) -> None:
    graph = make_graph()
    with pytest.raises(BadInputError, match="--max-tensor 1"):
        device_map(even_plan(graph, 1, tensor=2), graph)


def _placed(graph: Graph, device_of: list[int]) -> Placement:
    found = place(graph, devices_of("t4:2"), Recipe(8, training=False), seconds=0.0)
    return replace(found, device_of=tuple(device_of))


def test_branches_that_end_in_the_output_are_on_a_device_each(branches: Graph, pair: Devices) -> None:
    found = place(branches, pair, Recipe(8, training=False))
    assert placement_map(found) == {"left": found.device_of[1], "right": found.device_of[6]}


def test_a_placement_is_refused_rather_than_mended(make_graph: Any) -> None:
    graph = make_graph()
    device_of = [int(block == "net.h.1.down") for block in graph.blocks]
    with pytest.raises(BadInputError, match=r'"add_1" in "net.h.1" .* 0 and 1, .* leave out --objective'):
        placement_map(_placed(graph, device_of))


def test_a_module_that_a_placement_splits_is_named(make_graph: Any) -> None:
    graph = make_graph()
    blocks = tuple("net.h.1" if block.startswith("net.h.1") else block for block in graph.blocks)
    device_of = [int(name == "down_1") for name in graph.names]
    with pytest.raises(BadInputError, match=r'the module "net.h.1" is split over devices 0 and 1'):
        placement_map(_placed(replace(graph, blocks=blocks), device_of))


def test_accelerate_dispatches_a_real_model_by_it_and_computes_the_same(target: Any) -> None:
    accelerate = pytest.importorskip("accelerate", reason="needs accelerate")
    graph = load_graph(target("decoder"))
    plan = _between(graph, "blocks.1")
    numbered = device_map(plan, graph)
    assert numbered["blocks.0"] == 0
    assert numbered["blocks.1"] == 1
    placed = device_map(plan, graph, devices_of("cpu:2"))
    assert set(placed.values()) == {"cpu"}
    model = load_builder(target("decoder"), real=True).model.eval()
    accelerate.utils.check_device_map(model, numbered)
    words = torch.randint(0, 64, (2, 8))
    before = model(words)
    dispatched = accelerate.dispatch_model(model, placed, force_hooks=True)
    torch.testing.assert_close(dispatched(words), before)
