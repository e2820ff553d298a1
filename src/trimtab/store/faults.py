"""What a database refuses, said in one sentence."""

import shutil
import sqlite3
from pathlib import Path

from sqlalchemy.exc import DBAPIError, IntegrityError

from trimtab.core import StorageError
from trimtab.store.address import Address
from trimtab.store.full import FullError

BUSY_TIMEOUT = 30.0
"""Seconds a writer waits for other writers before it gives up."""

_ELSEWHERE = "point TRIMTAB_HOME or TRIMTAB_STORE at a place that can be written"

_FULL = "the disk that holds the store {name} is full; free some space, nothing was kept"
_SQLITE = {
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_READONLY: f"the store {{name}} cannot be written: it is read-only; {_ELSEWHERE}",
    sqlite3.SQLITE_CANTOPEN: f"the store {{name}} cannot be opened for reading and writing; {_ELSEWHERE}",
    sqlite3.SQLITE_PERM: f"the store {{name}} cannot be opened for reading and writing; {_ELSEWHERE}",
    sqlite3.SQLITE_NOTADB: "the store {name} is not a SQLite database; move the file away or name another",
    sqlite3.SQLITE_CORRUPT: "the store {name} is damaged; move the file away and restore it from a backup",
    sqlite3.SQLITE_BUSY: f"the store {{name}} was kept busy by another process for {BUSY_TIMEOUT:.0f} s; "
    "try again when that one is done",
}
_POSTGRESQL = {
    "25006": "the store {name} cannot be written: PostgreSQL is in read-only mode; name its primary server",
    "42501": "the store {name} may not be used by this user; let it own the database or its tables",
    "53100": _FULL,
}
_LEAST_FREE = 1 << 20


class ConflictError(StorageError):
    """A row breaks a constraint: its id is taken, or what it points at is missing."""


def told(error: DBAPIError, address: Address) -> StorageError:
    """The error a user should read instead of the driver's."""
    if isinstance(error, IntegrityError):
        return ConflictError(f"the store {address.name} refused a row: {_reason(error, address)}")
    sentence = _sqlite(error.orig, address.path) if address.path else _postgresql(error)
    kind = FullError if sentence == _FULL else StorageError
    return kind(sentence.format(name=address.name, reason=_reason(error, address)))


def told_of_folder(error: OSError, address: Address) -> StorageError:
    """The same for a folder that cannot be made."""
    reason = (error.strerror or str(error)).lower()
    return StorageError(f"the folder of the store {address.name} cannot be made: {reason}; {_ELSEWHERE}")


def _sqlite(error: BaseException | None, path: Path) -> str:
    # The low byte is the primary code; the rest tells variants of it apart.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    # On a full disk, SQLite's shared-memory file fails to grow with an I/O error of its own.
    if code == sqlite3.SQLITE_IOERR and _is_full(path.parent):
        code = sqlite3.SQLITE_FULL
    return _SQLITE.get(code, "the store {name} failed: {reason}; check the disk and the file")


def _is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < _LEAST_FREE
    except OSError:
        return False


def _postgresql(error: DBAPIError) -> str:
    state = getattr(error.orig, "sqlstate", None)
    if state in _POSTGRESQL:
        return _POSTGRESQL[state]
    # A connection that was never made or has been cut has no state, only a reason.
    if state is None or error.connection_invalidated:
        return (
            "the store {name} cannot be reached ({reason}); check that the server runs and the URL is right"
        )
    return "the store {name} failed: {reason}; check the server's log"


def _reason(error: DBAPIError, address: Address) -> str:
    lines = str(error.orig).strip().splitlines() or [type(error.orig).__name__]
    return address.without_secrets(" ".join(lines[0].split()).rstrip(".;:"))
