"""`trimtab partition` as a user meets it."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from trimtab.partition import read_plan
from trimtab.store import open_store

Trimtab = Callable[..., Any]

MODEL = """
import torch
from torch import nn

def build(layers=4, width=32):
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(layers))), torch.zeros(2, width)

def broken():
    raise RuntimeError("no such weights")
"""


def chain(layers: int = 8, weights: float = 4e6) -> dict[str, Any]:
    """A graph file: layers one after the other."""
    names = ["x", *(f"l{n}" for n in range(layers)), "y"]
    nodes: list[dict[str, Any]] = [{"name": "x", "kind": "input"}, {"name": "y", "kind": "output"}]
    nodes += [
        {"name": name, "block": f"net.{n}", "kind": "matmul", "flop": 2 * weights, "parameters": weights}
        for n, name in enumerate(names[1:-1])
    ]
    edges = [{"from": a, "to": b, "bytes": 8192} for a, b in pairwise(names)]
    return {"name": "chain", "nodes": nodes, "edges": edges}


@pytest.fixture
def graph_file(tmp_path: Path) -> Callable[..., str]:
    def write(**told: Any) -> str:
        path = tmp_path / "graph.json"
        path.write_text(json.dumps(chain(**told)), encoding="utf-8")
        return str(path)

    return write


@pytest.fixture
def model_file(tmp_path: Path) -> str:
    path = tmp_path / "mymodel.py"
    path.write_text(MODEL, encoding="utf-8")
    return str(path)


def test_a_plan_is_printed_with_its_numbers_reasons_and_decision(
    trimtab: Trimtab, graph_file: Callable[..., str]
) -> None:
    called = trimtab(
        "partition", graph_file(weights=3e8), "--devices", "a100-40:2,t4:2", "--pipeline-only", "--batch", "8"
    )
    assert called.status == 0
    assert "chain: 10 operations, 2.4 B parameters; 8 samples a step, adam, bf16; 4 devices" in called.out
    assert re.search(r"it fits: \d stages, \d+ micro-batch", called.out)
    assert re.search(r"1 +net\.0–\d +A100:0 +[\d.]+ B +\S+ ms +\S+ ms +\d+%", called.out)
    assert re.search(r"A100:0 +1 +[\d.]+ GiB +[\d.]+ GiB", called.out)
    for part in ("a step", "throughput", "per million", "idle memory", "sets the pace", "would help most"):
        assert part in called.out
    for other in ("data parallel", "equal parts", "the best single device: does not fit", "only 2 A100"):
        assert other in called.out
    assert "assumed: 10Gbit between machines" in called.out
    decision = re.search(r"trimtab decisions (\w{12})", called.out)
    assert decision
    judged = trimtab("outcome", decision[1], "--time", "10s")
    assert "time: estimated" in judged.out
    assert "too low" in judged.out


def test_json_is_one_object(trimtab: Trimtab, graph_file: Callable[..., str]) -> None:
    answer = json.loads(trimtab("partition", graph_file(), "--devices", "t4:2", "--json").out)
    assert answer["forecast"]["fits"] is True
    assert answer["forecast"]["low"] <= answer["forecast"]["seconds"] <= answer["forecast"]["high"]
    assert sum(len(stage["nodes"]) for stage in answer["plan"]["stages"]) == 10
    assert answer["decision"]
    assert answer["run"] is None


def test_the_better_schedule_is_taken_unless_one_is_named(
    trimtab: Trimtab, graph_file: Callable[..., str]
) -> None:
    slow = ["--devices", "a100-40:2/1", "--network", "10Mbit", "--pipeline-only", "--microbatches", "8"]
    asked = ["partition", graph_file(weights=3e8), *slow, "--batch", "8", "--json"]
    named, free = (json.loads(trimtab(*asked, *more).out) for more in (["--schedule", "1f1b"], []))
    assert (named["plan"]["schedule"], free["plan"]["schedule"]) == ("1f1b", "gpipe")
    assert free["forecast"]["seconds"] < named["forecast"]["seconds"]


def test_files_are_written(trimtab: Trimtab, graph_file: Callable[..., str], tmp_path: Path) -> None:
    plan, page, placed = tmp_path / "plan.json", tmp_path / "deep" / "plan.html", tmp_path / "map.json"
    options = ["--pipeline-only", "--html", str(page), "-o", str(plan), "--device-map", str(placed)]
    called = trimtab("partition", graph_file(weights=3e8), "--devices", "a100:2", *options)
    assert called.status == 0
    document = read_plan(plan.read_text(encoding="utf-8"))
    assert document.forecast is not None
    assert document.plan.batch == 32
    assert "How to split chain" in page.read_text(encoding="utf-8")
    devices = set(json.loads(placed.read_text(encoding="utf-8")).values())
    assert devices == {rank for stage in document.plan.stages for (rank,) in stage.ranks}
    assert called.out.count("written: ") == 3


def towers() -> dict[str, Any]:
    """A graph file: two towers of layers that both end in the output."""
    nodes: list[dict[str, Any]] = [{"name": "x", "kind": "input"}, {"name": "y", "kind": "output"}]
    edges: list[dict[str, Any]] = []
    for side in ("left", "right"):
        names = ["x", *(f"{side}{n}" for n in range(4)), "y"]
        work = {"kind": "matmul", "flop": 5e9, "parameters": 1e6}
        nodes += [{"name": name, "block": f"{side}.{n}", **work} for n, name in enumerate(names[1:-1])]
        edges += [{"from": a, "to": b, "bytes": 8192} for a, b in pairwise(names)]
    return {"name": "towers", "nodes": nodes, "edges": edges}


def test_branches_run_side_by_side_where_latency_counts(trimtab: Trimtab, tmp_path: Path) -> None:
    graph, placed = tmp_path / "towers.json", tmp_path / "map.json"
    graph.write_text(json.dumps(towers()), encoding="utf-8")
    asked = ["partition", str(graph), "--devices", "t4:2", "--inference", "--pipeline-only", "--batch", "8"]
    called = trimtab(*asked, "--objective", "latency", "--device-map", str(placed))
    assert called.status == 0, called.error
    assert re.search(r"it fits: branches side by side on 2 devices: .* 1\.\d+ times as fast", called.out)
    assert re.search(r"T4:\d +left +4 M +[\d.]+ MiB +[\d.]+ GiB +\d+%", called.out)
    for part in (
        "in stages    ",
        "one device   ",
        "on T4:0",
    ):
        assert part in called.out
    devices = json.loads(placed.read_text(encoding="utf-8"))
    assert {devices["left"], devices["right"]} == {0, 1}
    answer = json.loads(trimtab(*asked, "--objective", "latency", "--json").out)["placement"]
    assert answer["latency"] < 0.7 * answer["latency_alone"]
    assert answer["latency"] < 0.7 * answer["latency_in_stages"]
    assert {row["device"] for row in answer["devices"]} == {"T4:0", "T4:1"}
    assert json.loads(trimtab(*asked, "--json").out)["placement"] is None


def test_a_device_map_that_accelerate_could_not_use_is_refused(trimtab: Trimtab, tmp_path: Path) -> None:
    told = towers()
    told["nodes"].append({"name": "join", "kind": "elementwise", "block": ""})
    told["edges"] = [{**edge, "to": "join"} if edge["to"] == "y" else edge for edge in told["edges"]]
    told["edges"].append({"from": "join", "to": "y", "bytes": 8192})
    graph, placed = tmp_path / "towers.json", tmp_path / "map.json"
    graph.write_text(json.dumps(told), encoding="utf-8")
    options = ["--inference", "--pipeline-only", "--objective", "latency", "--device-map", str(placed)]
    called = trimtab("partition", str(graph), "--devices", "t4:2", *options)
    assert called.status == 2
    assert '"join" in "towers" takes tensors from devices 0 and 1' in called.error
    assert called.error.count("\n") == 1
    assert not placed.exists()


def test_a_graph_file_needs_no_torch(graph_file: Callable[..., str]) -> None:
    code = (
        "import sys; from trimtab.cli import main\n"
        "try: main()\n"
        "finally: print('torch' in sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, "partition", graph_file(), "--devices", "t4:2", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == "False"


def test_a_model_is_split_trained_and_proven_equal(trimtab: Trimtab, model_file: str, tmp_path: Path) -> None:
    folder = tmp_path / "launch"
    options = ["--batch", "4", "--microbatches", "2", "--pipeline-only", "--torchrun", str(folder)]
    target = f"{model_file}:build(layers=4, width=512)"
    called = trimtab(
        "partition",
        target,
        "--devices",
        "cpu:2x1",
        *options,
        "--method",
        "equal",
        "--run",
        "--steps",
        "2",
        "--json",
    )
    assert called.status == 0, called.error
    answer = json.loads(called.out)
    assert len(answer["plan"]["stages"]) == 2
    assert answer["recipe"]["precision"] == "fp32"
    assert answer["run"]["equal"] is True
    assert len(answer["run"]["losses"]) == 2
    assert 0.0 < answer["run"]["predicted_here"] != answer["forecast"]["seconds"]
    assert {path.name for path in folder.iterdir()} == {"plan.json", "train.py", "launch.sh"}
    with open_store() as store:
        outcomes = store.ledger.outcomes(answer["decision"])
    assert outcomes[0].measured["time"] == answer["run"]["seconds"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--devices", "warp9:2"], '"warp9"'),
        (["--devices", ""], "devices"),
        (["--devices", "t4:0"], "devices"),
        (["--devices", "t4:2,l4:1", "--network", "quick"], '"quick"'),
        (["--devices", "inferentia2:2"], "--inference"),
        (["--devices", "t4:2", "--batch", "0"], "batch"),
        (["--devices", "t4:2", "--microbatches", "5"], "5 micro-batches"),
        (["--devices", "t4:2", "--microbatches", "-1"], "--microbatches"),
        (["--devices", "t4:2", "--precision", "fp12"], '"fp12"'),
        (["--devices", "t4:2", "--optimizer", "adm"], "adam"),
        (["--devices", "t4:2", "--objective", "luck"], '"luck"'),
        (["--devices", "t4:2", "--schedule", "now"], '"now"'),
        (["--devices", "t4:2", "--sharding", "some"], '"some"'),
        (["--devices", "t4:2", "--method", "magic"], '"magic"'),
        (["--devices", "t4:2", "--max-data", "0"], "--max-data is 0"),
        (["--devices", "t4:2", "--idle-weight", "-1"], "--idle-weight"),
        (["--devices", "t4:2", "--idle-weight", "0.5"], "--objective latency"),
        (["--devices", "t4:2", "--run"], "--run"),
        (["--devices", "t4:2", "--html", "/proc/no/plan.html"], "/proc/no"),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_is_decided(
    trimtab: Trimtab, graph_file: Callable[..., str], arguments: list[str], sentence: str
) -> None:
    called = trimtab("partition", graph_file(), *arguments)
    assert called.status == 2
    assert called.out == ""
    assert sentence in called.error
    assert called.error.count("\n") == 1
    with open_store() as store:
        assert store.ledger.list() == ()


def test_a_model_that_does_not_fit_is_told_by_how_much_and_what_would_help(
    trimtab: Trimtab, graph_file: Callable[..., str]
) -> None:
    called = trimtab("partition", graph_file(weights=4e8), "--devices", "t4:2", "--batch", "8")
    assert called.status == 2
    assert called.out == ""
    assert called.error.count("\n") == 1
    assert re.search(r"needs [\d.]+ GiB on T4:\d, which is [\d.]+ GiB more than the 14 GiB", called.error)
    more = re.search(r"it would fit with (\d+) more T4 \((\d+) in all\)", called.error)
    assert more
    enough = trimtab("partition", graph_file(weights=4e8), "--devices", f"t4:{more[2]}/2", "--batch", "8")
    assert enough.status == 0


def test_devices_that_no_link_joins_are_named(trimtab: Trimtab, graph_file: Callable[..., str]) -> None:
    called = trimtab(
        "partition", graph_file(weights=2e8), "--devices", "t4:1,v100:1", "--network", "none", "--batch", "8"
    )
    assert called.status == 2
    assert "no link joins, T4:0 and V100:0; give --network" in called.error
    assert called.error.count("\n") == 1


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("nowhere.py:build", "nowhere.py"),
        ("{model}:biuld", "build"),
        ("{model}:broken", "no such weights"),
        ("nowhere.json", "nowhere.json"),
    ],
)
def test_a_builder_that_fails_is_one_sentence(
    trimtab: Trimtab, model_file: str, target: str, sentence: str
) -> None:
    called = trimtab("partition", target.format(model=model_file), "--devices", "t4:2")
    assert called.status == 2
    assert sentence in called.error
    assert called.error.count("\n") == 1


def test_a_cycle_is_named(trimtab: Trimtab, tmp_path: Path) -> None:
    told = chain(3)
    told["edges"].append({"from": "l2", "to": "l0", "bytes": 1})
    path = tmp_path / "ring.json"
    path.write_text(json.dumps(told), encoding="utf-8")
    called = trimtab("partition", str(path), "--devices", "t4:2")
    assert called.status == 2
    assert re.search(r"there is a cycle: .*l0 → .*l", called.error)
