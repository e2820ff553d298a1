"""Backup of a whole store into a file and back, between SQLite and PostgreSQL alike."""

import gzip
import hashlib
import itertools
import json
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import JSON, Connection, Table, Text, cast, func, inspect, select, text

from trimtab.core import BadInputError, StorageError
from trimtab.store.database import Database, lock
from trimtab.store.schema import REVISIONS, migrate
from trimtab.store.tables import VERSION_TABLE, metadata

FORMAT = 1
Tell = Callable[[int, int], object]
"""Called with the number of rows done and the number of all rows."""


@dataclass(frozen=True, slots=True)
class Header:
    """The schema that the rows are of, and of each table its columns and how many rows it has."""

    schema: str
    columns: Mapping[str, Sequence[str]]
    rows: Mapping[str, int]

    @property
    def total(self) -> int:
        """How many rows there are in all."""
        return sum(self.rows.values())


@contextmanager
def new_backup(path: Path, header: Header) -> Iterator[Callable[[Sequence[Any]], None]]:
    """A function that adds a row to the file, which is there after the block, whole or not at all."""
    if path.exists():
        raise BadInputError(f"{path} is there already; name a file that is not")
    try:
        handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise _unwritable(path, error) from None
    try:
        with os.fdopen(handle, "wb") as file:
            try:
                with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=1, mtime=0) as packed:
                    yield from _lines(packed, header)
                file.flush()
                os.fsync(file.fileno())
                os.replace(aside, path)
            except OSError as error:
                raise _unwritable(path, error) from None
    finally:
        with suppress(FileNotFoundError):
            os.unlink(aside)


def _lines(packed: gzip.GzipFile, header: Header) -> Iterator[Callable[[Sequence[Any]], None]]:
    digest = hashlib.sha256()

    def line(value: Any) -> None:
        data = json.dumps(value, separators=(",", ":")).encode() + b"\n"
        digest.update(data)
        packed.write(data)

    tables = {
        name: {"columns": list(columns), "rows": header.rows[name]}
        for name, columns in header.columns.items()
    }
    line({"trimtab": "store", "format": FORMAT, "schema": header.schema, "tables": tables})
    yield line
    line({"sha256": digest.hexdigest()})


def verified(path: Path) -> Header:
    """The header of a backup that was read to its end and is whole."""
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
    """The rows of a backup, of one table after the other."""
    with _read(path) as lines:
        next(lines)
        yield (json.loads(line) for line in lines)


def _header(path: Path, line: bytes) -> Header:
    about = json.loads(line)
    if not isinstance(about, dict) or about.get("trimtab") != "store":
        raise BadInputError(f"{path} is not a backup of a store; name a file that trimtab store backup wrote")
    if about["format"] != FORMAT:
        raise BadInputError(f"{path} is of a newer Trimtab (format {about['format']}); upgrade this one")
    tables = about["tables"]
    return Header(
        str(about["schema"]),
        {name: tuple(table["columns"]) for name, table in tables.items()},
        {name: int(table["rows"]) for name, table in tables.items()},
    )


@contextmanager
def _read(path: Path) -> Iterator[Iterator[bytes]]:
    """Its lines; what cannot be read is one sentence."""
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


_AT_ONCE = 1000


def back_up(database: Database, path: Path, tell: Tell) -> int:
    """Write all rows as they are at one moment, while others write; how many there were."""
    tables = metadata.sorted_tables
    with database.snapshot() as connection:
        rows = {table.name: _count(connection, table.name) for table in tables}
        columns = {table.name: tuple(column.name for column in table.columns) for table in tables}
        header = Header(REVISIONS[-1], columns, rows)
        done = 0
        with new_backup(path, header) as add:
            tell(0, header.total)
            for table in tables:
                for row in _rows(connection, table):
                    add(row)
                    done += 1
                    if done % _AT_ONCE == 0:
                        tell(done, header.total)
    tell(done, header.total)
    return done


def restore(database: Database, path: Path, replace: bool, tell: Tell) -> int:
    """Put a backup in the place of what a store holds: all of it, or none; how many rows there are now.

    Refused where the store holds something, unless it is to be replaced.
    """
    header = verified(path)
    if header.schema not in REVISIONS:
        raise BadInputError(
            f"{path} is of a newer Trimtab (schema {header.schema}, not {REVISIONS[-1]}); upgrade this one"
        )
    with database.writing() as connection:
        lock(connection, "schema")
        there = {table: _count(connection, table) for table in metadata.tables}
        if any(there.values()) and not replace:
            raise BadInputError(
                f"the store {database.name} holds {sum(there.values())} rows already; "
                f"restore into an empty one, or replace all of them with --replace"
            )
        _drop(connection)
        migrate(connection, header.schema)
        _fill(connection, path, header, tell)
        migrate(connection)
    return header.total


def _count(connection: Connection, table: str) -> int:
    return int(connection.execute(select(func.count()).select_from(metadata.tables[table])).scalar_one())


def _rows(connection: Connection, table: Table) -> Iterator[Sequence[Any]]:
    shown = [cast(column, Text) if isinstance(column.type, JSON) else column for column in table.columns]
    query = select(*shown).order_by(*table.primary_key.columns)
    for row in connection.execution_options(yield_per=_AT_ONCE).execute(query):
        yield tuple(row)


def _drop(connection: Connection) -> None:
    # Dropping tables is the one way past the triggers that keep history as it was.
    metadata.drop_all(connection)
    connection.execute(text(f"DROP TABLE {VERSION_TABLE}"))
    if connection.dialect.name == "postgresql":
        connection.execute(text("DROP FUNCTION trimtab_refuse_change"))


def _fill(connection: Connection, path: Path, header: Header, tell: Tell) -> None:
    done = 0
    with opened(path) as rows:
        for table, columns in header.columns.items():
            statement = _insert(connection, table, columns)
            left = header.rows[table]
            while left:
                some = [tuple(row) for row in itertools.islice(rows, min(left, _AT_ONCE))]
                connection.exec_driver_sql(statement, some)
                left -= len(some)
                done += len(some)
                tell(done, header.total)
            _go_on_counting(connection, table)


def _insert(connection: Connection, table: str, columns: Sequence[str]) -> str:
    there = {column["name"] for column in inspect(connection).get_columns(table)}
    if not set(columns) <= there:
        raise BadInputError(f"the backup's table {table} has a column that is not of its schema")
    quote = connection.dialect.identifier_preparer.quote
    mark = "%s" if connection.dialect.name == "postgresql" else "?"
    names = ", ".join(quote(name) for name in columns)
    marks = ", ".join([mark] * len(columns))
    return f"INSERT INTO {quote(table)} ({names}) VALUES ({marks})"  # nosec B608 # names of the schema, checked


def _go_on_counting(connection: Connection, table: str) -> None:
    """Let PostgreSQL number new rows after the highest there is; SQLite does so by itself."""
    if connection.dialect.name != "postgresql":
        return
    found = connection.execute(
        text(
            "SELECT a.attname, pg_get_serial_sequence(:table, a.attname) FROM pg_attribute a "
            "WHERE a.attrelid = CAST(:table AS regclass) AND a.attnum > 0 AND NOT a.attisdropped "
            "AND pg_get_serial_sequence(:table, a.attname) IS NOT NULL"
        ),
        {"table": table},
    ).all()
    for column, sequence in found:
        highest = f'(SELECT max("{column}") FROM "{table}")'  # nosec B608 # names of the schema
        connection.execute(
            text(f"SELECT setval(:name, {highest}) WHERE {highest} IS NOT NULL"), {"name": sequence}
        )
