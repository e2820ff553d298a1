"""Scaling figures on a small folder of the published format."""

import csv
from pathlib import Path
from typing import Any

import pytest
from trimtab_bench.devices.scaling import SCALING_SOURCES, language_steps, scaling_figures

COLUMNS = (
    *("source", "gpu", "gpus", "nodes", "model", "arch", "task", "mode", "precision", "batch_per_gpu"),
    *("input", "samples_per_s", "unit", "step_ms", "framework", "engine", "layout", "note"),
)


def _write(folder: Path, source: str, rows: list[dict[str, Any]]) -> None:
    with (folder / f"{source}.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, COLUMNS, restval="")
        table.writeheader()
        table.writerows({"source": source, "mode": "train", **row} for row in rows)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    image = {"arch": "resnet50", "precision": "fp16-amp", "batch_per_gpu": 128, "gpu": "V100-SXM-16GB"}
    rows = [
        {**image, "gpus": 1, "nodes": 1, "samples_per_s": 800, "step_ms": 160},
        {**image, "gpus": 8, "nodes": 1, "samples_per_s": 8 * 750},
        {**image, "gpus": 4, "nodes": 1, "samples_per_s": 9999, "note": "SUSPECT"},
        {**image, "arch": "unheard-of", "gpus": 2, "nodes": 1, "samples_per_s": 1},
    ]
    for source in SCALING_SOURCES:
        _write(tmp_path, source, rows)
    gpt = {"gpu": "A100-SXM", "arch": "gpt_h8192_l48_a64", "precision": "fp16-amp", "input": 2048}
    note = "micro-batch 3, TP 8 DP 4 PP 16; activation recomputation"
    large = {**gpt, "gpus": 512, "nodes": 64, "batch_per_gpu": 3, "step_ms": 16360.8, "note": note}
    _write(tmp_path, "vtrain", [large, {**large, "gpus": 4, "nodes": 1}])
    for source in ("llm-foundry", "torchtitan"):
        _write(tmp_path, source, [])
    return tmp_path


def test_figures_count_comparable_rows_only(folder: Path) -> None:
    figures = scaling_figures(folder)
    assert figures["scaling_rows"] == len(SCALING_SOURCES)
    assert 0 <= figures["scaling_gap"] < 0.2
    assert figures["llm_rows"] == 1
    assert figures["llm_median_ape"] < 0.5
    assert figures["cpu"]["rows"] == 48
    assert figures["cpu"]["median_ape"] < 0.15
    assert figures["cpu"]["coverage90"] > 0.85


def test_a_note_gives_the_layout(folder: Path) -> None:
    (step,) = language_steps(folder, "vtrain")
    layout = step.parallel
    assert (layout.tensor, layout.pipeline, layout.microbatches, layout.recompute) == (8, 16, 128, True)
