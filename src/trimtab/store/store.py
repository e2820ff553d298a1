"""The store, and how it is opened."""

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from trimtab.core import StorageError

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from trimtab.store.clock import DatabaseClock
    from trimtab.store.database import Database
    from trimtab.store.entities import Facts
    from trimtab.store.events import EventLog, Notes
    from trimtab.store.jobs import Jobs
    from trimtab.store.leader import Leader
    from trimtab.store.ledger import Ledger, Profiles
    from trimtab.store.replies import Replies
    from trimtab.store.tenants import Tenants, Tokens

T = TypeVar("T")

_SERVED = "served"
_HEALTH = "health"
_PARTS = {
    "ledger": ("ledger", "Ledger"),
    "profiles": ("ledger", "Profiles"),
    "events": ("events", "EventLog"),
    "notes": ("events", "Notes"),
    "jobs": ("jobs", "Jobs"),
    "tenants": ("tenants", "Tenants"),
    "tokens": ("tenants", "Tokens"),
    "replies": ("replies", "Replies"),
    "clock": ("clock", "DatabaseClock"),
}
"""Attributes of a store: module and class."""


class Store:
    """Everything Trimtab keeps, in one database.

    A write has reached the disk when its call returns. Threads may share a store; a forked child opens one
    of its own.
    """

    ledger: "Ledger"
    profiles: "Profiles"
    events: "EventLog"
    notes: "Notes"
    jobs: "Jobs"
    tenants: "Tenants"
    tokens: "Tokens"
    replies: "Replies"
    clock: "DatabaseClock"

    def __init__(self, database: "Database") -> None:
        self._database = database

    def __getattr__(self, name: str) -> Any:
        # Each part is imported when it is first used, and SQLAlchemy with it.
        if name not in _PARTS:
            raise AttributeError(name)
        module, kind = _PARTS[name]
        part = getattr(import_module(f"trimtab.store.{module}"), kind)(self._database)
        setattr(self, name, part)
        return part

    @property
    def is_file(self) -> bool:
        return self._database.address.path is not None

    @property
    def name(self) -> str:
        """The file's path, or the URL without its password."""
        return self._database.name

    def together(self, alone: str | None = None) -> AbstractContextManager[Any]:
        """A block whose writes, all in this thread, are kept together when it ends, or not at all.

        Within it, reads see its writes, and a write that fails fails alone. Others wait, so be brief. A block
        that writes what follows from its reads names an advisory lock with `alone`, such as "tenants".
        """
        return self._database.writing(alone)

    def write(self, effect: Callable[[], T]) -> T:
        """Run `effect` as one write and return its result once it is on the disk; cheaper than a block.

        Writers at the same moment share one commit, so another thread may run it: it should be brief.
        """
        return self._database.write(lambda connection: effect())

    def write_all(self, effects: Sequence[Callable[[], T]]) -> list[T | Exception]:
        """Result or exception of each effect, once all are on the disk; one that fails fails alone."""

        def ignoring_connection(effect: Callable[[], T]) -> "Callable[[Connection], T]":
            return lambda connection: effect()

        return self._database.write_all([ignoring_connection(effect) for effect in effects])

    def move_log(self) -> None:
        """Move a file's write-ahead log into it, while others go on reading and writing.

        Otherwise the writer that fills the log does it, and all other writers wait.
        """
        self._database.move_log()

    def leader(self, name: str) -> "Leader":
        """A candidate for leadership under `name`: on this machine, or among all that share PostgreSQL."""
        from trimtab.store.leader import FileLeader

        if self.is_file:
            return FileLeader(name, self.name)
        from trimtab.store.server_leader import ServerLeader

        return ServerLeader(name, self._database.address)

    def under(self, leader: "Leader") -> "Store":
        """A view of this store for a leader: its writes raise LostLeadError once another may lead."""
        return Store(self._database.under(leader.require))

    def back_up(self, path: Path, progress: Callable[[int, int], object] = lambda done, total: None) -> int:
        """Write all rows of one moment to a new file; returns how many there are.

        Others may write meanwhile. `progress` is called with the rows done and the rows of all tables.
        """
        from trimtab.store.maintenance import back_up

        return back_up(self._database, path, progress)

    def restore(
        self,
        path: Path,
        replace: bool = False,
        progress: Callable[[int, int], object] = lambda done, total: None,
    ) -> int:
        """Keep all rows of a backup, or none; returns how many there are.

        Refused for a store that holds rows, unless the backup is to `replace` them.
        """
        from trimtab.store.database import marker_of
        from trimtab.store.maintenance import restore

        rows = restore(self._database, path, replace, progress)
        if marker_of(self._database.address).exists():
            self.mark_served(new=True)
        return rows

    def mark_served(self, new: bool = False) -> None:
        """Note that `trimtab up` serves this store, so that it is not made anew when it is missing later.

        Unless it may be a `new` one, raises MissingStoreError if another store was served here, and this one
        was never.
        """
        from trimtab.kernel import write_whole
        from trimtab.store.database import marker_of, require_never_served

        served, now = self.notes.get(_SERVED), self.clock.now()
        if served is None:
            if not new:
                require_never_served(self._database.address)
            self.notes.put(_SERVED, {}, now)
        marker = marker_of(self._database.address)
        if not marker.exists():
            marker.parent.mkdir(parents=True, exist_ok=True)
            write_whole(marker, json.dumps({"store": self.name, "since": now}) + "\n", mode=0o600)

    @property
    def damage(self) -> StorageError | None:
        """Damage of the database that a query or a search has met since it was opened."""
        return self._database.damage

    def check_writable(self) -> None:
        """Raise unless a write reaches the disk now, with room for more."""
        self._database.check_room()
        self.notes.put(_HEALTH, {}, self.clock.now())

    def find_damage(self, seconds: float) -> bool:
        """Look for damaged pages of a file for some seconds at most; whether all were checked.

        Raises DamagedError if there are any. PostgreSQL checks pages itself when it reads them.
        """
        from trimtab.store.maintenance import find_damage

        return find_damage(self._database, seconds)

    def facts(self) -> "Facts":
        from trimtab.store.maintenance import facts

        return facts(self._database)

    def faults(self) -> tuple[str, ...]:
        """Faults of the database, one sentence each; empty if it is sound."""
        from trimtab.store.maintenance import faults_of

        return faults_of(self._database)

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def open_store(url: str | None = None, new: bool = False) -> Store:
    """The store at `url`, created or migrated if needed.

    None means `$TRIMTAB_STORE`, or else the file `trimtab.sqlite` in Trimtab's home. Give
    `sqlite:///path/to/file` or `postgresql://user@host/database`. Raises MissingStoreError if `trimtab up`
    has served a store there that is missing or empty now, unless a `new` one may take its place.
    """
    # SQLAlchemy takes longer to import than most commands take to answer, so only opening pays for it.
    from trimtab.store.database import Database, bring_up_to_date, require_never_served, resolve

    address = resolve(url)
    if address.path is not None and not address.path.exists() and not new:
        require_never_served(address)
    database = Database(address)
    try:
        bring_up_to_date(database, new)
    except BaseException:
        database.close()
        raise
    return Store(database)
