"""Which database a store lives in, how to name it without its password, and what its failures mean."""

import os
import re
import shutil
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError

from trimtab.core import StorageError, home
from trimtab.store.entities import FullError

_POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")
_RIGHT = "write sqlite:///path/to/file or postgresql://user@host/database"


@dataclass(frozen=True, slots=True)
class Address:
    """A database's URL as SQLAlchemy wants it; `path` is the file where it is SQLite."""

    url: URL
    path: Path | None

    @property
    def name(self) -> str:
        """Name of the database in messages: its path, or its URL without password and options."""
        if self.path is not None:
            return str(self.path)
        return URL.create(
            "postgresql", self.url.username, None, self.url.host, self.url.port, self.url.database
        ).render_as_string()

    def without_secrets(self, text: str) -> str:
        """`text` with every password of this address struck out."""
        hidden = [self.url.password, *_as_tuple(self.url.query.get("password"))]
        for secret in filter(None, hidden):
            text = text.replace(str(secret), "***")
        return text


def resolve(url: str | None) -> Address:
    """The address that `url`, `$TRIMTAB_STORE` or the default file stands for."""
    url = url or os.environ.get("TRIMTAB_STORE")
    if not url:
        return _file(home() / "trimtab.sqlite")
    # An unreadable URL is named by its scheme alone: a password may stand anywhere after it.
    scheme = re.match(r"[\w+.-]+(?=://)", url)
    if scheme is None:
        raise StorageError(f"the store's URL has no scheme; {_RIGHT}")
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise StorageError(f"the store's URL {scheme[0]}://… cannot be read; {_RIGHT}") from None
    if parsed.drivername == "sqlite":
        return _sqlite(parsed)
    if parsed.drivername in _POSTGRESQL:
        return _postgresql(parsed)
    raise StorageError(f"a store cannot be kept at {scheme[0]}://…; {_RIGHT}")


def _sqlite(url: URL) -> Address:
    if url.host or url.query or url.database in (None, "", ":memory:"):
        raise StorageError(
            "the store's sqlite URL should name a file and nothing else: three slashes and a path, "
            "as in sqlite:///trimtab.sqlite or sqlite:////var/lib/trimtab.sqlite"
        )
    return _file(Path(str(url.database)))


def _file(path: Path) -> Address:
    # Made absolute now, so that a later change of directory does not move the store.
    path = path.absolute()
    return Address(URL.create("sqlite", database=str(path)), path)


def _postgresql(url: URL) -> Address:
    if "@" in f"{url.host}{url.database}":
        raise StorageError(
            "the store's postgresql URL has more than one @; write the ones in its user or password as %40"
        )
    return Address(url.set(drivername="postgresql+psycopg"), None)


def _as_tuple(value: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else (value,) if value else ()


BUSY_TIMEOUT = 30.0
"""Seconds a writer waits for other writers before it gives up."""

_ELSEWHERE = "point TRIMTAB_HOME or TRIMTAB_STORE at a place that can be written"

_FULL = "the disk that holds the store {name} is full; free some space, nothing was kept"
_SQLITE_SENTENCES = {
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_READONLY: f"the store {{name}} cannot be written: it is read-only; {_ELSEWHERE}",
    sqlite3.SQLITE_CANTOPEN: f"the store {{name}} cannot be opened for reading and writing; {_ELSEWHERE}",
    sqlite3.SQLITE_PERM: f"the store {{name}} cannot be opened for reading and writing; {_ELSEWHERE}",
    sqlite3.SQLITE_NOTADB: "the store {name} is not a SQLite database; move the file away or name another",
    sqlite3.SQLITE_CORRUPT: "the store {name} is damaged; move the file away and restore it from a backup",
    sqlite3.SQLITE_BUSY: f"the store {{name}} was kept busy by another process for {BUSY_TIMEOUT:.0f} s; "
    "try again when that one is done",
}
_POSTGRESQL_SENTENCES = {
    "25006": "the store {name} cannot be written: PostgreSQL is in read-only mode; name its primary server",
    "42501": "the store {name} may not be used by this user; let it own the database or its tables",
    "53100": _FULL,
}
_LEAST_FREE = 1 << 20


class ConflictError(StorageError):
    """A row breaks a constraint: its id is taken, or what it points at is missing."""


def storage_error(error: DBAPIError, address: Address) -> StorageError:
    """The driver's error as one sentence for the user."""
    if isinstance(error, IntegrityError):
        return ConflictError(f"the store {address.name} refused a row: {_reason(error, address)}")
    sentence = _sqlite_sentence(error.orig, address.path) if address.path else _postgresql_sentence(error)
    kind = FullError if sentence == _FULL else StorageError
    return kind(sentence.format(name=address.name, reason=_reason(error, address)))


def folder_error(error: OSError, address: Address) -> StorageError:
    """The error for a folder of a store that cannot be created."""
    reason = (error.strerror or str(error)).lower()
    return StorageError(f"the folder of the store {address.name} cannot be made: {reason}; {_ELSEWHERE}")


def _sqlite_sentence(error: BaseException | None, path: Path) -> str:
    # The low byte is the primary code; the rest tells variants of it apart.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    # On a full disk, SQLite's shared-memory file fails to grow with an I/O error of its own.
    if code == sqlite3.SQLITE_IOERR and _is_full(path.parent):
        code = sqlite3.SQLITE_FULL
    return _SQLITE_SENTENCES.get(code, "the store {name} failed: {reason}; check the disk and the file")


def _is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < _LEAST_FREE
    except OSError:
        return False


def _postgresql_sentence(error: DBAPIError) -> str:
    state = getattr(error.orig, "sqlstate", None)
    if state in _POSTGRESQL_SENTENCES:
        return _POSTGRESQL_SENTENCES[state]
    # A connection that was never made or has been cut has no state, only a reason.
    if state is None or error.connection_invalidated:
        return (
            "the store {name} cannot be reached ({reason}); check that the server runs and the URL is right"
        )
    return "the store {name} failed: {reason}; check the server's log"


def _reason(error: DBAPIError, address: Address) -> str:
    lines = str(error.orig).strip().splitlines() or [type(error.orig).__name__]
    return address.without_secrets(" ".join(lines[0].split()).rstrip(".;:"))
