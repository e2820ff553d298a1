"""A job as the store keeps it: what was asked for, and how far it has come."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from trimtab.core import StorageError


class OutdatedError(StorageError):
    """Somebody else has changed the job since it was read."""


class JobState(StrEnum):
    """Where a job stands. The last four are final."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REFUSED = "refused"

    @property
    def final(self) -> bool:
        """Whether nothing more happens to it."""
        return self not in ACTIVE


ACTIVE = (JobState.WAITING, JobState.STARTING, JobState.RUNNING, JobState.STOPPING)
"""States of jobs that are still to be done."""


@dataclass(frozen=True, slots=True)
class Part:
    """So many of a job's workers on one node."""

    node: str
    workers: int


@dataclass(frozen=True, slots=True)
class JobRun:
    """How far a job has come. Seconds since the epoch, accelerator-seconds by group, dollars.

    `attempt`, `parts`, `group`, `engine` (its address), `run_id`, `since` and `began` (units that were done
    before) are of the run that is there now or was there last; `held`, `seconds` and `spent` are sums over
    runs that are over. `then` is the state that follows stopping, `decision` the ledger's entry that started
    the run, `rates` the units of work that one worker does per second on each kind of accelerator.
    """

    attempt: int = 0
    parts: tuple[Part, ...] = ()
    group: str = ""
    engine: str = ""
    run_id: str = ""
    since: float | None = None
    began: float = 0.0
    held: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    spent: float = 0.0
    restarts: int = 0
    failures: int = 0
    then: JobState = JobState.WAITING
    decision: str = ""
    reason: str = ""
    ended: float | None = None
    rates: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outlook:
    """Why a job waits, and when it is believed to start (seconds since the epoch; None: cannot be said)."""

    why: str = ""
    start: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One job. `spec` is plain data that whoever submitted it can read; `done` is in units of its own.

    `version` grows with every change of state, so that two who change it at once do not both succeed.
    """

    id: str
    created: float
    name: str
    tenant: str
    application: str
    state: JobState
    spec: Mapping[str, Any]
    version: int = 1
    run: JobRun = JobRun()
    done: float = 0.0
    outlook: Outlook = Outlook()

    @property
    def key(self) -> str:
        """The name of the present attempt for an engine."""
        return f"{self.id}-{self.run.attempt}"
