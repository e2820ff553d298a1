"""Stages that were timed on a GPU, beside what is predicted of them."""

import json
from pathlib import Path

import pytest
from trimtab_bench.partition.gpu_stages import BUNDLED, StagedModel, plan_of, stage_errors

from trimtab.partition import load_graph

CHAIN = StagedModel("trimtab_bench.partition.models:chain", 2, 8, "fp32")


def test_stages_have_equal_work() -> None:
    graph = load_graph(CHAIN.target)
    plan = plan_of(CHAIN, graph)
    first, second = (sum(graph.flop[list(stage.nodes)]) for stage in plan.stages)
    assert first == second
    assert plan.batch == 8


def _measured(path: Path, factor: float) -> Path:
    times = [{"forward": factor, "backward": factor, "update": 0.0, "memory": factor * 1e9}] * 2
    told = {"target": CHAIN.target, "stages": 2, "samples": 8, "precision": "fp32", "times": times}
    path.write_text(json.dumps([told]), encoding="utf-8")
    return path


def test_errors_are_relative_to_what_was_measured(tmp_path: Path) -> None:
    once, twice = (stage_errors(_measured(tmp_path / "measured.json", factor)) for factor in (1.0, 2.0))
    (errors,) = once["models"].values()
    (halved,) = twice["models"].values()
    for what in ("seconds", "memory"):
        assert len(errors[what]) == 2
        for error, half in zip(errors[what], halved[what], strict=True):
            assert 1.0 + half == pytest.approx((1.0 + error) / 2.0)
    assert once["worst_seconds"] >= once["median_seconds"] > 0.0


def test_what_is_bundled_names_models_that_are_here() -> None:
    told = json.loads(BUNDLED.read_text(encoding="utf-8"))
    assert len(told) == 10
    assert all(each["times"] and each["target"].startswith("trimtab_bench.partition.") for each in told)
