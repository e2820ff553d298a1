"""A job: its workload, the needs of its workers, its submission, its speed on each kind of accelerator."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cache

from trimtab.catalog import find_accelerator
from trimtab.core import DEFAULT_LOG, DEFAULT_PROCESSES, Workload, from_plain, to_plain
from trimtab.store import JobRecord, JobState

_DENSE = ("bf16", "fp16", "tf32", "fp32")


@cache
def kind_of(name: str) -> str:
    """The catalog's name of an accelerator in lower case, or the name itself where the catalog has none."""
    known = find_accelerator(name) if name else None
    return (known.name if known else name.strip()).lower()


@cache
def peak(kind: str) -> float | None:
    """Peak FLOP per second of an accelerator in training; None where it is not published."""
    known = find_accelerator(kind) if kind else None
    return max((known.peak[name] for name in _DENSE if name in known.peak), default=None) if known else None


class Priority(IntEnum):
    """Classes of priority; the number is `Workload.priority`, and a higher one goes first."""

    LOW = -10
    NORMAL = 0
    HIGH = 10
    URGENT = 20


def priority_name(number: int) -> str:
    """The class of a priority ("high"), or the number where it is none."""
    return Priority(number).name.lower() if number in set(Priority) else str(number)


@dataclass(frozen=True, slots=True)
class Worker:
    """Needs of each worker: CPUs, bytes, and accelerators of one of the accepted kinds (empty: any kind).

    `gpus` may be a share of one (0.25) or several, which then are on one node; 0 is a worker without.
    `processes` bounds processes and threads.
    """

    gpus: float = 1.0
    cpus: float = 1.0
    memory: float = 0.0
    accelerators: tuple[str, ...] = ()
    processes: int = DEFAULT_PROCESSES


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How a job saves its work: by a signal or a command, within `seconds`.

    `interval` is the time between its own saves; None stands for the interval that loses least. `restart` is
    the time from launch to the first useful step.
    """

    signal: str | None = "USR1"
    command: tuple[str, ...] = ()
    interval: float | None = None
    seconds: float = 30.0
    restart: float = 30.0


@dataclass(frozen=True, slots=True)
class JobData:
    """Location of a job's data: bytes in a zone, and the nodes that hold a copy on their disks."""

    zone: str
    bytes: float
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """A workload with its needs. `least` to `most` workers start together; equal numbers make a rigid gang.

    `work` is in units of the job's own (steps, samples), where known; jobs of one `application` resemble
    each other. A job whose `hard` deadline cannot be met is refused. `speeds` are units per second of one
    worker on each kind of accelerator, where known. `budget` is in dollars. `preemptible` says whether it may
    be stopped for other jobs; None allows that where it has a checkpoint.
    """

    id: str
    workload: Workload
    submitted: float
    worker: Worker = Worker()
    least: int = 1
    most: int = 1
    hard: bool = False
    checkpoint: Checkpoint | None = None
    data: JobData | None = None
    budget: float | None = None
    application: str = ""
    work: float | None = None
    speeds: dict[str, float] = field(default_factory=dict)
    preemptible: bool | None = None

    @property
    def elastic(self) -> bool:
        """Whether the number of workers may change while it runs."""
        return self.most > self.least

    @property
    def due(self) -> float | None:
        """The moment of its deadline."""
        return None if self.workload.deadline is None else self.submitted + self.workload.deadline

    @property
    def may_be_preempted(self) -> bool:
        """Whether it may be stopped, moved or resized while it runs."""
        return self.checkpoint is not None if self.preemptible is None else self.preemptible


@dataclass(frozen=True, slots=True)
class Submission:
    """A job, the folder its command runs in, its environment, and its retries after failures.

    `passed` are names of variables that come from the scheduler's own environment at launch; their values are
    not stored. `log` bounds the bytes of output that are kept of each run.
    """

    job: Job
    folder: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    passed: tuple[str, ...] = ()
    retries: int = 0
    log: float = DEFAULT_LOG

    def named(self, id: str, submitted: float) -> "Submission":
        """A copy with an id and a time of submission (seconds since the epoch)."""
        return replace(self, job=replace(self.job, id=id, submitted=submitted))

    def record(self) -> JobRecord:
        """The record of a waiting job for the store."""
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
"""The part of each worker's speed that remains when their number doubles."""

_REFERENCE = 65e12  # FLOP/s of a T4, which stands for accelerators without a published peak


@dataclass(frozen=True, slots=True)
class Speeds:
    """Units of work per second of one worker on each kind of accelerator.

    With `own`, units are the job's own. Otherwise they are seconds of a T4, or of a node without
    accelerators, and only good for comparing kinds.
    """

    rates: Mapping[str, float]
    own: bool

    def of(self, kind: str, workers: int) -> float:
        """Units of work per second of a gang."""
        return self.one(kind) * together(workers)

    def one(self, kind: str) -> float:
        """Units per second of one worker; on an unmeasured kind, in proportion to peak rates."""
        if kind in self.rates:
            return self.rates[kind]
        known = [rate / (peak(other) or _REFERENCE) for other, rate in self.rates.items()]
        scale = math.fsum(known) / len(known) if known else 1.0 / _REFERENCE
        return (peak(kind) or _REFERENCE) * scale


def speeds_of(job: Job, measured: Mapping[str, float]) -> Speeds:
    """Known speeds of a job; `measured` are rates of the job itself or of its application."""
    rates = {**measured, **job.speeds}
    return Speeds(rates, own=bool(rates))


def together(workers: int) -> float:
    """Speed of a gang as a multiple of one worker's."""
    return float(workers * DOUBLING ** math.log2(max(1, workers)))
