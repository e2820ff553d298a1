"""Measured training jobs: points (a row per job, shape, batch and number of workers) and local runs.

Points are read from a CSV that `trimtab collect` writes. A local run is a short run of a job without limits,
per batch and with one or two workers, with facts about its model.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WrapValidator

from trimtab.core import BadInputError, NotFoundError, Number, did_you_mean, one_line, validate
from trimtab.predict.fewshot.case import Array, settings_table
from trimtab.predict.tables import CsvTable, Flags, join_rows, read_table, take_rows

OK = "ok"
STATUSES = (OK, "out-of-memory", "failed", "diverged", "no-steps", "timed-out")

_ALWAYS = ("cpus", "memory_bytes", "workers", "batch")
_SHARED = {"samples": "job", "price_per_hour": "shape"}  # a failed row may leave these to others of its kind
_WHERE_OK = ("step_seconds", "early_step_seconds", "cpu_seconds_step", "seconds", "cost")
_OPTIONAL = ("steps", "step_deviation", "memory_peak_bytes", "bytes_step", "trial_seconds")
COLUMNS = ("job", "shape", "status", "price_date", *_ALWAYS, *_SHARED, *_WHERE_OK, *_OPTIONAL)
"""Columns that are read; others are ignored."""


@dataclass(frozen=True, slots=True, eq=False)
class Configurations:
    """Ways to run a job: machines of a shape, a worker on each, a batch for each worker. Bytes, dollars."""

    shape: tuple[str, ...]
    cpus: Array
    memory_bytes: Array
    workers: Array
    batch: Array
    price_per_hour: Array  # of one machine

    def __len__(self) -> int:
        return len(self.shape)

    def only(self, rows: ArrayLike) -> "Configurations":
        """The rows of a mask, or of indices in their order."""
        return take_rows(self, rows)

    def name(self, row: int) -> str:
        """Name such as "standard-20 workers=2 batch=64"."""
        return f"{self.shape[row]} workers={self.workers[row]:g} batch={self.batch[row]:g}"

    @property
    def price_per_second(self) -> Array:
        """Dollars per second of all machines."""
        return np.asarray(self.price_per_hour * self.workers / 3600.0)

    def settings(self) -> Array:
        """Settings table of a case, which searches and predictors of any workload read."""
        return settings_table(
            len(self),
            memory_bytes=self.memory_bytes,
            cpus=self.cpus,
            nodes=self.workers,
            price_per_hour=self.price_per_hour,
            batch_size=self.batch,
            training=np.ones(len(self)),
        )

    def steps(self, samples: ArrayLike) -> Array:
        return np.asarray(np.ceil(np.asarray(samples) / (self.batch * self.workers)))


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Measurements, NaN where unknown. `seconds` and `cost` are of the complete job."""

    job: tuple[str, ...]
    where: Configurations
    status: tuple[str, ...]
    price_date: str
    samples: Array
    steps: Array
    step_seconds: Array
    early_step_seconds: Array
    step_deviation: Array
    cpu_seconds_step: Array
    memory_peak_bytes: Array
    bytes_step: Array
    seconds: Array
    cost: Array
    trial_seconds: Array

    def __len__(self) -> int:
        return len(self.job)

    @property
    def ok(self) -> Flags:
        return np.array([status == OK for status in self.status], dtype=bool)

    @property
    def jobs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.job))

    def target(self, objective: str) -> Array:
        """The quantity to minimize: dollars of the complete job ("cost"), or its seconds ("time")."""
        return {"cost": self.cost, "time": self.seconds}[objective]

    def only(self, rows: ArrayLike) -> "Points":
        """The rows of a mask, or of indices in their order."""
        return take_rows(self, rows)

    def joined(self, others: "Points") -> "Points":
        """These points, then the others; the price date is that of these."""
        return join_rows(self, others)

    def of(self, job: str) -> "Points":
        if job not in self.job:
            raise NotFoundError(_no_such_job(job, self.jobs))
        return self.only([name == job for name in self.job])

    def without(self, job: str) -> "Points":
        return self.only([name != job for name in self.job])


def read_points(path: Path, price_date: str | None = None) -> Points:
    """The file's rows of one price date, which must be named where there are several."""
    table = _of_one_date(read_table(path, COLUMNS), price_date)
    jobs, shapes, status = (table.text(name) for name in ("job", "shape", "status"))
    for row, value in enumerate(status):
        if value not in STATUSES:
            raise table.error(row, "status", f"{one_line(value)!r:.40} is none of {', '.join(STATUSES)}")
    ran = np.array(status) == OK
    numbers = {name: table.numbers(name) for name in _OPTIONAL}
    numbers |= {name: table.positive(name) for name in _ALWAYS}
    numbers |= {name: table.positive(name, ran) for name in (*_SHARED, *_WHERE_OK)}
    lines = dict[tuple[str, ...], int]()
    for line, *point in zip(table.lines, jobs, shapes, *map(table.text, ("batch", "workers")), strict=True):
        first = lines.setdefault(tuple(point), line)
        if first != line:
            raise BadInputError(f"{path}: lines {first} and {line} measure the same point; keep one of them")
    for name, kind in _SHARED.items():
        pairs = zip(table.columns[kind], numbers[name], strict=True)
        known = {key: value for key, value in pairs if value > 0}
        for row, key in enumerate(table.columns[kind]):
            if key not in known:
                raise table.error(row, name, f"no row of the {kind} {key} has a value")
        shared = np.array([known[key] for key in table.columns[kind]])
        numbers[name] = np.where(np.isnan(numbers[name]), shared, numbers[name])
    where = Configurations(shapes, *(numbers.pop(name) for name in (*_ALWAYS, "price_per_hour")))
    (date,) = set(table.columns["price_date"]) - {""}
    return Points(jobs, where, status, date, **numbers)


