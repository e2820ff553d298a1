"""What short local runs showed."""

from collections.abc import Sequence

from trimtab.core import NotFoundError, Profile
from trimtab.store.database import Database
from trimtab.store.listing import Asked
from trimtab.store.page import Page
from trimtab.store.records import Records, seen_by
from trimtab.store.tables import EVERYBODY, profiles
from trimtab.store.wanted import WantedProfiles


class Profiles:
    """Every profile taken, under its id."""

    def __init__(self, database: Database) -> None:
        self._profiles = Records(database, profiles, Profile, "profile")

    def save(self, profile: Profile, tenant: str = EVERYBODY) -> None:
        """Keep a profile of a tenant; saving the same one again does nothing."""
        columns = {"created": profile.created, "workload": profile.workload.name}
        self._profiles.add(profile.id, profile, columns, tenant)

    def get(self, id: str, tenants: Sequence[str] | None = None) -> Profile:
        """The profile whose id is, or alone starts with, `id`, of those that `tenants` may see."""
        return self._profiles.get(id, tenants)

    def text(self, id: str, tenants: Sequence[str] | None = None) -> str:
        """The same as JSON, with its tenant."""
        return self._profiles.text(id, tenants)

    def latest(self, tenants: Sequence[str] | None = None) -> Profile:
        """The newest profile."""
        newest = self.list(1, tenants=tenants)
        if not newest:
            raise NotFoundError("there is no profile yet; take one with: trimtab profile -- python train.py")
        return newest[0]

    def list(
        self, limit: int = 20, workload: str | None = None, tenants: Sequence[str] | None = None
    ) -> tuple[Profile, ...]:
        """At most `limit` profiles, newest first, of the workload with one name where given."""
        return self.page(limit, WantedProfiles(workload, tenants=tenants)).items

    def page(
        self, limit: int = 20, wanted: WantedProfiles | None = None, after: str | None = None
    ) -> Page[Profile]:
        """A page of at most `limit` profiles, newest first, from where the page before said `next`."""
        return self._profiles.records(_asked(wanted), limit, after)

    def page_text(
        self, limit: int = 20, wanted: WantedProfiles | None = None, after: str | None = None
    ) -> Page[str]:
        """The same as JSON, with their tenants."""
        return self._profiles.texts(_asked(wanted), limit, after)


def _asked(wanted: WantedProfiles | None) -> Asked:
    wanted = wanted or WantedProfiles()
    alike: dict[str, Sequence[str]] = {**seen_by(wanted.tenants)}
    if wanted.workload is not None:
        alike["workload"] = (wanted.workload,)
    return Asked(alike, since=wanted.since, until=wanted.until)
