"""Scripts that torchrun starts."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trimtab.partition import Device, Devices, Recipe, load_graph, torchrun_script
from trimtab.partition.exports.torchrun import commands


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