def _of_one_date(table: CsvTable, price_date: str | None) -> CsvTable:
    dates = sorted(set(table.columns["price_date"]) - {""})
    if not dates:
        raise BadInputError(f"{table.path}: the column price_date is empty; it needs the date of the prices")
    if price_date is None and len(dates) > 1:
        raise BadInputError(
            f"{table.path} has prices of {' and '.join(dates)}, which cannot be compared; keep those of one"
        )
    if price_date is not None and price_date not in dates:
        raise BadInputError(f"{table.path} has no prices of {price_date}, only of {', '.join(dates)}")
    date = price_date or dates[0]
    return table.only(np.isin(table.columns["price_date"], ("", date)), f"of {date}")  # "": a failed row


def _no_such_job(job: str, known: Sequence[str]) -> str:
    return f'there is no job "{one_line(job):.40}"{did_you_mean(job, known)}; there are {", ".join(known)}'


SHIPPED = Path(str(files("trimtab.predict") / "data" / "training"))
"""Seven jobs that Trimtab measured itself."""

SERIES = ("cpu", "memory", "received", "sent")
"""CPUs in use, bytes in use, bytes received and sent per second, of one worker."""

Fact = Annotated[Number, WrapValidator(lambda value, check: math.nan if value is None else check(value))]
Positive = Annotated[Number, Field(gt=0)]
Samples = Annotated[tuple[Number, ...], Field(min_length=1)]


class _Measured(BaseModel):
    """Part of a file of local runs: finite numbers; other fields are ignored."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class JobFacts(_Measured):
    """Facts that are known of a job before it runs anywhere; NaN and "" are unknown."""

    parameters: Fact = math.nan
    trainable: Fact = math.nan
    layers: Fact = math.nan
    learning_rate: Fact = math.nan
    epochs: Fact = math.nan
    input_size: Fact = math.nan
    output_size: Fact = math.nan
    flop_per_sample: Fact = math.nan
    dataset_samples: Fact = math.nan
    optimizer: Annotated[str, BeforeValidator(lambda value: str(value or ""))] = ""
    layer_kinds: Annotated[dict[str, Number], BeforeValidator(lambda value: value or {})] = {}


class RunSeries(_Measured):
    """Samples of one worker over time, in the units of `SERIES`."""

    cpu: Samples
    memory: Samples
    received: Samples
    sent: Samples


class LocalJobRun(_Measured):
    """A short run: seconds and CPU seconds of a step, bytes at the peak, bytes sent in a step, per worker."""

    batch: Positive
    workers: Positive
    step_seconds: Positive
    cpu_seconds_step: Positive
    memory_peak_bytes: Positive
    bytes_step: Number  # a worker alone sends nothing
    series: RunSeries


class LocalJob(_Measured):
    """A job's facts and its short runs."""

    name: str = ""
    facts: Annotated[JobFacts, BeforeValidator(lambda value: value or {})] = JobFacts()
    runs: Annotated[tuple[LocalJobRun, ...], Field(min_length=1)]

    @property
    def typical(self) -> LocalJobRun:
        """The run whose series stand for the job: as distributed as there is, with the median batch."""
        most = max(run.workers for run in self.runs)
        runs = sorted((run for run in self.runs if run.workers == most), key=lambda run: run.batch)
        return runs[len(runs) // 2]


class _LocalFile(_Measured):
    jobs: Annotated[dict[str, LocalJob], Field(min_length=1)]


Local = Mapping[str, LocalJob]


@dataclass(frozen=True, slots=True, eq=False)
class DataSet:
    """Measured points, and the local run of every job in them."""

    points: Points
    local: Local

    def joined(self, others: "DataSet") -> "DataSet":
        """Both; of a job that both have, these measurements count."""
        new = others.points.only([job not in self.local for job in others.points.job])
        return DataSet(self.points.joined(new), {**others.local, **self.local})

    def job(self, name: str) -> LocalJob:
        if name not in self.local:
            raise NotFoundError(f"there is no local run: {_no_such_job(name, list(self.local))}")
        return self.local[name]


def read_data(folder: Path = SHIPPED, price_date: str | None = None) -> DataSet:
    """`points.csv` and `points.local.json` of a folder; the shipped ones if none is named."""
    local = read_local(folder / "points.local.json")
    data = DataSet(read_points(folder / "points.csv", price_date), local)
    for job in data.points.jobs:
        data.job(job)
    return data


def read_local(path: Path) -> Local:
    """The local runs of all jobs in a file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInputError(f"there is no file {path}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise BadInputError(f"{path} cannot be read: {one_line(str(error))}") from None
    jobs = validate(_LocalFile, data, str(path)).jobs
    return {name: job.model_copy(update={"name": name}) for name, job in jobs.items()}


def local_job(where: str, name: str, data: Any) -> LocalJob:
    """One job's part of such a file; `where` begins the message when something is wrong with it."""
    return validate(LocalJob, data, where).model_copy(update={"name": name})
