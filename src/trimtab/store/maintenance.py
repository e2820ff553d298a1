"""Maintenance of a store: looking at it without changing it, checking it, backup and restore."""

import gzip
import hashlib
import itertools
import json
import os
import sqlite3
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import JSON, Connection, Table, Text, cast, create_engine, func, inspect, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from trimtab.core import BadInputError, StorageError
from trimtab.store.database import (
    REVISIONS,
    Address,
    Database,
    create_postgresql_engine,
    lock,
    marker_of,
    migrate,
    resolve,
    revision_of,
    storage_error,
)
from trimtab.store.entities import DamagedError, Facts
from trimtab.store.tables import VERSION_TABLE, decisions, metadata, outcomes

BACKUP_FORMAT = 1
Progress = Callable[[int, int], object]
"""Called with the number of rows done and the number of all rows."""

_APPEND_ONLY = ("decisions", "outcomes", "events")
_ROWS_AT_ONCE = 1000
_INSTRUCTIONS = 200_000  # of SQLite's machine between two looks at the clock, a few milliseconds
_PING_INTERVAL = 0.5  # s
_STARTING = "it is starting, recovering or stopping"


@dataclass(frozen=True, slots=True)
class Look:
    """A store's name, its file if it is SQLite, its schema (None: none yet), and the newest schema.

    `served`: `trimtab up` has served it on this machine.
    """

    name: str
    path: Path | None
    revision: str | None
    newest: str
    served: bool


def look_at_store(url: str | None = None, patience: float = 2.0) -> Look:
    """Look at the store that `open_store` would open, without changing it.

    Waits at most about `patience` seconds for an answer. Raises if the database does not answer, is not a
    store, or belongs to a newer Trimtab.
    """
    address = resolve(url)
    path = address.path
    if path is None:
        seconds = str(max(2, round(patience)))  # the least that PostgreSQL's library takes
        engine = create_postgresql_engine(
            address.url.update_query_dict({"connect_timeout": seconds}), poolclass=NullPool
        )
    elif not path.exists():
        return Look(address.name, path, None, REVISIONS[-1], marker_of(address).exists())
    else:
        # With no log beside it everything is in the file; a reader of the log would leave files of its own.
        mode = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
        file = f"file:{quote(str(path))}?{mode}"
        engine = create_engine(
            "sqlite://", creator=lambda: sqlite3.connect(file, patience, uri=True), poolclass=NullPool
        )
    try:
        with engine.connect() as connection:
            revision = revision_of(connection, address.name)
    except DBAPIError as error:
        raise storage_error(error, address) from None
    finally:
        engine.dispose()
    return Look(address.name, path, revision, REVISIONS[-1], marker_of(address).exists())


def wait_for_server(url: str | None, notice: Callable[[str], object], patience: float = 60.0) -> None:
    """Wait until PostgreSQL accepts connections and writes; returns at once for a file.

    Waits for as long as the server says that it starts or recovers, and `patience` seconds for one that does
    not answer or only reads; then opening the store says what is wrong. `notice` gets a sentence when the
    waiting begins, and when its reason changes.
    """
    address = resolve(url)
    if address.path is not None:
        return
    deadline, reason = time.monotonic() + patience, ""
    while (state := _server_state(address)) and (state == _STARTING or time.monotonic() < deadline):
        if state != reason:
            reason = state
            notice(f"waiting for PostgreSQL at {address.name}: {state}")
        time.sleep(_PING_INTERVAL)


def _server_state(address: Address) -> str:
    """Why PostgreSQL cannot be written now; "" if it can, or if waiting would not help."""
    # Raises if the driver is missing.
    create_postgresql_engine(address.url).dispose()
    import psycopg

    url = address.url.set(drivername="postgresql").update_query_dict({"connect_timeout": "2"})
    text = url.render_as_string(hide_password=False)
    ping = psycopg.pq.PGconn.ping(text.encode())
    if ping == psycopg.pq.Ping.REJECT:
        return _STARTING
    if ping == psycopg.pq.Ping.NO_RESPONSE:
        return "it does not answer"
    try:
        with psycopg.connect(text) as connection:
            row = connection.execute("SELECT pg_is_in_recovery()").fetchone()
    except psycopg.Error:
        return ""  # a wrong user, password or database
    return "it only reads while it is in recovery" if row == (True,) else ""


def facts(database: Database) -> Facts:
    """Name, schema revision, size in bytes and rows per table."""
    with database.snapshot() as connection:
        rows = {table.name: _count(connection, table) for table in metadata.sorted_tables}
        schema = revision_of(connection, database.name) or ""
        path = database.address.path
        if path is None:
            size = int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())
        else:
            log = path.with_name(f"{path.name}-wal")
            size = sum(file.stat().st_size for file in (path, log) if file.exists())
    return Facts(database.name, schema, size, rows)


