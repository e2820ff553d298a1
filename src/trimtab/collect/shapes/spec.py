"""What to measure, from a YAML file: training jobs, and the shapes of machines they might run on."""

import datetime
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.core import (
    BadInputError,
    NotFoundError,
    did_you_mean,
    format_bytes,
    one_line,
    parse_bytes,
    parse_duration,
    quoted,
    refuse_unknown,
)
from trimtab.kernel import read_yaml
from trimtab.observe import usable_cpus, usable_memory

_NAMES = ("jobs", "workers", "shapes", "price_date", "window", "patience")
_OF_A_JOB = ("command", "folder", "samples", "epochs", "batches")
_OF_A_SHAPE = ("cpus", "memory", "price_per_hour")
_INSTANCE = re.compile(r"[\w-]+/[\w-]+/[\w.+-]+", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_LEAST_WINDOW, _LONGEST_WINDOW = 0.5, 600.0  # s


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A script that trains; `{batch}` in its command is a worker's batch. It sees samples × epochs in all."""

    name: str
    command: str
    folder: Path
    samples: int
    epochs: float
    batches: tuple[int, ...]

    @property
    def length(self) -> float:
        """All samples it sees from beginning to end."""
        return self.samples * self.epochs

    def words(self, batch: int) -> list[str]:
        """The command of one worker."""
        return shlex.split(self.command.replace("{batch}", str(batch)))

    def steps(self, batch: int, workers: int) -> int:
        """How many steps all of it takes."""
        return math.ceil(self.length / (batch * workers))


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of machine: CPUs, bytes of memory, dollars per hour. One worker runs on each machine.

    `instance` is what it stands for in a cloud: cloud, region and type.
    """

    name: str
    cpus: float
    memory: float
    price_per_hour: float
    instance: tuple[str, str, str] | None = None


@dataclass(frozen=True, slots=True)
class Lane:
    """A job with so many workers of a batch each: what starts once and is measured under every shape."""

    job: TrainingJob
    batch: int
    workers: int


@dataclass(frozen=True, slots=True)
class Spec:
    """Jobs × shapes × batches × workers, and how long to look at each. Seconds."""

    jobs: tuple[TrainingJob, ...]
    shapes: tuple[Shape, ...]
    workers: tuple[int, ...]
    price_date: str
    window: float = 5.0
    patience: float = 60.0  # for the first step

    def job(self, name: str) -> TrainingJob:
        """The job of that name."""
        found = next((job for job in self.jobs if job.name == name), None)
        if found is None:
            names = [job.name for job in self.jobs]
            raise NotFoundError(
                f'there is no job "{one_line(name):.40}"{did_you_mean(name, names)}; '
                f"there are {', '.join(names)}"
            )
        return found

    def lanes(self) -> Iterator[Lane]:
        """Every job with every batch and number of workers."""
        for job in self.jobs:
            for workers in self.workers:
                for batch in job.batches:
                    yield Lane(job, batch, workers)

    def check_host(self) -> None:
        """Refuse a shape that is larger than this machine; elsewhere it may be measured."""
        for shape in self.shapes:
            if shape.cpus > usable_cpus() + 1e-9:
                raise BadInputError(
                    f"shape {shape.name}: {shape.cpus:g} CPUs are more than this machine's {usable_cpus():g}"
                )
            if shape.memory > usable_memory():
                raise BadInputError(
                    f"shape {shape.name}: {format_bytes(shape.memory)} of memory are more than this "
                    f"machine's {format_bytes(usable_memory())}"
                )

    def shapes_of(self, workers: int) -> tuple[Shape, ...]:
        """Those of which this machine has room for so many at a time."""
        return tuple(s for s in self.shapes if workers * s.cpus <= usable_cpus() + 1e-9)


def read_spec(path: Path) -> Spec:
    """The file's content, checked; folders are meant from the file's own."""
    told = _mapping(str(path), read_yaml(path, "with jobs and shapes"), "jobs and shapes")
    refuse_unknown(str(path), told, _NAMES)
    for name in ("jobs", "shapes", "price_date"):
        if name not in told:
            raise BadInputError(f"{path}: it does not say {name}")
    jobs = _mapping(f"{path}, jobs", told["jobs"], "jobs by name")
    shapes = _mapping(f"{path}, shapes", told["shapes"], "shapes by name")
    spec = Spec(
        tuple(_job(f"{path}, job {one_line(name):.40}", name, job, path) for name, job in jobs.items()),
        tuple(_shape(f"{path}, shape {one_line(name):.40}", name, shape) for name, shape in shapes.items()),
        _counts(str(path), "workers", told.get("workers", [1])),
        _date(str(path), told["price_date"]),
        _duration(str(path), "window", told.get("window", "5s")),
        _duration(str(path), "patience", told.get("patience", "60s")),
    )
    if not _LEAST_WINDOW <= spec.window <= _LONGEST_WINDOW:
        raise BadInputError(f"{path}: a window is {_LEAST_WINDOW:g} s to {_LONGEST_WINDOW:g} s; 5s is usual")
    return spec


def _job(where: str, name: object, told: Any, path: Path) -> TrainingJob:
    told = _mapping(where, told, "a command, samples, epochs and batches")
    refuse_unknown(where, told, _OF_A_JOB)
    for needed in ("command", "samples", "batches"):
        if needed not in told:
            raise BadInputError(f"{where}: it does not say {needed}")
    command = told["command"]
    if not isinstance(command, str) or "{batch}" not in command:
        raise BadInputError(f"{where}: the command must say {{batch}} where a worker's batch size stands")
    try:
        shlex.split(command)
    except ValueError as error:
        raise BadInputError(f"{where}: the command cannot be split into words: {error}") from None
    folder = path.absolute().parent / str(told.get("folder", "."))
    if not folder.is_dir():
        raise BadInputError(f"{where}: there is no folder {folder}")
    return TrainingJob(
        _name(where, name),
        command,
        folder,
        round(_number(where, "samples", told["samples"])),
        _number(where, "epochs", told.get("epochs", 1)),
        _counts(where, "batches", told["batches"]),
    )


def _shape(where: str, name: object, told: Any) -> Shape:
    told = _mapping(where, told, "cpus, memory and price_per_hour")
    refuse_unknown(where, told, (*_OF_A_SHAPE, "instance"))
    for needed in _OF_A_SHAPE:
        if needed not in told:
            raise BadInputError(f"{where}: it does not say {needed}")
    memory = told["memory"]
    return Shape(
        _name(where, name),
        _number(where, "cpus", told["cpus"]),
        parse_bytes(memory) if isinstance(memory, str) else _number(where, "memory", memory),
        _number(where, "price_per_hour", told["price_per_hour"]),
        _instance(where, told.get("instance")),
    )


def _instance(where: str, told: object) -> tuple[str, str, str] | None:
    if told is None:
        return None
    if not isinstance(told, str) or not _INSTANCE.fullmatch(told):
        raise BadInputError(
            f"{where}: an instance is cloud/region/type, as in gcp/us-central1/n1-standard-4, "
            f"not {quoted(told):.40}"
        )
    cloud, region, kind = told.split("/")
    return cloud, region, kind


def _mapping(where: str, told: Any, what: str) -> Mapping[Any, Any]:
    if not isinstance(told, Mapping) or not told:
        raise BadInputError(f"{where}: {what} are expected, not {quoted(told):.40}")
    return told


def _name(where: str, name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadInputError(f"{where}: a name is letters, digits, dots and dashes, at most 63 of them")
    return name


def _number(where: str, name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise BadInputError(f"{where}: {name} is a number above zero, not {quoted(value):.40}")
    return float(value)


def _counts(where: str, name: str, value: object) -> tuple[int, ...]:
    values = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    if not values or not all(type(each) is int and 0 < each <= 2**20 for each in values):
        raise BadInputError(f"{where}: {name} are whole numbers above zero, as in [1, 2, 4]")
    if len(set(values)) < len(values):
        raise BadInputError(f"{where}: one of the {name} is there twice; name each once")
    return tuple(values)


def _date(where: str, value: object) -> str:
    try:
        return datetime.date.fromisoformat(str(value)).isoformat()
    except ValueError:
        raise BadInputError(
            f"{where}: price_date is a day such as 2026-11-15, not {quoted(value):.40}"
        ) from None


def _duration(where: str, name: str, value: object) -> float:
    if isinstance(value, str):
        return parse_duration(value)
    return _number(where, name, value)
