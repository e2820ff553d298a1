"""What short local runs showed."""

from trimtab.core import NotFoundError, Profile
from trimtab.store.database import Database
from trimtab.store.records import Records, is_storable
from trimtab.store.tables import profiles


class Profiles:
    """Every profile taken, under its id."""

    def __init__(self, database: Database) -> None:
        self._profiles = Records(database, profiles, Profile, "profile")

    def save(self, profile: Profile) -> None:
        """Keep a profile; saving the same one again does nothing."""
        columns = {"created": profile.created, "workload": profile.workload.name}
        self._profiles.add(profile.id, profile, columns)

    def get(self, id: str) -> Profile:
        """The profile whose id is, or alone starts with, `id`."""
        return self._profiles.get(id)

    def latest(self) -> Profile:
        """The newest profile."""
        newest = self.list(1)
        if not newest:
            raise NotFoundError("there is no profile yet; take one with: trimtab profile -- python train.py")
        return newest[0]

    def list(self, limit: int = 20, workload: str | None = None) -> tuple[Profile, ...]:
        """At most `limit` profiles, newest first, of the workload with one name where given."""
        if workload is None:
            return self._profiles.newest(limit)
        if not is_storable(workload):
            return ()
        return self._profiles.newest(limit, profiles.c.workload == workload)
