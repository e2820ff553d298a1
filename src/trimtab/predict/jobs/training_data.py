"""Measured training jobs: points (a row per job, shape, batch and number of workers) and local runs.

Points are read from a CSV that `trimtab collect` writes. A local run is a short run of a job without limits,
per batch and with one or two workers, with facts about its model.
"""

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trimtab.core import BadInputError, NotFoundError, did_you_mean, one_line
from trimtab.predict.fewshot import Array, settings_table

Flags = NDArray[np.bool_]

OK = "ok"
STATUSES = (OK, "out-of-memory", "failed", "diverged", "no-steps", "timed-out")

_WORDS = ("job", "shape", "status")
_ALWAYS = ("cpus", "memory_bytes", "workers", "batch")
_SAME = {"samples": "job", "price_per_hour": "shape"}  # which a failed row may leave to others of its kind
_WHERE_OK = ("step_seconds", "early_step_seconds", "cpu_seconds_step", "seconds", "cost")
_MAYBE = ("steps", "step_deviation", "memory_peak_bytes", "bytes_step", "trial_seconds")
COLUMNS = (*_WORDS, "price_date", *_ALWAYS, *_SAME, *_WHERE_OK, *_MAYBE)
"""What is read; other columns are ignored."""


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
        """Those of a mask, or indices in the order wanted."""
        index = np.arange(len(self))[np.asarray(rows)]
        return Configurations(
            tuple(self.shape[i] for i in index),
            *(getattr(self, name)[index] for name in self.__slots__ if name != "shape"),
        )

    def joined(self, others: "Configurations") -> "Configurations":
        """Both, these first."""
        return Configurations(
            self.shape + others.shape,
            *(
                np.concatenate([getattr(self, name), getattr(others, name)])
                for name in self.__slots__
                if name != "shape"
            ),
        )

    def name(self, row: int) -> str:
        """Such as "standard-20 workers=2 batch=64"."""
        return f"{self.shape[row]} workers={self.workers[row]:g} batch={self.batch[row]:g}"

    @property
    def price_per_second(self) -> Array:
        """Of all machines."""
        return np.asarray(self.price_per_hour * self.workers / 3600.0)

    def settings(self) -> Array:
        """As the settings of a case, by which searches and predictors of any workload see them."""
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
        """How many steps so many samples are."""
        return np.asarray(np.ceil(np.asarray(samples) / (self.batch * self.workers)))


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """What was measured; NaN where it was not. `seconds` and `cost` are of the whole job."""

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
        """Where it ran."""
        return np.array([status == OK for status in self.status], dtype=bool)

    @property
    def jobs(self) -> tuple[str, ...]:
        """Their names, in the order of the file."""
        return tuple(dict.fromkeys(self.job))

    def target(self, objective: str) -> Array:
        """What is wanted small: dollars of the whole job ("cost"), or its seconds ("time")."""
        return {"cost": self.cost, "time": self.seconds}[objective]

    def only(self, rows: ArrayLike) -> "Points":
        """Those of a mask, or indices in the order wanted."""
        index = np.arange(len(self))[np.asarray(rows)]
        columns = {each.name: getattr(self, each.name) for each in fields(self)}
        kept = {name: values[index] for name, values in columns.items() if _is_column(values)}
        return Points(
            tuple(self.job[i] for i in index),
            self.where.only(index),
            tuple(self.status[i] for i in index),
            self.price_date,
            **kept,
        )

    def joined(self, others: "Points") -> "Points":
        """Both; the price date stays this one's."""
        columns = {each.name: (getattr(self, each.name), getattr(others, each.name)) for each in fields(self)}
        arrays = {name: np.concatenate(both) for name, both in columns.items() if _is_column(both[0])}
        where = self.where.joined(others.where)
        return Points(self.job + others.job, where, self.status + others.status, self.price_date, **arrays)

    def of(self, job: str) -> "Points":
        """One job's."""
        if job not in self.job:
            raise NotFoundError(_no_such_job(job, self.jobs))
        return self.only([name == job for name in self.job])

    def without(self, job: str) -> "Points":
        """All other jobs'."""
        return self.only([name != job for name in self.job])


