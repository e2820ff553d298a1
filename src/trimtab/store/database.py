"""A pool of connections to the store's database, with the settings that make its writes last."""

import copy
import hashlib
import sqlite3
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, TypeVar

from sqlalchemy import (
    JSON,
    Connection,
    Engine,
    Insert,
    Select,
    Table,
    Update,
    bindparam,
    create_engine,
    event,
    insert,
    text,
    update,
)
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, StatementError
from sqlalchemy.pool import PoolProxiedConnection

from trimtab.core import MissingDependencyError, TrimtabError
from trimtab.store import json_text
from trimtab.store.address import BUSY_TIMEOUT, Address, folder_error, storage_error
from trimtab.store.group_commit import GroupCommit
from trimtab.store.statements import CompiledStatement, execute, savepoint

T = TypeVar("T")

CONNECT_TIMEOUT = 10
"""Seconds to wait for PostgreSQL to answer."""

# Each thread holds one connection at most, so callers bound the pool by bounding their threads.
_UNBOUNDED = -1
_MOST_SHAPES = 500
_LOGGED = 4000  # pages of SQLite's log, 16 MiB
_LOCK = text("SELECT pg_advisory_xact_lock(:key)")


class Database:
    """Where the store's tables are read and written, one transaction at a time in each thread."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._reader = _sqlite(address) if address.path else _postgresql(address)
        self._writer = self._reader.execution_options(writes=True)
        self._commits = GroupCommit(self._writer) if address.path else None
        self._here = _Here()
        self._prepared: dict[Hashable, CompiledStatement] = {}
        self._require: Callable[[Connection], object] | None = None
        self._kept: list[PoolProxiedConnection] = []

    def under(self, require: Callable[[Connection], object]) -> "Database":
        """A view of this database whose write transactions call `require` first, which may refuse them."""
        held = copy.copy(self)
        held._require = require
        return held

    @property
    def address(self) -> Address:
        """Where the database is."""
        return self._address

    @property
    def name(self) -> str:
        """Name of the database in messages."""
        return self._address.name

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one state of the store; within `writing`, the state as written so far."""
        if self._here.connection is not None:
            yield self._here.connection
            return
        with self._translating(), self._reader.begin() as connection:
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """A transaction that sees one state of the store for as long as it lasts, on both databases."""
        level = {} if self._address.path else {"isolation_level": "REPEATABLE READ"}
        with self._translating(), self._reader.execution_options(**level).begin() as connection:
            yield connection

    @contextmanager
    def writing(self, alone: str | None = None) -> Iterator[Connection]:
        """A transaction that is on the disk when the block ends, and leaves no trace when it fails.

        Within another block of this thread it is a savepoint: it fails alone, and is on the disk when the
        outer block ends. `alone` names an advisory lock that the transaction holds to its end.
        """
        outer = self._here.connection
        with self._translating(), self._transaction() if outer is None else savepoint(outer) as connection:
            if alone is not None:
                lock(connection, alone)
            if self._require is not None:
                self._require(connection)
            self._here.connection = connection
            try:
                yield connection
            finally:
                self._here.connection = outer

    def write(self, effect: Callable[[Connection], T]) -> T:
        """Run `effect` in a transaction and return its result once on the disk; nothing is kept if it fails.

        Writers at the same moment share a commit, so another thread may run it: it should be brief.
        """
        if self._here.connection is not None or self._commits is None:
            with self.writing() as connection:
                return effect(connection)
        with self._translating():
            return self._commits.run(self._kept_here(effect))

    def write_all(self, effects: Sequence[Callable[[Connection], T]]) -> list[T | Exception]:
        """Result or exception of each effect, once on the disk; by one commit if the database allows that."""
        if self._commits is not None and self._here.connection is None:
            with self._translating():
                done = self._commits.run_all([self._kept_here(effect) for effect in effects])
            return [self._translated(each) for each in done]
        done = []
        for effect in effects:
            try:
                done.append(self.write(effect))
            except Exception as error:
                done.append(error)
        return done

    def _translated(self, result: T | Exception) -> T | Exception:
        if not isinstance(result, Exception):
            return result
        try:
            with self._translating():
                raise result
        except Exception as error:
            return error

    def _kept_here(self, effect: Callable[[Connection], T]) -> Callable[[Connection], T]:
        """`effect`, with the connection set as this thread's transaction while it runs."""

        def here(connection: Connection) -> T:
            if self._require is not None:
                self._require(connection)
            self._here.connection = connection
            try:
                return effect(connection)
            finally:
                self._here.connection = None

        return here

    def fetch(
        self, shape: Hashable, build: Callable[[], Select[Any] | Insert | Update], values: Mapping[str, Any]
    ) -> list[tuple[Any, ...]]:
        """Rows as the driver gives them. `build` makes the statement that all of this shape share.

        Twenty rows take a tenth of the time they take through SQLAlchemy's results.
        """
        prepared = self._prepared.get(shape)
        if prepared is None:
            if len(self._prepared) >= _MOST_SHAPES:
                self._prepared.clear()
            prepared = self._prepared[shape] = CompiledStatement(build(), self._reader.dialect)
        try:
            if self._here.connection is not None:
                return prepared.rows(_driver(self._here.connection), values)
            if self._address.path is not None:
                return prepared.rows(self._reads_here(), values)
            connection = self._raw()
            try:
                return prepared.rows(connection, values)
            finally:
                connection.close()
        except DBAPIError as error:
            raise storage_error(error, self._address) from None

    def add(self, table: Table, row: Mapping[str, Any], returning: str | None = None) -> Any:
        """Insert a row within a block of `writing` or `write`; the value of a column that it got."""
        assert self._here.connection is not None
        columns = table.c

        def build() -> Insert:
            given = {name: bindparam(name, type_=columns[name].type) for name in row}
            made = insert(table).values(given)
            return made if returning is None else made.returning(columns[returning])

        rows = self.fetch((table.name, *row, returning), build, _encoded(table, row))
        return rows[0][0] if rows else None

    def change(self, table: Table, row: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
        """Change the row whose columns are as `where` says, within such a block; whether there is one."""
        assert self._here.connection is not None
        columns, key = table.c, next(iter(where))

        def build() -> Update:
            given = {name: bindparam(name, type_=columns[name].type) for name in row}
            same = [columns[name] == bindparam(f"was_{name}", type_=columns[name].type) for name in where]
            return update(table).where(*same).values(given).returning(columns[key])

        values = {**_encoded(table, row), **{f"was_{name}": value for name, value in where.items()}}
        return bool(self.fetch(("change", table.name, *row, *where), build, values))

    def move_log(self) -> None:
        """Move SQLite's log into its file, as far as nobody has to wait for it."""
        if self._address.path is not None:
            with self._translating():
                execute(self._reads_here(), self._reader.dialect, "PRAGMA wal_checkpoint(PASSIVE)")

    def close(self) -> None:
        """Close every connection that nobody uses."""
        while self._kept:
            self._kept.pop().close()
        self._here = _Here()
        self._reader.dispose()

    def _transaction(self) -> AbstractContextManager[Connection]:
        return self._commits.turn() if self._commits else self._writer.begin()

    def _reads_here(self) -> DBAPIConnection:
        """A connection to SQLite that this thread keeps: to borrow one takes longer than to read a row.

        It never is within a transaction, so there is nothing to put back.
        """
        if self._here.reads is None:
            proxied = self._raw()
            proxied.detach()
            assert proxied.dbapi_connection is not None
            self._here.reads = proxied.dbapi_connection
            self._kept.append(proxied)
        return self._here.reads

    def _raw(self) -> PoolProxiedConnection:
        try:
            return self._reader.raw_connection()
        except self._reader.dialect.loaded_dbapi.Error as error:
            raise DBAPIError(None, None, error) from None

    @contextmanager
    def _translating(self) -> Iterator[None]:
        """Translates errors of the driver into sentences for the user."""
        try:
            yield
        except DBAPIError as error:
            raise storage_error(error, self._address) from None
        except StatementError as error:
            # What a column's encoder refused arrives wrapped as a fault of the statement.
            if isinstance(error.orig, TrimtabError):
                raise error.orig from None
            raise


def _encoded(table: Table, row: Mapping[str, Any]) -> dict[str, Any]:
    """Values as the driver takes them."""
    columns = table.c
    return {
        name: json_text.dumps(value) if isinstance(columns[name].type, JSON) else value
        for name, value in row.items()
    }


def _driver(connection: Connection) -> DBAPIConnection:
    """The driver's own connection, which SQLAlchemy's takes a while to pass things on to."""
    found = connection.connection.dbapi_connection
    assert found is not None
    return found


class _Here(threading.local):
    """The transaction that a thread is in, and the connection it reads with outside of one."""

    connection: Connection | None = None
    reads: DBAPIConnection | None = None


def lock(connection: Connection, name: str) -> None:
    """Wait until no other transaction holds `name`, and hold it to this one's end."""
    # SQLite's writers are alone from the start; PostgreSQL's have to agree on a lock.
    if connection.dialect.name == "postgresql":
        connection.execute(_LOCK, {"key": number_of(name)})


def number_of(name: str) -> int:
    """A number to lock in PostgreSQL, that no other user of the database is likely to lock."""
    digest = hashlib.sha256(f"trimtab {name}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def _sqlite(address: Address) -> Engine:
    assert address.path is not None
    try:
        address.path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise folder_error(error, address) from None
    with suppress(OSError):  # what is wrong, SQLite will say
        # All tenants' things are in it; SQLite itself would make it readable for everybody.
        address.path.touch(mode=0o600, exist_ok=False)
    engine = create_engine(
        address.url,
        connect_args={"timeout": BUSY_TIMEOUT},
        json_serializer=json_text.dumps,
        max_overflow=_UNBOUNDED,
    )
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    # The driver would commit before every CREATE TABLE; with None it leaves transactions to us.
    connection.isolation_level = None
    _use_write_ahead_log(connection)
    # In WAL mode, only FULL syncs the log at each commit; NORMAL may lose the last ones with the power.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    # Whoever fills the log writes it into the file, and others wait for that: seldom, then.
    connection.execute(f"PRAGMA wal_autocheckpoint = {_LOGGED}")


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    # The switch needs the file to itself and, while another process writes, fails at once instead of waiting.
    deadline = time.monotonic() + BUSY_TIMEOUT
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that reads first and writes later fails where another wrote in between: lock up front.
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _postgresql(address: Address) -> Engine:
    url = address.url
    if "connect_timeout" not in url.query:
        url = url.update_query_dict({"connect_timeout": str(CONNECT_TIMEOUT)})
    try:
        # The ping replaces connections that a restart of the server has cut.
        return create_engine(
            url, pool_pre_ping=True, json_serializer=json_text.dumps, max_overflow=_UNBOUNDED
        )
    except ImportError:
        raise MissingDependencyError(
            "a store in PostgreSQL needs the psycopg package; pip install 'trimtab[postgres]'"
        ) from None
