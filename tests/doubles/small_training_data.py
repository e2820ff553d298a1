"""A small made-up data set: jobs whose steps take what physics says, a fifth more, and a little noise."""

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trimtab.predict.jobs.training_data import DataSet, read_data

MIB = 2**20
SHAPES = {"small": (0.1, 300), "medium": (0.2, 500), "large": (0.4, 900)}
# fixed and per sample in ms of CPU, millions of parameters, batches, MiB at the peak: fixed, per sample
JOBS = {
    "words": (3.0, 0.02, 1.0, (16, 64), 200, 0.1),
    "dense": (2.0, 0.06, 4.0, (32, 128), 210, 0.2),
    "pictures": (2.0, 0.8, 0.3, (16, 64), 220, 2.5),
    "speech": (4.0, 0.4, 0.5, (8, 32), 200, 4.0),
}


def point(job: str, shape: str, batch: int, workers: int, random: np.random.Generator) -> dict[str, Any]:
    fixed, sample, millions, _, base, each = JOBS[job]
    cpus, memory = SHAPES[shape]
    share = 2 * (workers - 1) / workers
    row: dict[str, Any] = {
        "job": job,
        "shape": shape,
        "cpus": cpus,
        "memory_bytes": memory * MIB,
        "workers": workers,
        "batch": batch,
        "status": "ok",
        "samples": 1e6,
        "price_per_hour": 0.03 * cpus + 0.004 * memory / 1024,
        "price_date": "2026-11-15",
        "trial_seconds": 9.0,
        "memory_peak_bytes": (base + each * batch) * MIB,
    }
    if base + each * batch > memory:
        return {**row, "status": "out-of-memory"}
    cpu = (fixed + sample * batch + share * 4 * millions) / 1e3
    step = 1.2 * cpu / cpus * workers**0.05 * random.lognormal(0, 0.01)
    seconds = math.ceil(row["samples"] / (batch * workers)) * step
    return {
        **row,
        "steps": int(5 / step) + 1,
        "step_seconds": step,
        "early_step_seconds": step,
        "step_deviation": 0.1,
        "cpu_seconds_step": cpu,
        "bytes_step": share * 4e6 * millions,
        "seconds": seconds,
        "cost": seconds / 3600 * row["price_per_hour"] * workers,
    }


def local_run(job: str, batch: int, workers: int) -> dict[str, Any]:
    fixed, sample, millions, _, base, each = JOBS[job]
    cpu = (fixed + sample * batch + (workers - 1) * 4 * millions) / 1e3
    sent = (workers - 1) * 4e6 * millions
    return {
        "batch": batch,
        "workers": workers,
        "step_seconds": 1.05 * cpu,
        "cpu_seconds_step": cpu,
        "memory_peak_bytes": (base + each * batch) * MIB,
        "bytes_step": sent,
        "steps": 100,
        "series": {
            "every": 0.25,
            "cpu": [0.95] * 20,
            "memory": [base * MIB] * 20,
            "received": [sent / cpu] * 20,
            "sent": [sent / cpu] * 20,
        },
    }


def facts(job: str) -> dict[str, Any]:
    return {
        "parameters": JOBS[job][2] * 1e6,
        "trainable": JOBS[job][2] * 1e6,
        "layers": 4,
        "layer_kinds": {"Linear": 2, "Conv2d": 1 + (job == "pictures")},
        "optimizer": "SGD" if job in ("words", "speech") else "Adam",
        "learning_rate": 0.01,
        "epochs": 5,
        "input_size": 784,
        "output_size": None,
        "flop_per_sample": 1e6,
        "dataset_samples": 2e5,
    }


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    random = np.random.default_rng(0)
    return [
        point(job, shape, batch, workers, random)
        for job, (_, _, _, batches, _, _) in JOBS.items()
        for shape in SHAPES
        for batch in batches
        for workers in (1, 2, 4)
    ]


@pytest.fixture
def jobs() -> dict[str, Any]:
    return {
        job: {"facts": facts(job), "runs": [local_run(job, b, w) for b in JOBS[job][3] for w in (1, 2)]}
        for job in JOBS
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def write(folder: Path) -> Callable[..., Path]:
    """A folder with both files; a column named in `without` is left out."""

    def write(rows: list[dict[str, Any]], jobs: dict[str, Any], without: str = "") -> Path:
        columns = [name for name in dict.fromkeys(name for row in rows for name in row) if name != without]
        with (folder / "points.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)
        (folder / "points.local.json").write_text(json.dumps({"jobs": jobs}), encoding="utf-8")
        return folder

    return write


@pytest.fixture
def data(write: Callable[..., Path], rows: list[dict[str, Any]], jobs: dict[str, Any]) -> DataSet:
    return read_data(write(rows, jobs))
