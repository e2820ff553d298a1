"""The values that the store keeps and returns.

Nothing here imports SQLAlchemy, so that a command which only names them starts quickly.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Generic, TypeVar

from trimtab.core import DEFAULT_TENANT, BadInputError, Decision, Estimate, Outcome, StorageError


class FullError(StorageError):
    """The disk is full: nothing of the write was kept, and everything kept before is intact."""


class DamagedError(StorageError):
    """Pages of the database cannot be read as they were written."""


class MissingStoreError(StorageError):
    """There was a store here, and now it is missing or empty."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Name, schema revision, size in bytes (log included) and rows per table of a store."""

    name: str
    schema: str
    size: int
    rows: Mapping[str, int]


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Part of a long list. `next` is the `after` of the following page, None on the last page."""

    items: tuple[T, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to `subject` at `time` (seconds since the epoch).

    `id` is given by the store and grows: an event with a higher id was written later.
    """

    id: int
    time: float
    kind: str
    subject: str
    detail: Mapping[str, Any]
    tenant: str = DEFAULT_TENANT


@dataclass(frozen=True, slots=True)
class Tenant:
    """A group of people with jobs. `guarantee` and `limit` are accelerators; `weight` shares what is left."""

    name: str
    parent: str | None = None
    guarantee: float = 0.0
    weight: float = 1.0
    limit: float | None = None

    def columns(self) -> dict[str, Any]:
        return asdict(self)


class OutdatedError(StorageError):
    """The job was changed since it was read."""


class JobState(StrEnum):
    """State of a job. The last four are final."""

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
        """Whether the job stays in this state."""
        return self not in ACTIVE


ACTIVE = (JobState.WAITING, JobState.STARTING, JobState.RUNNING, JobState.STOPPING)
"""States of jobs that have not ended."""


@dataclass(frozen=True, slots=True)
class Part:
    """A number of a job's workers on one node."""

    node: str
    workers: int


@dataclass(frozen=True, slots=True)
class JobRun:
    """Progress of a job. Seconds since the epoch, accelerator-seconds by group, dollars.

    `attempt`, `parts`, `group`, `engine` (its address), `run_id`, `since` and `began` (units done before)
    describe the present or last run; `held`, `seconds` and `spent` are sums over runs that have ended. `then`
    is the state that follows stopping, `decision` the ledger's entry that started the run, `rates` the units
    of work that one worker does per second on each kind of accelerator. `losses` counts the last runs that
    ended with their machine or supervisor, in a row; a job that failed waits until `not_before`.
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
    losses: int = 0
    not_before: float | None = None


@dataclass(frozen=True, slots=True)
class Outlook:
    """Why a job waits, and when it is expected to start (seconds since the epoch; None: unknown)."""

    why: str = ""
    start: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One job. `spec` is the submitted job as plain data; `done` is in the job's own units of work.

    `version` grows with every change of state, so that of two changes at once only one succeeds.
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
        """Name of the present attempt for an engine."""
        return f"{self.id}-{self.run.attempt}"


EVERY_TENANT = "*"
"""Tenant of a token that sees all tenants."""

EVERYTHING = "*"
"""Scope of a token that may do anything its role may."""

_SCOPE = re.compile(r"[a-z][a-z0-9-]*:(read|write)")


class Role(StrEnum):
    """Role of a token within its tenant, in ascending order of permission."""

    VIEWER = "viewer"
    USER = "user"
    OPERATOR = "operator"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its secret. Times are seconds since the epoch.

    `by` is the id of the token that made it, empty if it was made at the machine itself.
    """

    id: str
    name: str
    tenant: str
    role: Role
    scopes: frozenset[str]
    created: float
    expires: float | None = None
    revoked: float | None = None
    by: str = ""

    def valid(self, now: float) -> bool:
        """Whether it is neither revoked nor expired."""
        return self.revoked is None and (self.expires is None or now < self.expires)


def checked_scopes(scopes: Collection[str]) -> frozenset[str]:
    """The scopes; raises BadInputError that names the first wrong one."""
    if not scopes:
        raise BadInputError('a token needs at least one scope; give some like jobs:read, or "*" for all')
    for scope in sorted(scopes):
        if scope != EVERYTHING and not _SCOPE.fullmatch(scope):
            raise BadInputError(f'"{scope:.40}" is not a scope; write one like jobs:read, or * for all')
    return frozenset(scopes)


class ReusedKeyError(BadInputError):
    """An idempotency key was used for another request before."""


class StateConflictError(BadInputError):
    """A request that is well formed contradicts what the store holds now."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A status and a body (JSON text); `repeated`: it was kept from an earlier request."""

    status: int
    body: str
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class DecisionFilter:
    """Decisions of a kind, about a subject, made at or after `since` and before `until`."""

    kind: str | None = None
    subject: str | None = None
    since: float | None = None
    until: float | None = None
    tenants: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Jobs of a name, in any of `states` (none given: all), submitted at or after `since`, before `until`."""

    states: Sequence[JobState] = ()
    name: str | None = None
    since: float | None = None
    until: float | None = None
    tenants: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class ProfileFilter:
    """Profiles of a workload's name, taken at or after `since` and before `until`."""

    workload: str | None = None
    since: float | None = None
    until: float | None = None
    tenants: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Events of a kind, or about a subject."""

    kind: str | None = None
    subject: str | None = None
    tenants: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """One estimated quantity and its measured value, in the estimate's unit."""

    quantity: str
    estimate: Estimate
    measured: float

    @property
    def error(self) -> float:
        """(estimate - measured) / |measured|: 0.1 is ten percent too high, negative is too low.

        Infinite if 0 was measured and something else was estimated.
        """
        difference = self.estimate.value - self.measured
        if difference == 0 or self.estimate.value == self.measured:
            return 0.0
        return difference / abs(self.measured) if self.measured else math.copysign(math.inf, difference)

    @property
    def held(self) -> bool:
        return self.estimate.contains(self.measured)


def compare(decision: Decision, outcome: Outcome) -> tuple[Comparison, ...]:
    """Every measured quantity that the decision had an estimate of, in the order of the estimates."""
    if outcome.decision_id != decision.id:
        raise BadInputError(
            f"an outcome of decision {outcome.decision_id} cannot be compared with decision {decision.id}; "
            f"compare one of its own outcomes"
        )
    return tuple(
        Comparison(quantity, estimate, outcome.measured[quantity])
        for quantity, estimate in decision.estimates.items()
        if quantity in outcome.measured
    )
