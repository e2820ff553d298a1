"""The whole way, on this machine: profile a script on the CPU, estimate it elsewhere, run it there, compare.

"Elsewhere" is another batch size on this CPU and, where there is one, this machine's GPU at several batch
sizes and precisions. Seven architectures that no constant was fitted on.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.catalog import Accelerator, find_accelerator
from trimtab.core import BadInputError, MissingDependencyError, Profile
from trimtab.core.units import format_bytes, format_duration
from trimtab.observe import ProfilerSettings, profile
from trimtab.predict import AnalyticEstimator, Placements
from trimtab_bench import zoo
from trimtab_bench.harness import BenchOptions, BenchResult, Table

PROFILED_BATCH = 2
CPU_BATCHES = (8,)
GPU_BATCHES = (4, 32, 128)
PRECISIONS = ("tf32", "bf16")


@dataclass(frozen=True, slots=True)
class Compared:
    """One run and its estimate; memory in bytes, None on a CPU."""

    model: str
    device: str
    precision: str
    batch: int
    seconds: float
    estimated_seconds: float
    peak: float | None = None
    estimated_peak: float | None = None

    @property
    def time_error(self) -> float:
        return abs(self.estimated_seconds / self.seconds - 1)


def run(options: BenchOptions) -> BenchResult:
    """Profile, estimate and run every model."""
    try:
        import torch
    except ImportError:
        raise MissingDependencyError(
            "the bench trains with PyTorch; install it with: pip install 'trimtab[learn]'"
        ) from None
    names = zoo.MODELS[:2] if options.quick else zoo.MODELS
    gpu = find_accelerator(torch.cuda.get_device_name(0)) if torch.cuda.is_available() else None
    compared: list[Compared] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.track(names, "profile, estimate, run"):
            seen = _profile(name)
            compared += _on_cpu(seen, name, Path(folder))
            if gpu is not None:
                compared += _on_gpu(seen, name, gpu, Path(folder))
    return BenchResult("live", _figures(compared), {}, {}, options.seed, (_table(compared),))


def _profile(name: str) -> Profile:
    command = (sys.executable, zoo.__file__, name, "cpu", "1000000", os.devnull, f"{PROFILED_BATCH}:tf32")
    return profile(command, ProfilerSettings(window=60.0, name=name, steps=5))


def _measure(
    name: str, device: str, steps: int, cases: list[tuple[int, str]], folder: Path
) -> list[dict[str, float] | None]:
    """Median seconds and peak bytes of every (batch, precision); None where memory was out."""
    answer = folder / f"{name}-{device}.json"
    asked = [f"{batch}:{precision}" for batch, precision in cases]
    command = [sys.executable, zoo.__file__, name, device, str(steps), str(answer), *asked]
    done = subprocess.run(command, check=False, timeout=600, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise BadInputError(f"the model {name} could not be trained on {device}: {last:.200}")
    found: list[dict[str, float] | None] = json.loads(answer.read_text("utf-8"))
    return found


def _estimate(seen: Profile, device: str | None, batch: int, precision: str) -> tuple[float, float]:
    estimates = AnalyticEstimator(seen, precision).estimate(
        Placements(
            devices=(device,) if device else (),
            device=np.array([0 if device else -1]),
            per_node=np.ones(1),
            nodes=np.ones(1),
            cores=np.array([seen.host.cores]),
            memory=np.array([seen.host.memory]),
            network=np.full(1, 1e9),
            batch=np.array([float(batch)]),
        )
    )
    return float(estimates.total[0]), float(estimates.memory[0])


def _on_cpu(seen: Profile, name: str, folder: Path) -> list[Compared]:
    compared = []
    for batch, run in zip(
        CPU_BATCHES, _measure(name, "cpu", 7, [(b, "tf32") for b in CPU_BATCHES], folder), strict=True
    ):
        if run is not None:
            seconds, _ = _estimate(seen, None, batch, "fp32")
            compared.append(Compared(name, "cpu", "fp32", batch, run["seconds"], seconds))
    return compared


def _on_gpu(seen: Profile, name: str, gpu: Accelerator, folder: Path) -> list[Compared]:
    compared = []
    cases = [(batch, precision) for precision in PRECISIONS for batch in GPU_BATCHES]
    for (batch, precision), run in zip(cases, _measure(name, "cuda", 30, cases, folder), strict=True):
        if run is not None:
            seconds, peak = _estimate(seen, gpu.name, batch, precision)
            compared.append(
                Compared(name, gpu.name, precision, batch, run["seconds"], seconds, run["peak"], peak)
            )
    return compared


def _figures(compared: list[Compared]) -> dict[str, Any]:
    figures: dict[str, Any] = {"rows": len(compared)}
    on_cpu = [c.time_error for c in compared if c.device == "cpu"]
    figures["cpu_step_median_ape"] = float(np.median(on_cpu))
    on_gpu = [c for c in compared if c.device != "cpu"]
    if on_gpu:
        memory = [abs((c.estimated_peak or 0) / (c.peak or np.nan) - 1) for c in on_gpu]
        figures["gpu_step_median_ape"] = float(np.median([c.time_error for c in on_gpu]))
        figures["gpu_step_mean_ape"] = float(np.mean([c.time_error for c in on_gpu]))
        figures["gpu_memory_median_ape"] = float(np.median(memory))
    return figures


def _table(compared: list[Compared]) -> Table:
    rows = tuple(
        (
            c.model,
            c.device,
            c.precision,
            str(c.batch),
            format_duration(c.seconds),
            format_duration(c.estimated_seconds),
            f"{c.estimated_seconds / c.seconds - 1:+.0%}",
            format_bytes(c.peak) if c.peak else "",
            format_bytes(c.estimated_peak) if c.estimated_peak else "",
        )
        for c in compared
    )
    columns = ("model", "device", "format", "batch", "step", "estimate", "off by", "peak", "estimate")
    return Table(f"Profiled on the CPU at batch {PROFILED_BATCH}, run elsewhere", columns, rows)
