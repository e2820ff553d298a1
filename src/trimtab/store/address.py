"""Which database a store lives in, and how to name it without giving its password away."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from trimtab.core import StorageError, home

_POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")
_RIGHT = "write sqlite:///path/to/file or postgresql://user@host/database"


@dataclass(frozen=True, slots=True)
class Address:
    """A database's URL as SQLAlchemy wants it; `path` is the file where it is SQLite."""

    url: URL
    path: Path | None

    @property
    def name(self) -> str:
        """What to call the database in a message: its path, or its URL without password and options."""
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
