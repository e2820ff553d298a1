"""A data set of training jobs by a formula, as `trimtab collect` would have measured it; and a job to tune.

The job is a script that takes CPU as such a job would, in a folder of its own, with the SPEC around it.
"""

import csv
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from trimtab.collect.shapes.points import Point

MIB = 2**20
SHAPES = {"small": (0.1, 200, 0.01), "wide": (0.2, 200, 0.018), "roomy": (0.2, 400, 0.024)}
WORKERS = (1, 2)
BATCHES = (8, 32)
SAMPLES = 50_000_000

SCRIPT = """
import os, sys, time
batch, how = int(sys.argv[1]), sys.argv[2]
for number in range(1, 1_000_000):
    until = time.process_time() + 0.002 + 0.0002 * batch
    while time.process_time() < until:
        pass
    if how == "dies" and number == 6:
        sys.exit("the disk is on fire")
    if how == "greedy":
        held = bytearray(600 * 2**20)
    loss = "nan" if how == "diverges" and number > 5 else 1 / number
    if how != "silent":
        print(f"step {number} loss {loss} time {time.time():.4f}", flush=True)
"""


@dataclass(frozen=True)
class Physics:
    """Costs of a job's step: CPU seconds fixed and per sample, bytes, and the error of the rule."""

    fixed: float
    sample: float
    memory: float
    off: float = 1.3

    def cpu_seconds(self, batch: int, workers: int) -> float:
        return (self.fixed + self.sample * batch) * (1.0 if workers == 1 else 1.2)

    def seconds(self, cpus: float, batch: int, workers: int) -> float:
        return self.off * self.cpu_seconds(batch, workers) / cpus


JOBS = {
    "tune-me": Physics(0.002, 0.0002, 20 * MIB),
    "other": Physics(0.004, 0.0003, 100 * MIB),
    "third": Physics(0.001, 0.0006, 250 * MIB),
    "fourth": Physics(0.008, 0.0001, 60 * MIB),
}


def write_measured(folder: Path, jobs: Mapping[str, Physics] = JOBS) -> tuple[Path, Path]:
    """The two files of a data set."""
    points, local = folder / "points.csv", folder / "local.json"
    with points.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Point)])
        writer.writeheader()
        for name, physics in jobs.items():
            for shape in SHAPES:
                for workers in WORKERS:
                    for batch in BATCHES:
                        writer.writerow(asdict(point(name, physics, shape, workers, batch)))
    told = {name: {"facts": {}, "runs": local_runs(physics)} for name, physics in jobs.items()}
    local.write_text(json.dumps({"jobs": told}))
    return points, local


def point(name: str, physics: Physics, shape: str, workers: int, batch: int) -> Point:
    """One measured configuration."""
    cpus, mebibytes, price = SHAPES[shape]
    about = (name, shape, cpus, float(mebibytes * MIB), workers, batch)
    prices = {"samples": float(SAMPLES), "price_per_hour": price, "price_date": "2026-11-15"}
    if physics.memory > mebibytes * MIB:
        return Point(*about, "out-of-memory", memory_peak_bytes=physics.memory, trial_seconds=5.0, **prices)
    step = physics.seconds(cpus, batch, workers)
    seconds = SAMPLES / (batch * workers) * step
    return Point(
        *about,
        "ok",
        steps=100,
        step_seconds=step,
        early_step_seconds=step * 1.01,
        step_deviation=0.1,
        cpu_seconds_step=physics.cpu_seconds(batch, workers),
        memory_peak_bytes=physics.memory,
        bytes_step=1e5 * (workers - 1),
        seconds=seconds,
        cost=seconds / 3600 * price * workers,
        trial_seconds=5.0,
        **prices,
    )


def local_runs(physics: Physics) -> list[dict[str, Any]]:
    """Short runs without limits."""
    return [
        {
            "batch": batch,
            "workers": workers,
            "step_seconds": physics.cpu_seconds(batch, workers),
            "cpu_seconds_step": physics.cpu_seconds(batch, workers),
            "memory_peak_bytes": physics.memory,
            "bytes_step": 1e5 * (workers - 1),
            "steps": 100,
            "series": {name: [1.0, 1.0] for name in ("cpu", "memory", "received", "sent")},
        }
        for workers in WORKERS
        for batch in BATCHES
    ]


def write_spec(folder: Path, how: str = "well", samples: int = SAMPLES, **more: str) -> Path:
    """A SPEC with one job, "tune-me", that runs as `how` says: well, dies, diverges, greedy or silent."""
    (folder / "train.py").write_text(SCRIPT)
    shapes = "\n".join(
        f"  {name}: {{cpus: {cpus}, memory: {mebibytes}MiB, price_per_hour: {price}}}"
        for name, (cpus, mebibytes, price) in SHAPES.items()
    )
    told = {"window": "0.5s", "patience": "20s", **more}
    path = folder / "spec.yaml"
    path.write_text(
        "jobs:\n"
        f"  tune-me: {{command: '{sys.executable} -S train.py {{batch}} {how}', samples: {samples},"
        f" batches: {list(BATCHES)}}}\n"
        f"workers: {list(WORKERS)}\nshapes:\n{shapes}\nprice_date: 2026-11-15\n"
        + "".join(f"{name}: {value}\n" for name, value in told.items())
    )
    return path
