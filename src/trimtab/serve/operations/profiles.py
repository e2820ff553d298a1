"""Profiles of short local runs, and the workloads of profiles and jobs."""

import json
import secrets
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from trimtab.core import NotFoundError, Profile
from trimtab.serve.operations.operation import (
    After,
    Area,
    ShortText,
    Since,
    Text,
    Until,
    operation,
)
from trimtab.store import JobFilter, Page, ProfileFilter, Role

PROFILES, JOBS = 200, 1000
"""Number of newest profiles and jobs that are searched for workloads."""


@dataclass(frozen=True, slots=True)
class OwnedProfile(Profile):
    """A profile as the store shows it, with its tenant."""

    tenant: str = ""


class ProfileOperations(Area, name="profiles"):
    """Profiles of the tenants that may be seen."""

    __slots__ = ()

    @operation("GET", "/v1/profiles", stored=True, answer=Page[OwnedProfile])
    def page(
        self,
        limit: Annotated[int, Field(ge=1, le=100, description="Items of the page.")] = 20,
        after: After = None,
        workload: Text = None,
        tenant: ShortText = None,
        since: Since = None,
        until: Until = None,
    ) -> Page[Profile]:
        """Profiles, newest first."""
        profiles, tenants = self.backend.store.profiles, self.principal.visible_tenants(tenant)
        criteria = ProfileFilter(workload, since, until, tenants)
        return self.stored(profiles.page, profiles.page_text)(limit, criteria, after)

    @operation("GET", "/v1/profiles/{id}", stored=True, tagged=True, answer=OwnedProfile)
    def get(self, id: str) -> Profile:
        """One profile, by its id or a unique start of it."""
        profiles = self.backend.store.profiles
        return self.stored(profiles.get, profiles.text)(id, self.principal.tenants)

    def latest(self) -> Profile:
        """The newest profile."""
        newest = self.page(1).items
        if not newest:
            raise NotFoundError("there is no profile yet; take one with: trimtab profile -- python train.py")
        return newest[0]

    @operation("POST", "/v1/profiles", least=Role.USER)
    def save(self, profile: Profile, tenant: str | None = None) -> Profile:
        """Save a profile, under a new id unless the token is for all tenants."""
        owner = self.principal.owner_of_new(tenant)
        kept = profile if self.principal.tenants is None else replace(profile, id=secrets.token_hex(6))

        def effect() -> Profile:
            self.backend.store.profiles.save(kept, owner)
            return kept

        return self.write("profiles.save", owner, effect, lambda p: (p.id, {"workload": p.workload.name}))


@dataclass(frozen=True, slots=True)
class SeenWorkload:
    """A workload by its name: its newest profile's id ("" for none), and how many jobs ran it."""

    name: str
    tenant: str
    kind: str
    profile: str
    jobs: int
    seen: float


class WorkloadOperations(Area, name="workloads"):
    """Workloads of the tenants that may be seen, out of the newest profiles and jobs."""

    __slots__ = ()

    @operation("GET", "/v1/workloads", slow=True)
    def list(self) -> tuple[SeenWorkload, ...]:
        """Workloads out of the newest profiles and jobs, last seen first."""
        store, tenants = self.backend.store, self.principal.tenants
        workloads: dict[tuple[str, str], SeenWorkload] = {}

        def see(key: tuple[str, str], kind: str, created: float, profile: str, jobs: int) -> None:
            before = workloads.get(key, SeenWorkload(key[1], key[0], kind, "", 0, created))
            workloads[key] = SeenWorkload(
                name=before.name,
                tenant=before.tenant,
                kind=kind if profile and not before.profile else before.kind,
                profile=before.profile or profile,
                jobs=before.jobs + jobs,
                seen=max(before.seen, created),
            )

        for text in store.jobs.page_text(JOBS, JobFilter(tenants=tenants)).items:
            job = json.loads(text)
            work = job["spec"].get("job", {}).get("workload", {})
            key = (job["tenant"], str(work.get("name", job["name"])))
            see(key, str(work.get("kind", "")), job["created"], "", 1)
        for text in store.profiles.page_text(PROFILES, ProfileFilter(tenants=tenants)).items:
            taken = json.loads(text)
            work = taken["workload"]
            see((taken["tenant"], work["name"]), work["kind"], taken["created"], taken["id"], 0)
        return tuple(
            sorted(workloads.values(), key=lambda workload: (-workload.seen, workload.tenant, workload.name))
        )
