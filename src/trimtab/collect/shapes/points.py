"""A measured point of a training job, and the CSV file that keeps them."""

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from trimtab.collect.row_file import append_rows, whole_lines
from trimtab.collect.shapes.local_run import LocalRuns
from trimtab.collect.shapes.spec import Lane, Shape, Spec
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
    """What was measured, per step and per worker, and what the whole job would take. SI units, dollars.

    `early_step_seconds` is of the window's first third, as a short trial would see it. `seconds` and `cost`
    are of the whole job. Where `status` is not ok, what was not measured is None.
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
    trial_seconds: float | None = None  # what measuring it took, its part of the start included
    measured_at: float | None = None
    attempts: int | None = None  # turns it had


COLUMNS = tuple(field.name for field in fields(Point))


def keys_of(lane: Lane, shapes: tuple[Shape, ...]) -> set[Key]:
    """The points of a lane."""
    return {(lane.job.name, shape.name, lane.batch, lane.workers) for shape in shapes}


_KIND = "measured configurations"
_ADVICE = "name another file, or go back to what it was measured with"


class PointFile:
    """A CSV file that knows which points it has; `NAME.local.json` has the local runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.local_path = path.with_suffix(".local.json")

    def finished(self, spec: Spec) -> set[Key]:
        """Which points it has. Shapes, lengths or prices other than the spec's are refused, never mixed."""
        shapes = {shape.name: shape for shape in spec.shapes}
        jobs = {job.name: job for job in spec.jobs}
        found = set[Key]()
        for number, _, row in whole_lines(self.path, COLUMNS, _KIND):
            where = f"{self.path}, line {number}"
            try:
                shape, job = shapes.get(row["shape"]), jobs.get(row["job"])
                key = (row["job"], row["shape"], int(row["batch"]), int(row["workers"]))
                now = None if shape is None else (shape.cpus, shape.memory)
                then = (float(row["cpus"]), float(row["memory_bytes"]))
                length = float(row["samples"]) if row["samples"] else None
            except ValueError:
                raise BadInputError(f"{where} is not a row of {_KIND}; name another file") from None
            if now is not None and any(abs(a - b) > 1e-5 * b for a, b in zip(then, now, strict=True)):
                raise BadInputError(f"{where} has another shape {row['shape']}; {_ADVICE}")
            if job is not None and length is not None and abs(length - job.length) > 1e-5 * length:
                raise BadInputError(f"{where} has another length of {row['job']}; {_ADVICE}")
            if row["price_date"] and row["price_date"] != spec.price_date:
                raise BadInputError(
                    f"{where} has prices of {row['price_date']}, the spec those of {spec.price_date}; "
                    f"{_ADVICE}"
                )
            found.add(key)
        return found

    def begin(self) -> None:
        """Make it ready to be appended to: a line that a kill cut off is dropped, and measured again."""
        lines = [line for _, line, _ in whole_lines(self.path, COLUMNS, _KIND)]
        text = "".join([",".join(COLUMNS) + "\n", *lines])
        if not self.path.exists() or self.path.read_text() != text:
            write_whole(self.path, text)

    def alone(self) -> AbstractContextManager[None]:
        """Hold the file, which nobody else may be writing."""
        busy = f"another trimtab collect is writing {self.path}; wait for it, or name another file"
        return file_lock(self.path.with_name(f".{self.path.name}.lock"), busy)

    def append(self, points: Sequence[Point]) -> None:
        """Add a lane's points."""
        append_rows(self.path, COLUMNS, [asdict(point) for point in points])

    def local(self) -> Mapping[str, Any]:
        """The local runs by job, as they are written down."""
        try:
            told = json.loads(self.local_path.read_text())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError):
            told = None
        if not isinstance(told, dict) or not isinstance(told.get("jobs"), dict):
            raise BadInputError(f"{self.local_path} has no local runs; move it away")
        return dict(told["jobs"])

    def keep_local(self, job: str, runs: LocalRuns) -> None:
        """Add a job's local runs."""
        jobs = {**self.local(), job: runs.plain()}
        write_whole(self.local_path, json.dumps({"jobs": jobs}, indent=1) + "\n")
