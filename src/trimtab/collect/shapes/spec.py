"""The SPEC file of a collection: training jobs, and the shapes of machines to measure them on."""

import datetime
import math
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from trimtab.core import (
    BadInputError,
    Bytes,
    Name,
    NotFoundError,
    Number,
    Seconds,
    StrictModel,
    did_you_mean,
    format_bytes,
    one_line,
    quoted,
)
from trimtab.kernel import read_user_file
from trimtab.observe import usable_cpus, usable_memory

_INSTANCE = re.compile(r"[\w-]+/[\w-]+/[\w.+-]+", re.ASCII)
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
        """Samples of the whole job."""
        return self.samples * self.epochs

    def words(self, batch: int) -> list[str]:
        """The command of one worker."""
        return shlex.split(self.command.replace("{batch}", str(batch)))

    def steps(self, batch: int, workers: int) -> int:
        """Steps of the whole job."""
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
class TrainingGang:
    """Workers of a job with a batch each; they start once and are measured under every shape."""

    job: TrainingJob
    batch: int
    workers: int


@dataclass(frozen=True, slots=True)
class Spec:
    """Jobs × shapes × batches × workers, and seconds to measure each."""

    jobs: tuple[TrainingJob, ...]
    shapes: tuple[Shape, ...]
    workers: tuple[int, ...]
    price_date: str
    window: float = 5.0
    patience: float = 60.0  # for the first step

    def job(self, name: str) -> TrainingJob:
        """The job of that name."""
        jobs = {job.name: job for job in self.jobs}
        if name not in jobs:
            raise NotFoundError(
                f'there is no job "{one_line(name):.40}"{did_you_mean(name, jobs)}; '
                f"there are {', '.join(jobs)}"
            )
        return jobs[name]

    def gangs(self) -> Iterator[TrainingGang]:
        """Every job with every batch and number of workers."""
        for job in self.jobs:
            for workers in self.workers:
                for batch in job.batches:
                    yield TrainingGang(job, batch, workers)

    def check_host(self) -> None:
        """Refuse a shape that is larger than this machine."""
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
        """Shapes of which this machine can hold `workers` at a time."""
        return tuple(s for s in self.shapes if workers * s.cpus <= usable_cpus() + 1e-9)


def _positive_counts(value: Any) -> tuple[int, ...]:
    values = value if isinstance(value, list | tuple) else [value]
    if not values or not all(type(number) is int and 0 < number <= 2**20 for number in values):
        raise ValueError("it should be whole numbers above zero, as in [1, 2, 4]")
    if len(set(values)) < len(values):
        raise ValueError("one of them is there twice; name each once")
    return tuple(values)


def _command_with_batch(command: str) -> str:
    if "{batch}" not in command:
        raise ValueError("it must say {batch} where a worker's batch size stands")
    try:
        shlex.split(command)
    except ValueError as error:
        raise ValueError(f"it cannot be split into words: {error}") from None
    return command


def _cloud_region_type(value: Any) -> tuple[str, str, str]:
    if not isinstance(value, str) or not _INSTANCE.fullmatch(value):
        raise ValueError("it should be cloud/region/type, as in gcp/us-central1/n1-standard-4")
    cloud, region, kind = value.split("/")
    return cloud, region, kind


def _day(value: Any) -> str:
    try:
        return datetime.date.fromisoformat(str(value)).isoformat()
    except ValueError:
        raise ValueError("it should be a day such as 2026-11-15") from None


def _usual_window(seconds: float) -> float:
    if not _LEAST_WINDOW <= seconds <= _LONGEST_WINDOW:
        raise ValueError(f"it should be {_LEAST_WINDOW:g} s to {_LONGEST_WINDOW:g} s; 5s is usual")
    return seconds


_Positive = Annotated[Number, Field(gt=0)]
_Counts = Annotated[tuple[int, ...], BeforeValidator(_positive_counts)]


class _JobFile(StrictModel):
    command: Annotated[str, AfterValidator(_command_with_batch)]
    samples: _Positive
    batches: _Counts
    epochs: _Positive = 1.0
    folder: str = "."


class _ShapeFile(StrictModel):
    cpus: _Positive
    memory: Annotated[Bytes, Field(gt=0)]
    price_per_hour: _Positive
    instance: Annotated[tuple[str, str, str], BeforeValidator(_cloud_region_type)] | None = None


class _SpecFile(StrictModel):
    jobs: Annotated[dict[Name, _JobFile], Field(min_length=1)]
    shapes: Annotated[dict[Name, _ShapeFile], Field(min_length=1)]
    price_date: Annotated[str, BeforeValidator(_day)]
    workers: _Counts = (1,)
    window: Annotated[Seconds, AfterValidator(_usual_window)] = 5.0
    patience: Annotated[Seconds, Field(gt=0)] = 60.0


def read_spec(path: Path) -> Spec:
    """The file's content, checked; folders are relative to the file's own."""
    file = read_user_file(path, _SpecFile, "with jobs and shapes")
    jobs = []
    for name, job in file.jobs.items():
        folder = path.absolute().parent / job.folder
        if not folder.is_dir():
            raise BadInputError(
                f"{path}: jobs.{name}.folder is {quoted(job.folder)}; there is no folder {folder}"
            )
        jobs.append(TrainingJob(name, job.command, folder, round(job.samples), job.epochs, job.batches))
    return Spec(
        tuple(jobs),
        tuple(Shape(name, **dict(shape)) for name, shape in file.shapes.items()),
        *(file.workers, file.price_date, file.window, file.patience),
    )
