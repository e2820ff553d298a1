"""A measured point of a training job, and the CSV file that keeps them."""

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.collect.row_file import RowFile
from trimtab.collect.shapes.local_run import LocalRuns
from trimtab.collect.shapes.spec import Shape, Spec, TrainingGang
from trimtab.core import BadInputError
from trimtab.kernel import file_lock, write_whole

OK = "ok"
OUT_OF_MEMORY = "out-of-memory"
FAILED = "failed"
DIVERGED = "diverged"
NO_STEPS = "no-steps"
TIMED_OUT = "timed-out"

Key = tuple[str, str, int, int]
"""Job, shape, batch and workers."""


@dataclass(frozen=True, slots=True)
class Point:
    """Measurements per step and per worker, and time and cost of the whole job. SI units, dollars.

    `early_step_seconds` is from the window's first third, like a short trial. `seconds` and `cost` are of the
    whole job. Where `status` is not ok, fields that were not measured are None.
    """

    job: str
    shape: str
    cpus: float
    memory_bytes: float
    workers: int
    batch: int
    status: str
    steps: int | None = None
    step_seconds: float | None = None
    early_step_seconds: float | None = None
    step_deviation: float | None = None  # of single steps, over their mean
    cpu_seconds_step: float | None = None
    throttled_share: float | None = None
    memory_peak_bytes: float | None = None  # of the largest worker
    bytes_step: float | None = None  # that a worker sends
    samples: float | None = None
    seconds: float | None = None
    price_per_hour: float | None = None  # of one machine
    price_date: str | None = None
    cost: float | None = None
    probe_seconds: float | None = None
    trial_seconds: float | None = None  # duration of the measurement, with its part of the start
    measured_at: float | None = None
    attempts: int | None = None  # turns it had


def keys_of(gang: TrainingGang, shapes: tuple[Shape, ...]) -> set[Key]:
    """The points of a gang."""
    return {(gang.job.name, shape.name, gang.batch, gang.workers) for shape in shapes}


_ADVICE = "name another file, or restore the SPEC it was measured with"


class PointFile(RowFile):
    """A CSV file of points; `NAME.local.json` has the local runs."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, Point, "measured configurations")
        self.local_path = path.with_suffix(".local.json")

    def finished(self, spec: Spec) -> set[Key]:
        """Points in the file; shapes, lengths or prices other than the spec's are refused."""
        shapes = {shape.name: shape for shape in spec.shapes}
        jobs = {job.name: job for job in spec.jobs}
        keys = set[Key]()
        for number, _, row in self.lines():
            where = f"{self.path}, line {number}"
            try:
                shape, job = shapes.get(row["shape"]), jobs.get(row["job"])
                key = (row["job"], row["shape"], int(row["batch"]), int(row["workers"]))
                now = None if shape is None else (shape.cpus, shape.memory)
                then = (float(row["cpus"]), float(row["memory_bytes"]))
                length = float(row["samples"]) if row["samples"] else None
            except ValueError:
                raise self.not_a_row(number) from None
            if now is not None and any(abs(a - b) > 1e-5 * b for a, b in zip(then, now, strict=True)):
                raise BadInputError(f"{where} has another shape {row['shape']}; {_ADVICE}")
            if job is not None and length is not None and abs(length - job.length) > 1e-5 * length:
                raise BadInputError(f"{where} has another length of {row['job']}; {_ADVICE}")
            if row["price_date"] and row["price_date"] != spec.price_date:
                raise BadInputError(
                    f"{where} has prices of {row['price_date']}, the spec those of {spec.price_date}; "
                    f"{_ADVICE}"
                )
            keys.add(key)
        return keys

    def alone(self) -> AbstractContextManager[None]:
        """Lock the file against other writers."""
        busy = f"another trimtab collect is writing {self.path}; wait for it, or name another file"
        return file_lock(self.path.with_name(f".{self.path.name}.lock"), busy)

    def local(self) -> Mapping[str, Any]:
        """The local runs by job, as plain data."""
        try:
            content = json.loads(self.local_path.read_text())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError):
            content = None
        if not isinstance(content, dict) or not isinstance(content.get("jobs"), dict):
            raise BadInputError(f"{self.local_path} has no local runs; move it away")
        return dict(content["jobs"])

    def keep_local(self, job: str, runs: LocalRuns) -> None:
        """Add a job's local runs."""
        jobs = {**self.local(), job: runs.plain()}
        write_whole(self.local_path, json.dumps({"jobs": jobs}, indent=1) + "\n")