def faults_of(database: Database) -> tuple[str, ...]:
    """Faults of the database, one sentence each; empty if it is sound."""
    with database.snapshot() as connection:
        faults = _damage(connection) if database.address.path else []
        missing = ~select(decisions.c.id).where(decisions.c.id == outcomes.c.decision_id).exists()
        count = connection.execute(select(func.count()).select_from(outcomes).where(missing)).scalar_one()
        if count:
            faults.append(f"{count} outcomes belong to decisions that do not exist")
        if connection.dialect.name == "postgresql":
            query = (
                "SELECT relname FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid "
                "WHERE tgname LIKE '%refuse%'"
            )
        else:
            query = "SELECT tbl_name FROM sqlite_master WHERE type = 'trigger' AND name LIKE '%refuse%'"
        guarded = set(connection.execute(text(query)).scalars())
        tables = set(inspect(connection).get_table_names())
    faults += [
        f"{table} have lost the trigger that keeps them append-only"
        for table in _APPEND_ONLY
        if table in tables and table not in guarded
    ]
    return tuple(faults)


def find_damage(database: Database, seconds: float) -> bool:
    """Run SQLite's quick check for some seconds at most; whether it came to its end.

    Raises DamagedError if it finds damage.
    """
    path = database.address.path
    if path is None:
        return True
    deadline = time.monotonic() + seconds
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as connection:
            connection.set_progress_handler(lambda: time.monotonic() > deadline, _INSTRUCTIONS)
            results = [row[0] for row in connection.execute("PRAGMA quick_check(1)")]
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_INTERRUPT:
            return False
        if code not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise storage_error(DBAPIError(None, None, error), database.address) from None
        results = [str(error)]
    if results == ["ok"]:
        return True
    found = " ".join(results[0].split())
    database.damage = DamagedError(
        f"the store {database.name} is damaged: {found:.200}; trimtab store check shows all of it; "
        f"move the file away and restore it from a backup"
    )
    raise database.damage


def _damage(connection: Connection) -> list[str]:
    results = connection.exec_driver_sql("PRAGMA integrity_check(10)").scalars().all()
    damage = [f"SQLite finds damage: {result}" for result in results if result != "ok"]
    for table in metadata.sorted_tables:
        for column in (column for column in table.columns if isinstance(column.type, JSON)):
            # PostgreSQL checks JSON itself when it is written; SQLite takes any text.
            wrong = f'NOT json_valid("{column.name}")'
            query = f'SELECT count(*) FROM "{table.name}" WHERE {wrong}'  # nosec B608 # names of the schema
            if count := connection.exec_driver_sql(query).scalar_one():
                damage.append(f"{count} rows of {table.name} have a {column.name} that is not JSON")
    return damage


@dataclass(frozen=True, slots=True)
class Header:
    """Schema revision of the rows in a backup, and each table's columns and number of rows."""

    schema: str
    columns: Mapping[str, Sequence[str]]
    rows: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.rows.values())


@contextmanager
def new_backup(path: Path, header: Header) -> Iterator[Callable[[Sequence[Any]], None]]:
    """A function that adds a row to the file, which appears after the block, complete or not at all."""
    if path.exists():
        raise BadInputError(f"{path} exists already; name a new file")
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise _unwritable(path, error) from None
    digest = hashlib.sha256()
    tables = {
        name: {"columns": [*names], "rows": header.rows[name]} for name, names in header.columns.items()
    }
    try:
        with os.fdopen(handle, "wb") as file:
            try:
                with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=1, mtime=0) as packed:

                    def line(value: Any) -> None:
                        data = json.dumps(value, separators=(",", ":")).encode() + b"\n"
                        digest.update(data)
                        packed.write(data)

                    line(
                        {
                            "trimtab": "store",
                            "format": BACKUP_FORMAT,
                            "schema": header.schema,
                            "tables": tables,
                        }
                    )
                    yield line
                    line({"sha256": digest.hexdigest()})
                file.flush()
                os.fsync(file.fileno())
                os.replace(temporary, path)
            except OSError as error:
                raise _unwritable(path, error) from None
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


def verified(path: Path) -> Header:
    """The header of a backup whose checksum is right, after reading it to its end."""
    with _read(path) as lines:
        digest = hashlib.sha256()
        first = next(lines, b"")
        digest.update(first)
        header = _header(path, first)
        for _ in range(header.total):
            digest.update(next(lines, b""))
        last = json.loads(next(lines, b"{}"))
        if last != {"sha256": digest.hexdigest()} or next(lines, None) is not None:
            raise BadInputError(f"{path} is damaged: its checksum is not that of its rows; take another one")
    return header


@contextmanager
def opened(path: Path) -> Iterator[Iterator[list[Any]]]:
    """The rows of a backup, one table after the other."""
    with _read(path) as lines:
        next(lines)
        yield (json.loads(line) for line in lines)


def _header(path: Path, line: bytes) -> Header:
    about = json.loads(line)
    if not isinstance(about, dict) or about.get("trimtab") != "store":
        raise BadInputError(f"{path} is not a backup of a store; name a file that trimtab store backup wrote")
    if about["format"] != BACKUP_FORMAT:
        raise BadInputError(
            f"{path} was written by a newer Trimtab (format {about['format']}); upgrade this one"
        )
    tables = about["tables"]
    return Header(
        str(about["schema"]),
        {name: tuple(table["columns"]) for name, table in tables.items()},
        {name: int(table["rows"]) for name, table in tables.items()},
    )


