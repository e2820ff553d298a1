"""The store as a whole, and how it is opened."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from trimtab.store.database import Database
    from trimtab.store.entities import Facts
    from trimtab.store.events import Events, Notes
    from trimtab.store.jobs import Jobs
    from trimtab.store.leader import Leader
    from trimtab.store.ledger import Ledger, Profiles
    from trimtab.store.replies import Replies
    from trimtab.store.tenants import Tenants, Tokens

T = TypeVar("T")


class Store:
    """Everything Trimtab keeps, in one database.

    A write has reached the disk when its call returns. Threads may share a store; a forked child opens one
    of its own.
    """

    def __init__(self, database: "Database") -> None:
        self._database = database

    @cached_property
    def ledger(self) -> "Ledger":
        from trimtab.store.ledger import Ledger

        return Ledger(self._database)

    @cached_property
    def profiles(self) -> "Profiles":
        from trimtab.store.ledger import Profiles

        return Profiles(self._database)

    @cached_property
    def events(self) -> "Events":
        from trimtab.store.events import Events

        return Events(self._database)

    @cached_property
    def jobs(self) -> "Jobs":
        from trimtab.store.jobs import Jobs

        return Jobs(self._database)

    @cached_property
    def tenants(self) -> "Tenants":
        from trimtab.store.tenants import Tenants

        return Tenants(self._database)

    @cached_property
    def notes(self) -> "Notes":
        from trimtab.store.events import Notes

        return Notes(self._database)

    @cached_property
    def tokens(self) -> "Tokens":
        from trimtab.store.tenants import Tokens

        return Tokens(self._database)

    @cached_property
    def replies(self) -> "Replies":
        from trimtab.store.replies import Replies

        return Replies(self._database)

    @property
    def is_file(self) -> bool:
        """Whether it is a file of this machine."""
        return self._database.address.path is not None

    @property
    def name(self) -> str:
        """Where the store is: the file's path, or the URL without its password."""
        return self._database.name

    def together(self, alone: str | None = None) -> AbstractContextManager[Any]:
        """A block whose writes, all in this thread, are kept together when it ends, or not at all.

        Within it, reads see what it wrote, and a write that fails fails alone. Others wait, so be brief.
        Who reads first and writes what follows from it names what to be `alone` with, such as "tenants".
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
        """Where it is a file: move what its log holds into it, while others go on reading and writing.

        Otherwise the writer that fills the log does it, and all other writers wait.
        """
        self._database.move_log()

    def leader(self, name: str) -> "Leader":
        """Somebody who leads as `name`, once asked to: on this machine, or among all who share PostgreSQL."""
        from trimtab.store.leader import FileLeader

        if self.is_file:
            return FileLeader(name, self.name)
        from trimtab.store.server_leader import ServerLeader

        return ServerLeader(name, self._database.address)

    def under(self, leader: "Leader") -> "Store":
        """A view of this store for a leader: its writes raise LostLeadError once another may lead."""
        return Store(self._database.under(leader.require))

    def back_up(self, path: Path, tell: Callable[[int, int], object] = lambda done, total: None) -> int:
        """Write all that is kept to a new file, as it is at one moment; how many rows that is.

        Others may write meanwhile. `tell` hears how many rows are done, of how many.
        """
        from trimtab.store.backup import back_up

        return back_up(self._database, path, tell)

    def restore(
        self,
        path: Path,
        replace: bool = False,
        tell: Callable[[int, int], object] = lambda done, total: None,
    ) -> int:
        """Keep what a backup holds, all of it or nothing; how many rows that is.

        Refused where anything is kept here, unless the backup is to replace it.
        """
        from trimtab.store.backup import restore

        return restore(self._database, path, replace, tell)

    def facts(self) -> "Facts":
        """Its schema, size and rows."""
        from trimtab.store.schema import facts

        return facts(self._database)

    def faults(self) -> tuple[str, ...]:
        """Faults of the database, one sentence each; empty if it is sound."""
        from trimtab.store.schema import faults_of

        return faults_of(self._database)

    def close(self) -> None:
        """Let go of the database; closing twice does no harm."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def open_store(url: str | None = None) -> Store:
    """The store at `url`, made or brought up to date where needed.

    None means `$TRIMTAB_STORE`, or else the file `trimtab.sqlite` in Trimtab's home. Give
    `sqlite:///path/to/file` or `postgresql://user@host/database`.
    """
    # SQLAlchemy takes longer to import than most commands take to answer, so only opening pays for it.
    from trimtab.store.address import resolve
    from trimtab.store.database import Database
    from trimtab.store.schema import bring_up_to_date

    database = Database(resolve(url))
    try:
        bring_up_to_date(database)
    except BaseException:
        database.close()
        raise
    return Store(database)
