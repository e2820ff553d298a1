"""A plan for other tools."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trimtab.core import BadInputError
from trimtab.partition import (
    Devices,
    Graph,
    NodePlacement,
    Plan,
    Recipe,
    Stage,
    device_map,
    devices_of,
    load_graph,
    place,
    placement_map,
    torchrun_script,
)
from trimtab.partition.capture.builder import load_builder
from trimtab.partition.devices import Device
from trimtab.partition.exports import commands


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
    with pytest.raises(BadInputError, match=r'"join" in "net.join" .* 0 and 1'):
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


def _placed(graph: Graph, device_of: list[int]) -> NodePlacement:
    result = place(graph, devices_of("t4:2"), Recipe(8, training=False), seconds=0.0)
    return replace(result, device_of=tuple(device_of))


def test_branches_that_end_in_the_output_are_on_a_device_each(branches: Graph, pair: Devices) -> None:
    result = place(branches, pair, Recipe(8, training=False))
    assert placement_map(result) == {"left": result.device_of[1], "right": result.device_of[6]}


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


def _devices(*machines: int) -> Devices:
    rows = tuple(Device(f"cpu-{i}", "cpu", 1e9, {}, 1e9, machine) for i, machine in enumerate(machines))
    return Devices(rows, np.ones((len(rows), len(rows))), np.zeros((len(rows), len(rows))))


def test_every_machine_has_its_command(make_graph: Any, even_plan: Any) -> None:
    plan = even_plan(make_graph(), 3)
    first, second = commands(plan, _devices(4, 7, 4, 9))
    assert first.startswith("torchrun --nnodes=2 --node-rank=0 --nproc-per-node=2 ")
    assert second.startswith("torchrun --nnodes=2 --node-rank=1 --nproc-per-node=1 ")
    assert all(line.endswith("train.py") for line in (first, second))


def test_a_machine_that_is_not_in_the_plan_is_refused(
    make_graph: Any, even_plan: Any, tmp_path: Path
) -> None:
    plan = even_plan(make_graph(), 2)
    files = torchrun_script(plan, make_graph(), _devices(0, 0), Recipe(4), "model.py:build")
    (tmp_path / "launch.sh").write_text(files["launch.sh"])
    done = subprocess.run(["sh", tmp_path / "launch.sh", "1"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "there are machines 0 to 0\n")


@pytest.mark.slow
def test_the_script_trains_under_torchrun_and_keeps_the_weights(
    target: Any, even_plan: Any, tmp_path: Path
) -> None:
    graph = load_graph(target("decoder"))
    plan = even_plan(graph, 2, order=(1, 0))
    files = torchrun_script(
        plan, graph, _devices(0, 0), Recipe(plan.batch, precision="bf16"), target("decoder")
    )
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        ["sh", tmp_path / "launch.sh", "0", "--steps", "2", "--rate", "0.05", "--save", tmp_path / "kept"],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "MASTER_PORT": str(_free_port()),
        },
    )
    assert done.returncode == 0, done.stderr
    losses = [float(loss) for loss in re.findall(r"step \d: loss ([\d.]+)", done.stdout)]
    assert len(losses) == 2
    assert losses[1] < losses[0]
    kept = [torch.load(tmp_path / "kept" / f"stage-{number}.pt") for number in range(2)]
    torch.testing.assert_close(kept[0]["head.weight"], kept[1]["head.weight"])
    assert "norm.weight" in kept[1]


def _free_port() -> int:
    from socket import socket

    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