@contextmanager
def _read(path: Path) -> Iterator[Iterator[bytes]]:
    """Lines of a backup; raises BadInputError if it cannot be read."""
    try:
        with gzip.open(path, "rb") as file:
            yield iter(file)
    except (gzip.BadGzipFile, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise BadInputError(
            f"{path} is not a backup of a store, or only a part of one ({error}); take another backup"
        ) from None
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None


def _unwritable(path: Path, error: OSError) -> StorageError:
    reason = (error.strerror or str(error)).lower()
    return StorageError(f"{path} cannot be written: {reason}; nothing was kept")


def back_up(database: Database, path: Path, progress: Progress) -> int:
    """Write all rows of one moment to a new file, while others write; returns how many there were."""
    tables = metadata.sorted_tables
    with database.snapshot() as connection:
        rows = {table.name: _count(connection, table) for table in tables}
        columns = {table.name: tuple(column.name for column in table.columns) for table in tables}
        header = Header(REVISIONS[-1], columns, rows)
        done = 0
        with new_backup(path, header) as add:
            progress(0, header.total)
            for table in tables:
                shown = [cast(c, Text) if isinstance(c.type, JSON) else c for c in table.columns]
                query = select(*shown).order_by(*table.primary_key.columns)
                for row in connection.execution_options(yield_per=_ROWS_AT_ONCE).execute(query):
                    add(tuple(row))
                    done += 1
                    if done % _ROWS_AT_ONCE == 0:
                        progress(done, header.total)
    progress(done, header.total)
    return done


def restore(database: Database, path: Path, replace: bool, progress: Progress) -> int:
    """Replace a store's contents by a backup, completely or not at all; returns the number of rows.

    Refused for a store that holds rows, unless `replace` is set.
    """
    header = verified(path)
    if header.schema not in REVISIONS:
        raise BadInputError(
            f"{path} was written by a newer Trimtab (schema {header.schema}, not {REVISIONS[-1]}); "
            f"upgrade this one"
        )
    with database.writing() as connection:
        lock(connection, "schema")
        held = sum(_count(connection, table) for table in metadata.tables.values())
        if held and not replace:
            raise BadInputError(
                f"the store {database.name} holds {held} rows already; "
                f"restore into an empty one, or replace all of them with --replace"
            )
        # Dropping tables is the one way past the triggers that keep history append-only.
        metadata.drop_all(connection)
        connection.execute(text(f"DROP TABLE {VERSION_TABLE}"))
        if connection.dialect.name == "postgresql":
            connection.execute(text("DROP FUNCTION trimtab_refuse_change"))
        migrate(connection, header.schema)
        _fill(connection, path, header, progress)
        migrate(connection)
    return header.total


def _count(connection: Connection, table: Table) -> int:
    return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def _fill(connection: Connection, path: Path, header: Header, progress: Progress) -> None:
    done = 0
    with opened(path) as rows:
        for table, columns in header.columns.items():
            statement = _insert(connection, table, columns)
            left = header.rows[table]
            while left:
                batch = [tuple(row) for row in itertools.islice(rows, min(left, _ROWS_AT_ONCE))]
                connection.exec_driver_sql(statement, batch)
                left -= len(batch)
                done += len(batch)
                progress(done, header.total)
            _set_sequences(connection, table)


def _insert(connection: Connection, table: str, columns: Sequence[str]) -> str:
    known = {column["name"] for column in inspect(connection).get_columns(table)}
    if not set(columns) <= known:
        raise BadInputError(f"the backup's table {table} has a column that is not in its schema")
    quoted = connection.dialect.identifier_preparer.quote
    mark = "%s" if connection.dialect.name == "postgresql" else "?"
    names = ", ".join(quoted(name) for name in columns)
    marks = ", ".join([mark] * len(columns))
    return f"INSERT INTO {quoted(table)} ({names}) VALUES ({marks})"  # nosec B608 # names of the schema, checked


def _set_sequences(connection: Connection, table: str) -> None:
    """Let PostgreSQL number new rows after the highest there is; SQLite does so by itself."""
    if connection.dialect.name != "postgresql":
        return
    serial = connection.execute(
        text(
            "SELECT a.attname, pg_get_serial_sequence(:table, a.attname) FROM pg_attribute a "
            "WHERE a.attrelid = CAST(:table AS regclass) AND a.attnum > 0 AND NOT a.attisdropped "
            "AND pg_get_serial_sequence(:table, a.attname) IS NOT NULL"
        ),
        {"table": table},
    ).all()
    for column, sequence in serial:
        highest = f'(SELECT max("{column}") FROM "{table}")'  # nosec B608 # names of the schema
        connection.execute(
            text(f"SELECT setval(:name, {highest}) WHERE {highest} IS NOT NULL"), {"name": sequence}
        )