def read_points(path: Path, price_date: str | None = None) -> Points:
    """The file's rows; of one price date, which must be named where there are several."""
    rows = _of_one_date(path, _rows(path), price_date)
    numbers = {name: _numbers(path, rows, name) for name in (*_ALWAYS, *_SAME, *_WHERE_OK, *_MAYBE)}
    status = tuple(row["status"] for _, row in rows)
    for (line, _), found in zip(rows, status, strict=True):
        if found not in STATUSES:
            raise BadInputError(
                f"{path}, line {line}: status {one_line(found)!r:.40} is none of {', '.join(STATUSES)}"
            )
    ran = np.array([found == OK for found in status])
    for name in (*_ALWAYS, *_SAME, *_WHERE_OK):
        needed = np.ones(len(rows), dtype=bool) if name in _ALWAYS else ran
        for place in np.flatnonzero(needed & ~(numbers[name] > 0))[:1]:
            line, row = rows[place]
            raise BadInputError(
                f"{path}, line {line}, column {name}: {row[name]!r:.40} is not a number above zero"
            )
    _refuse_repeats(path, rows)
    for name, kind in _SAME.items():
        numbers[name] = _filled(path, rows, numbers[name], name, kind)
    where = Configurations(
        tuple(row["shape"] for _, row in rows),
        *(numbers.pop(name) for name in ("cpus", "memory_bytes", "workers", "batch", "price_per_hour")),
    )
    jobs = tuple(row["job"] for _, row in rows)
    (date,) = {row["price_date"] for _, row in rows} - {""}
    return Points(jobs, where, status, date, **numbers)


def check_jobs(points: Points, known: Sequence[str]) -> None:
    """Refuse points of a job whose local run is missing."""
    for job in points.jobs:
        if job not in known:
            raise NotFoundError(f"the points' job has no local run: {_no_such_job(job, known)}")


def _is_column(values: object) -> bool:
    return isinstance(values, np.ndarray)


_Row = tuple[int, Mapping[str, str]]


def _rows(path: Path) -> list[_Row]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            rows: list[_Row] = [(reader.line_num, row) for row in reader]
    except FileNotFoundError:
        raise BadInputError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInputError(f"{path} cannot be read: {one_line(str(error))}") from None
    missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        raise BadInputError(f"{path} has no column {missing[0]}; it needs {', '.join(COLUMNS)}")
    if not rows:
        raise BadInputError(f"{path} has a header and no row")
    for line, row in rows:
        if None in row or None in row.values():
            raise BadInputError(f"{path}, line {line} has not as many fields as the header")
        for name in _WORDS:
            if not row[name]:
                raise BadInputError(f"{path}, line {line}, column {name} is empty")
    return rows


def _of_one_date(path: Path, rows: list[_Row], price_date: str | None) -> list[_Row]:
    dates = sorted({row["price_date"] for _, row in rows} - {""})
    if not dates:
        raise BadInputError(f"{path} does not say of which date its prices are; column price_date is empty")
    if price_date is None and len(dates) > 1:
        raise BadInputError(
            f"{path} has prices of {' and '.join(dates)}, which cannot be compared; keep the rows of one date"
        )
    if price_date is not None and price_date not in dates:
        raise BadInputError(f"{path} has no prices of {price_date}; there are those of {', '.join(dates)}")
    kept = ("", price_date or dates[0])  # a row that failed may have none
    return [(line, row) for line, row in rows if row["price_date"] in kept]


def _numbers(path: Path, rows: list[_Row], name: str) -> Array:
    """A column of finite numbers; empty is NaN."""
    values = np.full(len(rows), np.nan)
    for place, (line, row) in enumerate(rows):
        text = row[name]
        if not text:
            continue
        try:
            values[place] = float(text)
        except ValueError:
            values[place] = np.nan
        if not np.isfinite(values[place]):
            raise BadInputError(
                f"{path}, line {line}, column {name}: {text!r:.40} is no number; leave what is unknown empty"
            )
    return values


def _filled(path: Path, rows: list[_Row], values: Array, name: str, kind: str) -> Array:
    """What a failed row does not say is as in the rows of the same job or shape that ran."""
    known = {row[kind]: value for (_, row), value in zip(rows, values, strict=True) if value > 0}
    for line, row in rows:
        if row[kind] not in known:
            raise BadInputError(f"{path}, line {line}: no row of the {kind} {row[kind]} says its {name}")
    return np.array(
        [known[row[kind]] if np.isnan(v) else v for (_, row), v in zip(rows, values, strict=True)]
    )


def _refuse_repeats(path: Path, rows: list[_Row]) -> None:
    seen = dict[tuple[str, ...], int]()
    for line, row in rows:
        key = tuple(row[name] for name in ("job", "shape", "batch", "workers"))
        if key in seen:
            raise BadInputError(f"{path}, line {line} measures what line {seen[key]} did; keep one of them")
        seen[key] = line


def _no_such_job(job: str, known: Sequence[str]) -> str:
    return f'there is no job "{one_line(job):.40}"{did_you_mean(job, known)}; there are {", ".join(known)}'


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
