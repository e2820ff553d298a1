"""A trace of one's own: CSV with one job per row. The columns are described in docs/schedule.md."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeVar

import numpy as np

from trimtab.core import BadInputError, Workload, did_you_mean, one_line, parse_bytes, parse_money
from trimtab.schedule.cluster import Floats
from trimtab.schedule.job import Checkpoint, DataSet, Job, Priority, Worker, kind_of
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
    """The jobs; whatever cannot be understood is refused with its line."""
    _refuse_strangers(table)
    submitted = table.numbers("submit_s")
    table.ascending("submit_s", submitted)
    names = table.unique("job")
    tenants = _optional(table, "tenant", "default")
    priorities = _each(table, "priority", _priority, 0)
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
        _each(table, "hard", _flag, False),
        _checkpoints(table),
        _data(table),
        _each(table, "budget", _budget, None),
        _optional(table, "application", ""),
        work,
        speeds,
    )
    return Trace(name, tuple(jobs))


def _refuse_strangers(table: TraceTable) -> None:
    known = (*OWN_COLUMNS, *OTHER_COLUMNS)
    for column in table.columns:
        if column not in known and not column.startswith(SPEED_ON):
            raise BadInputError(
                f'{table.path}: there is no column "{one_line(column):.40}"{did_you_mean(column, known)}; '
                f"the columns are {', '.join(known)} and {SPEED_ON}KIND"
            )


def _gangs(table: TraceTable) -> tuple[list[Worker], list[int], list[int]]:
    """Needs of each worker, and the fewest and the most workers."""
    fewest_gpus, most_gpus = _gpus(table)
    usual = np.where(most_gpus < 1.0, most_gpus, 1.0)
    each = np.where(most_gpus == 0.0, 0.0, _numbers(table, "worker_gpus", usual, above=0.0))
    least, most = (_workers(table, gpus, each) for gpus in (fewest_gpus, most_gpus))
    cpus = _numbers(table, "cpus", np.ones(len(table)), above=0.0)
    memory = _each(table, "memory", parse_bytes, 0.0)
    anything: tuple[str, ...] = ()
    accelerators = _each(table, "accelerators", _kinds, anything)
    made = cache(Worker)
    return list(map(made, each.tolist(), cpus.tolist(), memory, accelerators)), least, most


def _gpus(table: TraceTable) -> tuple[Floats, Floats]:
    """Accelerators of each job at least and at most; one where nothing is told."""
    given = {name for name in ("min_gpus", "max_gpus") if name in table.columns}
    if len(given) == 1 or (given and "gpus" in table.columns):
        raise BadInputError(
            f"{table.path}: gpus says how many accelerators a job always has, min_gpus with max_gpus how "
            "many it may have; give either"
        )
    if not given:
        gpus = _numbers(table, "gpus", np.ones(len(table)))
        return gpus, gpus
    fewest, most = table.numbers("min_gpus", above=0.0), table.numbers("max_gpus", above=0.0)
    if (fewest > most).any():
        row = int(np.argmax(fewest > most))
        table.refuse(row, f"min_gpus is {fewest[row]:g}; it must not exceed max_gpus, {most[row]:g}")
    return fewest, most


def _workers(table: TraceTable, gpus: Floats, each: Floats) -> list[int]:
    count = np.where(each > 0.0, gpus / np.where(each > 0.0, each, 1.0), 1.0)
    uneven = np.flatnonzero((count != np.round(count)) | (count < 1.0))
    if uneven.size:
        row = int(uneven[0])
        table.refuse(
            row,
            f"{gpus[row]:g} accelerators cannot be split into workers of {each[row]:g}; the number must be a "
            "multiple of it",
        )
    return [int(workers) for workers in count.tolist()]


def _work(table: TraceTable, least: Sequence[int]) -> tuple[list[float | None], list[dict[str, float]]]:
    """How much there is to do, and units per second of one worker by kind of accelerator."""
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
        raise BadInputError(f"{table.path}: {next(iter(kinds.values()))} is of use only with a column work")
    columns = [(kind, _holes_as_none(table, name, above=0.0)) for kind, name in kinds.items()]
    speeds = [
        {kind: speed for kind, column in columns if (speed := column[row]) is not None}
        for row in range(len(table))
    ]
    return _holes_as_none(table, "work", above=0.0), speeds


def _checkpoints(table: TraceTable) -> list[Checkpoint | None]:
    """Checkpoints of jobs that say how long saving takes."""
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


def _data(table: TraceTable) -> list[DataSet | None]:
    sizes = _each(table, "data_bytes", parse_bytes, 0.0)
    zones = _optional(table, "data_zone", "")
    return [DataSet(zone, size) if size else None for zone, size in zip(zones, sizes, strict=True)]


def _numbers(table: TraceTable, name: str, usual: Floats, above: float | None = None) -> Floats:
    """A column that may be missing, or have holes: then what is usual."""
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


def _each(table: TraceTable, name: str, parse: Callable[[str], T], usual: T) -> list[T]:
    """A column of words, each understood once; `usual` where it is empty or missing."""
    if name not in table.columns:
        return [usual] * len(table)
    known: dict[str, T] = {"": usual}
    for row, cell in enumerate(table.columns[name]):
        if cell not in known:
            try:
                known[cell] = parse(cell)
            except (BadInputError, ValueError) as error:
                table.refuse(row, f"{name}: {error}")
    return [known[cell] for cell in table.columns[name]]


def _priority(cell: str) -> int:
    if cell.upper() in Priority.__members__:
        return int(Priority[cell.upper()])
    try:
        return int(cell)
    except ValueError:
        names = ", ".join(name.lower() for name in Priority.__members__)
        raise BadInputError(f'"{one_line(cell)}" is none of {names}, nor a whole number') from None


def _flag(cell: str) -> bool:
    if cell.lower() not in _YES:
        raise BadInputError(f'"{one_line(cell)}" must be true or false')
    return _YES[cell.lower()]


def _kinds(cell: str) -> tuple[str, ...]:
    return tuple(kind_of(kind) for kind in cell.split("|") if kind.strip())


def _budget(cell: str) -> float | None:
    return parse_money(cell)
