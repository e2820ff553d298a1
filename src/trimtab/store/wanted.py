"""Which records are asked for: what is left at None does not matter. Times are seconds since the epoch.

`tenants` are those whose records may be seen; None means all of them, and none at all sees nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.store.job_record import JobState


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
