"""A job: its workload, the needs of its workers, its submission, its speed on each kind of accelerator."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cache

from trimtab.catalog import find_accelerator
from trimtab.core import Workload, from_plain, to_plain
from trimtab.store import JobRecord, JobState

_DENSE = ("bf16", "fp16", "tf32", "fp32")


@cache
def kind_of(name: str) -> str:
    """The catalog's name in small letters, or the name as it is where the catalog has none."""
    known = find_accelerator(name) if name else None
    return (known.name if known else name.strip()).lower()


@cache
def peak(kind: str) -> float | None:
    """FLOP per second of one at its best in training; None where nobody has published it."""
    known = find_accelerator(kind) if kind else None
    rates = [known.peak[each] for each in _DENSE if each in known.peak] if known else []
    return max(rates, default=None)


class Priority(IntEnum):
    """Classes of priority; the number is `Workload.priority`, and a higher one goes first."""

    LOW = -10
    NORMAL = 0
    HIGH = 10
    URGENT = 20


@dataclass(frozen=True, slots=True)
class Worker:
    """Needs of each worker: CPUs, bytes, and accelerators of one of the accepted kinds (empty: any kind).

    `gpus` may be a share of one (0.25) or several, which then are on one node; 0 is a worker without.
    """

    gpus: float = 1.0
    cpus: float = 1.0
    memory: float = 0.0
    accelerators: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How a job saves its work: a signal it understands, or a command; which takes `seconds`.

    `interval` is how often it saves by itself; None asks for the interval that loses least. `restart` is
    how long it takes from launch to the first useful step.
    """

    signal: str | None = "USR1"
    command: tuple[str, ...] = ()
    interval: float | None = None
    seconds: float = 30.0
    restart: float = 30.0


@dataclass(frozen=True, slots=True)
class DataSet:
    """Where a job's data is: bytes in a zone, and the nodes that hold a copy on their disks."""

    zone: str
    bytes: float
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """A workload with its needs. `least` to `most` workers start together; equal numbers make a rigid gang.

    `work` is how much there is to do, in units of the job's own (steps, samples), where known; jobs of one
    `application` resemble each other. `hard` says that the deadline is one. `speeds` are units per second of
    one worker on each kind of accelerator, where known. `budget` is in dollars.
    """

    id: str
    workload: Workload
    submitted: float
    worker: Worker = Worker()
    least: int = 1
    most: int = 1
    hard: bool = False
    checkpoint: Checkpoint | None = None
    data: DataSet | None = None
    budget: float | None = None
    application: str = ""
    work: float | None = None
    speeds: dict[str, float] = field(default_factory=dict)

    @property
    def elastic(self) -> bool:
        """Whether the number of workers may change while it runs."""
        return self.most > self.least


@dataclass(frozen=True, slots=True)
class Submission:
    """A job, the folder its command runs in, its environment, and how often it is tried again when it fails.

    `passed` are names of variables that come from the scheduler's own environment when the job is launched:
    their values are kept nowhere.
    """

    job: Job
    folder: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    passed: tuple[str, ...] = ()
    retries: int = 0

    def named(self, id: str, submitted: float) -> "Submission":
        """A copy with an id and a time of submission (seconds since the epoch)."""
        return replace(self, job=replace(self.job, id=id, submitted=submitted))

    def record(self) -> JobRecord:
        """For the store: it waits."""
        work = self.job.workload
        return JobRecord(
            id=self.job.id,
            created=self.job.submitted,
            name=work.name,
            tenant=work.tenant,
            application=self.job.application,
            state=JobState.WAITING,
            spec=to_plain(self),
        )


def submission_of(record: JobRecord) -> Submission:
    """The submission kept in a job's record."""
    return from_plain(Submission, record.spec, f"job {record.id}")


DOUBLING = 0.95
"""What is left of each worker's speed when their number doubles."""

_REFERENCE = 65e12  # FLOP/s of a T4, which stands for accelerators that nobody has published


@dataclass(frozen=True, slots=True)
class Speeds:
    """Units of work per second of one worker on each kind of accelerator.

    `own` says that the units are the job's own. Otherwise they are seconds of a T4, or of a node without
    accelerators: good for comparing kinds, and for nothing else.
    """

    rates: Mapping[str, float]
    own: bool

    def of(self, kind: str, workers: int) -> float:
        """Units of work per second of so many workers."""
        return self.one(kind) * together(workers)

    def one(self, kind: str) -> float:
        """Of one worker; on a kind nobody has tried, in proportion to peak rates."""
        if kind in self.rates:
            return self.rates[kind]
        known = [rate / _peak(other) for other, rate in self.rates.items()]
        scale = math.fsum(known) / len(known) if known else 1.0 / _REFERENCE
        return _peak(kind) * scale


def speeds_of(job: Job, measured: Mapping[str, float]) -> Speeds:
    """Known speeds of a job; `measured` are rates of the job itself or of its application."""
    rates = {**measured, **job.speeds}
    return Speeds(rates, own=bool(rates))


def together(workers: int) -> float:
    """How many times as fast as one so many workers are."""
    return float(workers * DOUBLING ** math.log2(max(1, workers)))


def _peak(kind: str) -> float:
    return peak(kind) or _REFERENCE
