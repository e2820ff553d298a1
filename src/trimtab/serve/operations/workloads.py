"""Workloads: what somebody wants to run, as profiles and jobs know it."""

import json
from dataclasses import dataclass

from trimtab.serve.operations.desk import Area
from trimtab.store import WantedJobs, WantedProfiles

AREA = "workloads"
PROFILES, JOBS = 200, 1000
"""How many of the newest of each are looked at."""


@dataclass(frozen=True, slots=True)
class SeenWorkload:
    """A workload by its name: its newest profile's id ("" for none), and how many jobs ran it."""

    name: str
    tenant: str
    kind: str
    profile: str
    jobs: int
    seen: float


class Workloads(Area):
    """Workloads of the tenants that may be seen, out of the newest profiles and jobs."""

    __slots__ = ()

    def list(self) -> tuple[SeenWorkload, ...]:
        """Those seen last, first."""
        self.principal.require(AREA)
        store = self.desk.store
        found: dict[tuple[str, str], SeenWorkload] = {}
        for text in store.jobs.page_text(JOBS, self.allowed(WantedJobs())).items:
            told = json.loads(text)
            work = told["spec"].get("job", {}).get("workload", {})
            key = (told["tenant"], str(work.get("name", told["name"])))
            before = found.get(key)
            found[key] = SeenWorkload(
                name=key[1],
                tenant=key[0],
                kind=str(work.get("kind", "")) if before is None else before.kind,
                profile="",
                jobs=1 if before is None else before.jobs + 1,
                seen=told["created"] if before is None else max(before.seen, told["created"]),
            )
        for text in store.profiles.page_text(PROFILES, self.allowed(WantedProfiles())).items:
            told = json.loads(text)
            work = told["workload"]
            key = (told["tenant"], work["name"])
            before = found.get(key)
            if before is not None and before.profile:
                continue
            found[key] = SeenWorkload(
                name=key[1],
                tenant=key[0],
                kind=work["kind"],
                profile=told["id"],
                jobs=0 if before is None else before.jobs,
                seen=told["created"] if before is None else max(before.seen, told["created"]),
            )
        return tuple(sorted(found.values(), key=lambda each: (-each.seen, each.tenant, each.name)))
