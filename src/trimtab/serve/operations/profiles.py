"""Profiles: what short local runs showed."""

import secrets
from dataclasses import replace

from trimtab.core import Profile
from trimtab.serve.operations.desk import Area
from trimtab.store import Page, Role, WantedProfiles

AREA = "profiles"


class Profiles(Area):
    """Profiles of the tenants that may be seen."""

    __slots__ = ()

    def page(
        self, limit: int = 20, wanted: WantedProfiles | None = None, after: str | None = None
    ) -> Page[Profile]:
        """Newest first."""
        self.principal.require(AREA)
        return self.desk.store.profiles.page(limit, self.allowed(wanted or WantedProfiles()), after)

    def page_text(
        self, limit: int = 20, wanted: WantedProfiles | None = None, after: str | None = None
    ) -> Page[str]:
        """The same as JSON."""
        self.principal.require(AREA)
        return self.desk.store.profiles.page_text(limit, self.allowed(wanted or WantedProfiles()), after)

    def get(self, id: str) -> Profile:
        """The one whose id is, or alone starts with, `id`."""
        self.principal.require(AREA)
        return self.desk.store.profiles.get(id, self.principal.tenants)

    def text(self, id: str) -> str:
        """The same as JSON."""
        self.principal.require(AREA)
        return self.desk.store.profiles.text(id, self.principal.tenants)

    def latest(self) -> Profile:
        """The newest."""
        self.principal.require(AREA)
        return self.desk.store.profiles.latest(self.principal.tenants)

    def save(self, profile: Profile, tenant: str | None = None) -> Profile:
        """Keep one, under a new id unless who asks may see all tenants; the profile as it is kept."""
        self.principal.require(AREA, "write", Role.USER)
        owner = self.principal.tenant_for(tenant)
        kept = profile if self.principal.tenants is None else replace(profile, id=secrets.token_hex(6))

        def effect() -> Profile:
            self.desk.store.profiles.save(kept, owner)
            return kept

        return self.written("profiles.save", owner, effect, lambda p: (p.id, {"workload": p.workload.name}))
