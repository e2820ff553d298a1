"""The file of a backup: compressed lines of JSON that fit SQLite and PostgreSQL alike.

The first line says what follows: `{"trimtab": "store", "format": 1, "schema": …, "tables": {name: {"columns":
[…], "rows": n}}}`. Then come each table's rows, one list of values to a line, columns of JSON as text; and at
the end `{"sha256": …}` of all bytes before it.
"""

import gzip
import hashlib
import json
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.core import BadInputError, StorageError

FORMAT = 1
Tell = Callable[[int, int], object]
"""Is told how many rows are done, of how many."""


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
