"""What is printed of a run."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from trimtab.cli.partition import print_run
from trimtab.partition import Recipe, RunReport, Solution, devices_of, load_graph, place, solve

RAN = RunReport((0.5,), (0.5,), 0.0, 0.0, 2.0, (2.0,), (), 1.0, 1.0, 1, True, ("arithmetic is fp32",))
Printed = Callable[[Solution, float | None], str]


@pytest.fixture
def found(tmp_path: Path) -> Solution:
    path = tmp_path / "graph.json"
    nodes = [
        {"name": "x", "kind": "input"},
        {"name": "l", "kind": "matmul", "flop": 1e9, "parameters": 1e6},
        {"name": "y", "kind": "output"},
    ]
    edges = [{"from": "x", "to": "l", "bytes": 8}, {"from": "l", "to": "y", "bytes": 8}]
    path.write_text(json.dumps({"name": "one", "nodes": nodes, "edges": edges}), encoding="utf-8")
    return solve(load_graph(str(path)), devices_of("cpu:2x1"), Recipe(4))


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    def tell(found: Solution, here: float | None) -> str:
        print_run(found, RAN, here)
        return capsys.readouterr().out

    return tell


def test_both_predictions_stand_beside_the_measured_step(found: Solution, printed: Printed) -> None:
    out = printed(found, 2.2)
    assert "a step took 2 s" in out
    assert "predicted before the run: " in out
    assert "predicted from the whole model's speed and the link here: 2.2 s, +10%" in out
    assert "placement" not in out


def test_a_plan_for_other_devices_is_not_compared(found: Solution, printed: Printed) -> None:
    out = printed(found, None)
    assert "a step took 2 s" in out
    assert "predicted" not in out


def test_a_run_goes_by_the_plan_and_says_so(found: Solution, printed: Printed) -> None:
    placed = replace(found, placement=place(found.graph, found.devices, found.recipe))
    assert "by the plan in stages, not the placement" in printed(placed, 2.2)
