"""What a short run of each job showed here, without limits: per batch and with one or two workers."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.core import BadInputError, NotFoundError, did_you_mean, one_line
from trimtab.predict.fewshot import Array
from trimtab.predict.jobs.training.table import Points, check_jobs, read_points

SHIPPED = Path(str(files("trimtab.predict") / "data" / "training"))
"""Seven jobs that Trimtab measured itself."""

SERIES = ("cpu", "memory", "received", "sent")
"""CPUs in use, bytes in use, bytes received and sent per second, of one worker."""

_MEASURED = ("batch", "workers", "step_seconds", "cpu_seconds_step", "memory_peak_bytes", "bytes_step")
_FACTS = (
    "parameters",
    "trainable",
    "layers",
    "learning_rate",
    "epochs",
    "input_size",
    "output_size",
    "flop_per_sample",
    "dataset_samples",
)


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a job before it runs anywhere; NaN and "" are unknown."""

    parameters: float
    trainable: float
    layers: float
    learning_rate: float
    epochs: float
    input_size: float
    output_size: float
    flop_per_sample: float
    dataset_samples: float
    optimizer: str
    layer_kinds: Mapping[str, float]


@dataclass(frozen=True, slots=True, eq=False)
class LocalRun:
    """A short run: seconds and CPU seconds of a step, bytes at the peak, bytes sent in a step, per worker."""

    batch: float
    workers: float
    step_seconds: float
    cpu_seconds_step: float
    memory_peak_bytes: float
    bytes_step: float
    series: Mapping[str, Array]


@dataclass(frozen=True, slots=True, eq=False)
class LocalJob:
    """A job's facts and its short runs."""

    name: str
    facts: Facts
    runs: tuple[LocalRun, ...]

    @property
    def typical(self) -> LocalRun:
        """The run whose series stand for the job: as distributed as there is, with the middle batch."""
        most = max(run.workers for run in self.runs)
        spread = sorted((run for run in self.runs if run.workers == most), key=lambda run: run.batch)
        return spread[len(spread) // 2]


Local = Mapping[str, LocalJob]


@dataclass(frozen=True, slots=True, eq=False)
class DataSet:
    """Measured points, and the local run of every job in them."""

    points: Points
    local: Local

    def joined(self, others: "DataSet") -> "DataSet":
        """Both; a job that both have stays this one's."""
        new = others.points.only([job not in self.local for job in others.points.job])
        return DataSet(self.points.joined(new), {**others.local, **self.local})

    def job(self, name: str) -> LocalJob:
        """The local run of that job."""
        if name not in self.local:
            known = ", ".join(self.local)
            raise NotFoundError(
                f'there is no local run of "{one_line(name):.40}"{did_you_mean(name, list(self.local))}; '
                f"there are those of {known}"
            )
        return self.local[name]


def read_data(folder: Path = SHIPPED, price_date: str | None = None) -> DataSet:
    """`points.csv` and `points.local.json` of a folder; what comes with Trimtab if none is named."""
    points, local = read_points(folder / "points.csv", price_date), read_local(folder / "points.local.json")
    check_jobs(points, list(local))
    return DataSet(points, local)


def read_local(path: Path) -> Local:
    """The local runs of all jobs in a file."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInputError(f"there is no file {path}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise BadInputError(f"{path} cannot be read: {one_line(str(error))}") from None
    jobs = told.get("jobs") if isinstance(told, dict) else None
    if not isinstance(jobs, dict) or not jobs:
        raise BadInputError(f"{path} has no jobs; it needs {{'jobs': {{NAME: {{'facts', 'runs'}}}}}}")
    return {name: local_job(f"{path}, {name}", name, job) for name, job in jobs.items()}


def local_job(where: str, name: str, told: Any) -> LocalJob:
    """One job's part of such a file; `where` begins what is said when something is wrong with it."""
    if not isinstance(told, dict) or not isinstance(told.get("runs"), list) or not told["runs"]:
        raise BadInputError(f"{where}: there are no runs; a job needs one at least")
    runs = tuple(_run(f"{where}, run {number + 1}", run) for number, run in enumerate(told["runs"]))
    return LocalJob(name, _facts(where, told.get("facts") or {}), runs)


def _facts(where: str, told: Any) -> Facts:
    if not isinstance(told, dict):
        raise BadInputError(f"{where}: facts are values by name")
    kinds = told.get("layer_kinds") or {}
    if not isinstance(kinds, dict):
        raise BadInputError(f"{where}: layer_kinds are counts by kind")
    numbers = {name: _number(where, told, name, needed=False) for name in _FACTS}
    counts = {str(kind): _number(where, kinds, kind) for kind in kinds}
    return Facts(**numbers, optimizer=str(told.get("optimizer") or ""), layer_kinds=counts)


def _run(where: str, told: Any) -> LocalRun:
    if not isinstance(told, dict):
        raise BadInputError(f"{where}: a run is values by name")
    numbers = {name: _number(where, told, name) for name in _MEASURED}
    for name in _MEASURED[:-1]:  # a worker alone sends nothing
        if numbers[name] <= 0:
            raise BadInputError(f"{where}: {name} is {numbers[name]:g}; it must be above zero")
    series = told.get("series")
    if not isinstance(series, dict) or any(not series.get(name) for name in SERIES):
        raise BadInputError(f"{where}: series are lists of {', '.join(SERIES)}")
    try:
        arrays = {name: np.array(series[name], dtype=float) for name in SERIES}
    except (TypeError, ValueError):
        raise BadInputError(f"{where}: series are lists of numbers") from None
    for name, values in arrays.items():
        if values.ndim != 1 or not np.isfinite(values).all():
            raise BadInputError(f"{where}: the series {name} has something in it that is no number")
    return LocalRun(**numbers, series=arrays)


def _number(where: str, told: Mapping[str, Any], name: str, needed: bool = True) -> float:
    value = told.get(name)
    if value is None and not needed:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadInputError(f"{where}: {name} is {one_line(str(value)):.40}; it must be a number")
    return float(value)
