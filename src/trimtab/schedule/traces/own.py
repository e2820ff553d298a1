"""A trace of one's own: CSV with one job per row. The columns are described in docs/reference/traces.md."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeVar

import numpy as np

from trimtab.core import (
    DEFAULT_TENANT,
    BadInputError,
    Workload,
    did_you_mean,
    one_line,
    parse_bytes,
    parse_money,
)
from trimtab.schedule.cluster import Floats
from trimtab.schedule.job import Checkpoint, Job, JobData, Priority, Worker, kind_of
from trimtab.schedule.traces.table import ANY_KIND, SECONDS_ANYWHERE, Trace, TraceTable

OWN_COLUMNS = ("job", "submit_s")

OTHER_COLUMNS = (
    "tenant",
    "application",
    "priority",
    "gpus",
    "min_gpus",
    "max_gpus",
    "worker_gpus",
    "accelerators",
    "cpus",
    "memory",
    "duration_s",
    "work",
    "speed",
    "deadline_s",
    "hard",
    "budget",
    "data_zone",
    "data_bytes",
    "checkpoint_s",
    "restart_s",
    "interval_s",
)
SPEED_ON = "speed_"

_YES = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False, "": False}

T = TypeVar("T")


def read_own(table: TraceTable, name: str) -> Trace:
    """The jobs of the table; bad values are refused with their line."""
    _check_columns(table)
    submitted = table.numbers("submit_s")
    table.ascending("submit_s", submitted)
    names = table.unique("job")
    tenants = _optional(table, "tenant", DEFAULT_TENANT)
    priorities = _parsed(table, "priority", _priority, 0)
    deadlines = _holes_as_none(table, "deadline_s", above=0.0)
    workloads = [
        Workload(job, tenant=tenant, priority=priority, deadline=deadline)
        for job, tenant, priority, deadline in zip(names, tenants, priorities, deadlines, strict=True)
    ]
    workers, least, most = _gangs(table)
    work, speeds = _work(table, least)
    jobs = map(
        Job,
        names,
        workloads,
        submitted.tolist(),
        workers,
        least,
        most,
        _parsed(table, "hard", _flag, False),
        _checkpoints(table),
        _data(table),
        _parsed(table, "budget", parse_money, None),
        _optional(table, "application", ""),
        work,
        speeds,
    )
    return Trace(name, tuple(jobs))


def _check_columns(table: TraceTable) -> None:
    names = (*OWN_COLUMNS, *OTHER_COLUMNS)
    for column in table.columns:
        if column not in names and not column.startswith(SPEED_ON):
            raise BadInputError(
                f'{table.path}: there is no column "{one_line(column):.40}"{did_you_mean(column, names)}; '
                f"the columns are {', '.join(names)} and {SPEED_ON}KIND"
            )


def _gangs(table: TraceTable) -> tuple[list[Worker], list[int], list[int]]:
    """Needs of each worker, and the fewest and the most workers."""
    fewest_gpus, most_gpus = _gpus(table)
    usual = np.where(most_gpus < 1.0, most_gpus, 1.0)
    per_worker = np.where(most_gpus == 0.0, 0.0, _numbers(table, "worker_gpus", usual, above=0.0))
    least, most = (_workers(table, gpus, per_worker) for gpus in (fewest_gpus, most_gpus))
    cpus = _numbers(table, "cpus", np.ones(len(table)), above=0.0)
    memory = _parsed(table, "memory", parse_bytes, 0.0)
    accelerators = _parsed(table, "accelerators", _kinds, tuple[str, ...]())
    worker_of = cache(Worker)
    return list(map(worker_of, per_worker.tolist(), cpus.tolist(), memory, accelerators)), least, most


def _gpus(table: TraceTable) -> tuple[Floats, Floats]:
    """The fewest and most accelerators of each job; one by default."""
    bounds = {name for name in ("min_gpus", "max_gpus") if name in table.columns}
    if len(bounds) == 1 or (bounds and "gpus" in table.columns):
        raise BadInputError(
            f"{table.path}: give either gpus, the number of accelerators of a job, or both min_gpus and "
            "max_gpus, its range"
        )
    if not bounds:
        gpus = _numbers(table, "gpus", np.ones(len(table)))
        return gpus, gpus
    fewest, most = table.numbers("min_gpus", above=0.0), table.numbers("max_gpus", above=0.0)
    if (fewest > most).any():
        row = int(np.argmax(fewest > most))
        table.refuse(row, f"min_gpus is {fewest[row]:g}; it must not exceed max_gpus, {most[row]:g}")
    return fewest, most


def _workers(table: TraceTable, gpus: Floats, per_worker: Floats) -> list[int]:
    count = np.where(per_worker > 0.0, gpus / np.where(per_worker > 0.0, per_worker, 1.0), 1.0)
    uneven = np.flatnonzero((count != np.round(count)) | (count < 1.0))
    if uneven.size:
        row = int(uneven[0])
        table.refuse(
            row,
            f"{gpus[row]:g} accelerators cannot be split into workers of {per_worker[row]:g}; the number "
            "must be a multiple of it",
        )
    return [int(workers) for workers in count.tolist()]


def _work(table: TraceTable, least: Sequence[int]) -> tuple[list[float | None], list[dict[str, float]]]:
    """Units of work, and units per second of one worker by kind of accelerator."""
    kinds = {ANY_KIND: "speed"} if "speed" in table.columns else {}
    kinds |= {
        kind_of(name.removeprefix(SPEED_ON)): name for name in table.columns if name.startswith(SPEED_ON)
    }
    if "duration_s" in table.columns:
        if kinds or "work" in table.columns:
            raise BadInputError(f"{table.path}: give either duration_s, or work with speed columns")
        seconds = table.numbers("duration_s", above=0.0)
        return (seconds * least).tolist(), [SECONDS_ANYWHERE] * len(least)
    if kinds and "work" not in table.columns:
        raise BadInputError(f"{table.path}: {next(iter(kinds.values()))} needs a column work; add it")
    columns = [(kind, _holes_as_none(table, name, above=0.0)) for kind, name in kinds.items()]
    speeds = [
        {kind: speed for kind, column in columns if (speed := column[row]) is not None}
        for row in range(len(table))
    ]
    return _holes_as_none(table, "work", above=0.0), speeds


def _checkpoints(table: TraceTable) -> list[Checkpoint | None]:
    """Checkpoints of jobs with a value in checkpoint_s."""
    saving, restart, interval = (
        _holes_as_none(table, name) for name in ("checkpoint_s", "restart_s", "interval_s")
    )
    usual = Checkpoint()
    return [
        None
        if saves is None
        else Checkpoint(seconds=saves, restart=usual.restart if starts is None else starts, interval=every)
        for saves, starts, every in zip(saving, restart, interval, strict=True)
    ]


def _data(table: TraceTable) -> list[JobData | None]:
    sizes = _parsed(table, "data_bytes", parse_bytes, 0.0)
    zones = _optional(table, "data_zone", "")
    return [JobData(zone, size) if size else None for zone, size in zip(zones, sizes, strict=True)]


def _numbers(table: TraceTable, name: str, usual: Floats, above: float | None = None) -> Floats:
    """A column that may be missing or have holes, which become `usual`."""
    if name not in table.columns:
        return usual
    values = table.numbers(name, 0.0, above, hole=np.nan)
    return np.where(np.isnan(values), usual, values)


def _holes_as_none(table: TraceTable, name: str, above: float | None = None) -> list[float | None]:
    if name not in table.columns:
        return [None] * len(table)
    values = table.numbers(name, 0.0, above, hole=np.nan).tolist()
    return [None if value != value else value for value in values]


def _optional(table: TraceTable, name: str, usual: str) -> list[str]:
    if name not in table.columns:
        return [usual] * len(table)
    return [cell or usual for cell in table.columns[name]]


def _parsed(table: TraceTable, name: str, parse: Callable[[str], T], usual: T) -> list[T]:
    """A parsed column; `usual` where a cell is empty or the column is missing."""
    if name not in table.columns:
        return [usual] * len(table)
    values: dict[str, T] = {"": usual}
    for row, cell in enumerate(table.columns[name]):
        if cell not in values:
            try:
                values[cell] = parse(cell)
            except (BadInputError, ValueError) as error:
                table.refuse(row, f"{name}: {error}")
    return [values[cell] for cell in table.columns[name]]


def _priority(cell: str) -> int:
    if cell.upper() in Priority.__members__:
        return int(Priority[cell.upper()])
    try:
        return int(cell)
    except ValueError:
        names = ", ".join(name.lower() for name in Priority.__members__)
        raise BadInputError(f'"{one_line(cell)}" must be one of {names}, or a whole number') from None


def _flag(cell: str) -> bool:
    if cell.lower() not in _YES:
        raise BadInputError(f'"{one_line(cell)}" must be true or false')
    return _YES[cell.lower()]


def _kinds(cell: str) -> tuple[str, ...]:
    return tuple(kind_of(kind) for kind in cell.split("|") if kind.strip())
