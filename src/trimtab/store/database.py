"""A pool of connections to the store's database, with the settings that make its writes last."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, StatementError

from trimtab.core import MissingDependencyError, TrimtabError
from trimtab.store import json_text
from trimtab.store.address import Address
from trimtab.store.faults import BUSY_TIMEOUT, told, told_of_folder

CONNECT_TIMEOUT = 10
"""Seconds to wait for PostgreSQL to answer."""

# Each thread holds one connection at most, so callers bound the pool by bounding their threads.
_UNBOUNDED = -1


class Database:
    """Where the store's tables are read and written, one transaction at a time."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._reader = _sqlite(address) if address.path else _postgresql(address)
        self._writer = self._reader.execution_options(writes=True)

    @property
    def name(self) -> str:
        """What to call this database in a message."""
        return self._address.name

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one state of the store."""
        with self._transaction(self._reader) as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that is on the disk when the block ends, and leaves no trace when it fails."""
        with self._transaction(self._writer) as connection:
            yield connection

    def close(self) -> None:
        """Close every idle connection."""
        self._reader.dispose()

    @contextmanager
    def _transaction(self, engine: Engine) -> Iterator[Connection]:
        try:
            with engine.begin() as connection:
                yield connection
        except DBAPIError as error:
            raise told(error, self._address) from None
        except StatementError as error:
            # What a column's encoder refused arrives wrapped as a fault of the statement.
            if isinstance(error.orig, TrimtabError):
                raise error.orig from None
            raise


def _sqlite(address: Address) -> Engine:
    assert address.path is not None
    try:
        address.path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise told_of_folder(error, address) from None
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
