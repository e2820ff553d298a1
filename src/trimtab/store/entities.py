"""The values that the store keeps and returns.

Nothing here imports SQLAlchemy, so that a command which only names them starts quickly.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Generic, TypeVar

from trimtab.core import BadInputError, Decision, Estimate, Outcome, StorageError


class FullError(StorageError):
    """The disk is full: nothing of the write was kept, and everything kept before is intact."""


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
    tenant: str = "default"


@dataclass(frozen=True, slots=True)
class Tenant:
    """A group of people with jobs. `guarantee` and `limit` are accelerators; `weight` shares what is left."""

    name: str
    parent: str | None = None
    guarantee: float = 0.0
    weight: float = 1.0
    limit: float | None = None

    def columns(self) -> dict[str, Any]:
        """As a row."""
        return asdict(self)


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


EVERY_TENANT = "*"
"""The tenant of a token that sees all of them."""

EVERYTHING = "*"
"""The scope of a token that is for anything its role may do."""

_SCOPE = re.compile(r"[a-z][a-z0-9-]*:(read|write)")


class NotAllowedError(BadInputError):
    """A request needs more than its token allows."""


class Role(StrEnum):
    """Role of a token within its tenant, in ascending order of permission."""

    VIEWER = "viewer"
    USER = "user"
    OPERATOR = "operator"
    ADMIN = "admin"

    def at_least(self, other: "Role") -> bool:
        """Whether it may do all that `other` may."""
        return _RANK[self] >= _RANK[other]


_RANK = {role: rank for rank, role in enumerate(Role)}


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its secret. Times are seconds since the epoch.

    `by` is the id of the token that made it, empty where somebody on the machine itself did.
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

    @property
    def tenants(self) -> tuple[str, ...] | None:
        """Whose records it may see, as the store's methods take it: None for all."""
        return None if self.tenant == EVERY_TENANT else (self.tenant,)

    def allows(self, scope: str) -> bool:
        """Whether it is for `scope`, such as jobs:read; who may write may read."""
        area, _, action = scope.partition(":")
        writes = action == "read" and f"{area}:write" in self.scopes
        return EVERYTHING in self.scopes or scope in self.scopes or writes

    def valid(self, now: float) -> bool:
        """Whether it still opens anything."""
        return self.revoked is None and (self.expires is None or now < self.expires)

    def require_may_make(self, tenant: str, role: Role, scopes: Collection[str]) -> None:
        """Refuse a token that could do more than this one, which must be an admin's."""
        if self.role is not Role.ADMIN:
            raise NotAllowedError(f"only admins make tokens, and token {self.id} is of a {self.role}")
        if self.tenant not in (EVERY_TENANT, tenant):
            raise NotAllowedError(f"an admin of {self.tenant} makes tokens for {self.tenant} alone")
        beyond = sorted(scope for scope in scopes if not self.allows(scope))
        if beyond:
            raise NotAllowedError(f"token {self.id} has not the scope {beyond[0]} itself; leave it out")


def checked_scopes(scopes: Collection[str]) -> frozenset[str]:
    """The scopes, or an error that names the first that is none."""
    if not scopes:
        raise BadInputError('a token without scopes is for nothing; give some like jobs:read, or "*" for all')
    for scope in sorted(scopes):
        if scope != EVERYTHING and not _SCOPE.fullmatch(scope):
            raise BadInputError(f'"{scope:.40}" is no scope; write one like jobs:read, or * for all')
    return frozenset(scopes)


class ReusedKeyError(BadInputError):
    """A key that stands for one request came with another."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A status and a body (JSON text); `repeated` where it was given before."""

    status: int
    body: str
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class WantedDecisions:
    """Decisions of a kind, about a subject, made at or after `since` and before `until`."""

    kind: str | None = None
    subject: str | None = None
    since: float | None = None
    until: float | None = None
    tenants: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class WantedJobs:
    """Jobs of a name, in any of some states (none given: all), submitted from `since` on, before `until`."""

    states: Sequence[JobState] = ()
    name: str | None = None
    since: float | None = None
    until: float | None = None
    tenants: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class WantedProfiles:
    """Profiles of the workload with a name, taken at or after `since` and before `until`."""

    workload: str | None = None
    since: float | None = None
    until: float | None = None
    tenants: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class WantedEvents:
    """Events of a kind, or that happened to a subject."""

    kind: str | None = None
    subject: str | None = None
    tenants: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """One estimated quantity and its truth, `measured` in the estimate's unit."""

    quantity: str
    estimate: Estimate
    measured: float

    @property
    def error(self) -> float:
        """(estimate - measured) / |measured|: 0.1 is ten percent too high, negative is too low.

        Infinite where nothing was measured but something was expected.
        """
        difference = self.estimate.value - self.measured
        if difference == 0 or self.estimate.value == self.measured:
            return 0.0
        return difference / abs(self.measured) if self.measured else math.copysign(math.inf, difference)

    @property
    def held(self) -> bool:
        """Whether the truth lay within the estimate's range."""
        return self.estimate.contains(self.measured)


def compare(decision: Decision, outcome: Outcome) -> tuple[Comparison, ...]:
    """Every measured quantity that the decision had an estimate of, in the order of its estimates."""
    if outcome.decision_id != decision.id:
        raise BadInputError(
            f"an outcome of decision {outcome.decision_id} cannot be compared with decision {decision.id}; "
            f"take one of its own outcomes"
        )
    return tuple(
        Comparison(quantity, estimate, outcome.measured[quantity])
        for quantity, estimate in decision.estimates.items()
        if quantity in outcome.measured
    )
