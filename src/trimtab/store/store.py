"""The store as a whole, and how it is opened."""

from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from trimtab.store.database import Database
    from trimtab.store.events import Events
    from trimtab.store.jobs import Jobs
    from trimtab.store.ledger import Ledger
    from trimtab.store.notes import Notes
    from trimtab.store.profiles import Profiles
    from trimtab.store.tenants import Tenants


class Store:
    """Everything Trimtab keeps, in one database.

    A write has reached the disk when its call returns. Threads may share a store; a forked child opens one
    of its own.
    """

    def __init__(
        self,
        database: "Database",
        ledger: "Ledger",
        profiles: "Profiles",
        events: "Events",
        jobs: "Jobs",
        tenants: "Tenants",
        notes: "Notes",
    ) -> None:
        self._database = database
        self.ledger = ledger
        self.profiles = profiles
        self.events = events
        self.jobs = jobs
        self.tenants = tenants
        self.notes = notes

    @property
    def name(self) -> str:
        """Where the store is: the file's path, or the URL without its password."""
        return self._database.name

    def close(self) -> None:
        """Let go of the database; closing twice does no harm."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def open_store(url: str | None = None) -> Store:
    """The store at `url`, made or brought up to date where needed.

    None means `$TRIMTAB_STORE`, or else the file `trimtab.sqlite` in Trimtab's home. Give
    `sqlite:///path/to/file` or `postgresql://user@host/database`.
    """
    # SQLAlchemy takes longer to import than most commands take to answer, so only opening pays for it.
    from trimtab.store.address import resolve
    from trimtab.store.database import Database
    from trimtab.store.events import Events
    from trimtab.store.jobs import Jobs
    from trimtab.store.ledger import Ledger
    from trimtab.store.notes import Notes
    from trimtab.store.profiles import Profiles
    from trimtab.store.schema import bring_up_to_date
    from trimtab.store.tenants import Tenants

    database = Database(resolve(url))
    try:
        bring_up_to_date(database)
    except BaseException:
        database.close()
        raise
    return Store(
        database,
        Ledger(database),
        Profiles(database),
        Events(database),
        Jobs(database),
        Tenants(database),
        Notes(database),
    )
