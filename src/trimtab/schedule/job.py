"""What someone wants scheduled: a workload, what its workers need, and what must hold for it."""

from dataclasses import dataclass, field
from enum import IntEnum

from trimtab.core import Workload


class Priority(IntEnum):
    """Classes of priority; the number is `Workload.priority`, and a higher one goes first."""

    LOW = -10
    NORMAL = 0
    HIGH = 10
    URGENT = 20


@dataclass(frozen=True, slots=True)
class Worker:
    """What each worker needs: CPUs, bytes, and accelerators of any of the kinds it accepts (empty: any kind).

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
