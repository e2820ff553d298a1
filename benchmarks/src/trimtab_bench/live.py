"""Profile scripts on this machine's CPU, estimate them elsewhere, run them there, and compare.

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

from trimtab.catalog import find_accelerator
from trimtab.core import BadInputError, MissingDependencyError, Profile
from trimtab.core.units import format_bytes, format_duration
from trimtab.observe import ProfilerSettings, profile
from trimtab.predict import AnalyticEstimator, Placements
from trimtab_bench import zoo
from trimtab_bench.harness import BenchOptions, BenchResult, ResultTable

PROFILED_BATCH = 2
CPU_CASES = ((8, "tf32"),)  # batch size and precision; on a CPU tf32 is fp32
GPU_CASES = tuple((batch, precision) for precision in ("tf32", "bf16") for batch in (4, 32, 128))


@dataclass(frozen=True, slots=True)
class LiveRun:
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
    try:
        import torch
    except ImportError:
        raise MissingDependencyError(
            "the bench trains with PyTorch; install it with: pip install 'trimtab[learn]'"
        ) from None
    gpu = find_accelerator(torch.cuda.get_device_name(0)) if torch.cuda.is_available() else None
    runs: list[LiveRun] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.track(zoo.MODELS[:2] if options.quick else zoo.MODELS, "profile, estimate, run"):
            command = (sys.executable, zoo.__file__, name, "cpu", "1000000", os.devnull)
            settings = ProfilerSettings(window=60.0, name=name, steps=5)
            profiled = profile((*command, f"{PROFILED_BATCH}:tf32"), settings)
            runs += _runs(profiled, name, None, Path(folder))
            if gpu is not None:
                runs += _runs(profiled, name, gpu.name, Path(folder))
    return BenchResult("live", _figures(runs), {}, {}, options.seed, (_table(runs),))


def _runs(profiled: Profile, name: str, gpu: str | None, folder: Path) -> list[LiveRun]:
    """A model's runs on the GPU of that name or, without one, on the CPU; none where memory was out."""
    cases, device, steps = (GPU_CASES, "cuda", 30) if gpu else (CPU_CASES, "cpu", 7)
    answer = folder / f"{name}-{device}.json"
    words = [f"{batch}:{precision}" for batch, precision in cases]
    command = [sys.executable, zoo.__file__, name, device, str(steps), str(answer), *words]
    done = subprocess.run(command, check=False, timeout=600, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise BadInputError(f"the model {name} could not be trained on {device}: {last:.200}")
    runs = []
    for (batch, precision), measured in zip(cases, json.loads(answer.read_text("utf-8")), strict=True):
        if measured is None:
            continue
        precision = precision if gpu else "fp32"
        seconds, peak = _estimate(profiled, gpu, batch, precision)
        memory = (measured["peak"], peak) if gpu else ()
        runs.append(LiveRun(name, gpu or "cpu", precision, batch, measured["seconds"], seconds, *memory))
    return runs


def _estimate(profiled: Profile, gpu: str | None, batch: int, precision: str) -> tuple[float, float]:
    """Seconds of a step and peak bytes."""
    estimates = AnalyticEstimator(profiled, precision).estimate(
        Placements(
            devices=(gpu,) if gpu else (),
            device=np.array([0 if gpu else -1]),
            per_node=np.ones(1),
            nodes=np.ones(1),
            cores=np.array([profiled.host.cores]),
            memory=np.array([profiled.host.memory]),
            network=np.full(1, 1e9),
            batch=np.array([float(batch)]),
        )
    )
    return float(estimates.total[0]), float(estimates.memory[0])


def _figures(runs: list[LiveRun]) -> dict[str, Any]:
    on_cpu = [run.time_error for run in runs if run.device == "cpu"]
    figures: dict[str, Any] = {"rows": len(runs), "cpu_step_median_ape": float(np.median(on_cpu))}
    on_gpu = [run for run in runs if run.device != "cpu"]
    if on_gpu:
        memory = [abs((run.estimated_peak or 0) / (run.peak or np.nan) - 1) for run in on_gpu]
        figures["gpu_step_median_ape"] = float(np.median([run.time_error for run in on_gpu]))
        figures["gpu_step_mean_ape"] = float(np.mean([run.time_error for run in on_gpu]))
        figures["gpu_memory_median_ape"] = float(np.median(memory))
    return figures


def _table(runs: list[LiveRun]) -> ResultTable:
    rows = [
        (
            run.model,
            run.device,
            run.precision,
            str(run.batch),
            format_duration(run.seconds),
            format_duration(run.estimated_seconds),
            f"{run.estimated_seconds / run.seconds - 1:+.0%}",
            format_bytes(run.peak) if run.peak else "",
            format_bytes(run.estimated_peak) if run.estimated_peak else "",
        )
        for run in runs
    ]
    columns = ("model", "device", "format", "batch", "step", "estimate", "off by", "peak", "estimate")
    return ResultTable(f"Profiled on the CPU at batch {PROFILED_BATCH}, run elsewhere", columns, rows)
