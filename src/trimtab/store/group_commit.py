"""Group commit: one sync of the disk for all writes that arrive at the same moment.

SQLite has one writer at a time, and a commit waits for the disk. So writers queue for one connection. The
writer whose turn it is runs its own effect, then those queued behind it, each within a savepoint of its own,
and commits for all of them; only then do their writes return. Meanwhile, the next writers queue.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import Connection, Dialect, Engine, RootTransaction
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import PoolProxiedConnection

from trimtab.core import StorageError

T = TypeVar("T")
DriverConnection = DBAPIConnection | PoolProxiedConnection

_MOST_MEMBERS = 256  # writers that share a commit
_LONGEST = 0.020  # s after which a group takes in no more writers


def execute(
    connection: DriverConnection,
    dialect: Dialect,
    sql: str,
    values: Mapping[str, Any] | Sequence[Any] = (),
) -> list[tuple[Any, ...]]:
    """Execute SQL on the driver's connection and return its rows; raises SQLAlchemy's errors."""
    try:
        cursor = connection.cursor()
        try:
            cursor.execute(sql, values)
            return list(cursor.fetchall()) if cursor.description else []
        finally:
            cursor.close()
    except dialect.loaded_dbapi.Error as error:
        raise DBAPIError.instance(sql, None, error, dialect.loaded_dbapi.Error, dialect=dialect) from None


@contextmanager
def savepoint(connection: Connection) -> Iterator[Connection]:
    """A savepoint around the block: its writes are undone if it fails, and the transaction continues."""
    # On the driver's connection: SQLAlchemy takes longer to name a savepoint than the database to set it.
    raw, dialect = connection.connection.dbapi_connection, connection.dialect
    assert raw is not None
    execute(raw, dialect, "SAVEPOINT part")
    try:
        yield connection
        execute(raw, dialect, "RELEASE SAVEPOINT part")
    except BaseException:
        # Out of space or memory, SQLite may have rolled back all of the transaction at once.
        if getattr(raw, "in_transaction", True):
            execute(raw, dialect, "ROLLBACK TO SAVEPOINT part")
            execute(raw, dialect, "RELEASE SAVEPOINT part")
        raise


@dataclass(slots=True, eq=False)
class _Writer:
    """A queued writer, woken once its effect has run or it has the turn; without an effect, by the turn."""

    effect: Callable[[Connection], Any] | None
    woken: threading.Event = field(default_factory=threading.Event)
    has_turn: bool = False
    result: Any = None
    error: Exception | None = None


@dataclass(slots=True, eq=False)
class _Group:
    """Writers that share a transaction; `failed` is why none of their writes was kept."""

    connection: Connection
    transaction: RootTransaction
    began: float
    members: list[_Writer] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    failed: Exception | None = None

    def wait(self) -> None:
        """Wait for the commit; raises where it failed."""
        self.over.wait()
        if self.failed is not None:
            raise self.failed


class GroupCommit:
    """The queue of writers, and the transaction they share."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._queue: deque[_Writer] = deque()
        self._taken = False
        self._open: _Group | None = None

    def run(self, effect: Callable[[Connection], T]) -> T:
        """Run `effect` and return its result once it is on the disk; another thread may run it."""
        writer = _Writer(effect)
        self._enqueue(writer)
        if writer.has_turn:
            group = self._current_group()
            try:
                self._run_effect(group, writer)
            finally:
                self._finish(group)
            group.wait()
        if writer.error is not None:
            raise writer.error
        result: T = writer.result
        return result

    def run_all(self, effects: Sequence[Callable[[Connection], T]]) -> list[T | Exception]:
        """Result or exception of each effect, once all are on the disk; one that fails fails alone."""
        writers = [_Writer(effect) for effect in effects]
        self._enqueue(_Writer(None))
        group = self._current_group()
        try:
            for writer in writers:
                if self._open is group:
                    self._run_effect(group, writer)
                else:
                    writer.error = StorageError("a write in the same commit failed, and this one with it")
        finally:
            self._finish(group)
        group.over.wait()
        return [writer.result if writer.error is None else writer.error for writer in writers]

    @contextmanager
    def turn(self) -> Iterator[Connection]:
        """A connection within a savepoint; when the block has ended without an error, it is on the disk."""
        writer = _Writer(None)
        self._enqueue(writer)
        group = self._current_group()
        try:
            with savepoint(group.connection) as connection:
                yield connection
        except BaseException as error:
            self._close_if_rolled_back(group, error)
            raise
        finally:
            group.members.append(writer)
            # The block may have failed because of a write of the same group, which counts once that is kept.
            self._finish(group)
            group.wait()

    def _enqueue(self, writer: _Writer) -> None:
        """Wait until it is this writer's turn, or another thread has run its effect."""
        with self._lock:
            if not self._taken:
                self._taken = writer.has_turn = True
                return
            self._queue.append(writer)
        try:
            writer.woken.wait()
        except BaseException:
            with self._lock:
                if writer in self._queue:
                    self._queue.remove(writer)
            if writer.has_turn:
                self._pass_turn()
            raise

    def _current_group(self) -> _Group:
        try:
            if self._open is None:
                connection = self._engine.connect()
                try:
                    self._open = _Group(connection, connection.begin(), time.monotonic())
                except BaseException:
                    connection.close()
                    raise
            return self._open
        except BaseException:
            self._pass_turn()
            raise

    def _run_effect(self, group: _Group, writer: _Writer) -> None:
        assert writer.effect is not None
        group.members.append(writer)
        try:
            with savepoint(group.connection) as connection:
                writer.result = writer.effect(connection)
        except Exception as error:
            writer.error = error
            self._close_if_rolled_back(group, error)
        except BaseException as error:
            self._close_if_rolled_back(group, error)
            writer.error = StorageError("a write was interrupted, and nothing of it was kept; repeat it")
            raise

    def _close_if_rolled_back(self, group: _Group, error: BaseException) -> None:
        """End the group if one writer's error has undone the writes of all."""
        if not getattr(group.connection.connection.dbapi_connection, "in_transaction", False):
            self._close(group, error)

    def _finish(self, group: _Group) -> None:
        """Run queued effects, commit for all, and pass the turn on."""
        try:
            while (
                self._open is group
                and len(group.members) < _MOST_MEMBERS
                and time.monotonic() - group.began <= _LONGEST
            ):
                with self._lock:
                    follower = self._queue.popleft() if self._queue else None
                if follower is None:
                    break
                if follower.effect is None:
                    follower.has_turn = True
                    follower.woken.set()
                    return
                self._run_effect(group, follower)
            if self._open is group:
                self._commit(group)
        except BaseException as error:
            if self._open is group:
                self._close(group, error)
            self._pass_turn()
            raise
        self._pass_turn()

    def _pass_turn(self) -> None:
        with self._lock:
            follower = self._queue.popleft() if self._queue else None
            self._taken = follower is not None
            if follower is not None:
                follower.has_turn = True
                follower.woken.set()

    def _commit(self, group: _Group) -> None:
        try:
            group.transaction.commit()
        except Exception as error:
            self._close(group, error)
        else:
            self._close(group, None)

    def _close(self, group: _Group, error: BaseException | None) -> None:
        self._open = None
        if error is not None and not isinstance(error, Exception):
            error = StorageError("a commit was interrupted; check what was kept before you go on")
        group.failed = error
        for member in group.members:
            member.error = group.failed or member.error
        try:
            if group.failed is not None:
                group.connection.invalidate()
            group.connection.close()
        finally:
            group.over.set()
            for member in group.members:
                member.woken.set()
