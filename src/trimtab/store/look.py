"""What is where a store would be: looked at, never made, migrated or locked."""

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from trimtab.core import MissingDependencyError

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from trimtab.store.address import Address


@dataclass(frozen=True, slots=True)
class Look:
    """The store's name, its file where it is SQLite, its schema (None: there is none yet) and ours."""

    name: str
    path: Path | None
    revision: str | None
    newest: str


def look_at_store(url: str | None = None, patience: float = 2.0) -> Look:
    """As `open_store` would find it; waits at most about `patience` seconds for an answer.

    Raises a sentence where the database does not answer, is not a store, or one of a newer Trimtab.
    """
    # As for `open_store`: only looking pays for SQLAlchemy.
    from sqlalchemy.exc import DBAPIError

    from trimtab.store.address import resolve
    from trimtab.store.faults import told
    from trimtab.store.schema import REVISIONS, revision_of

    address = resolve(url)
    if address.path is not None and not address.path.exists():
        return Look(address.name, address.path, None, REVISIONS[-1])
    engine = _engine(address, patience)
    try:
        with engine.connect() as connection:
            revision = revision_of(connection, address.name)
    except DBAPIError as error:
        raise told(error, address) from None
    finally:
        engine.dispose()
    return Look(address.name, address.path, revision, REVISIONS[-1])


def _engine(address: "Address", patience: float) -> "Engine":
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    if address.path is not None:
        path = address.path
        # With no log beside it everything is in the file; a reader of the log would leave files of its own.
        mode = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
        file = f"file:{quote(str(path))}?{mode}"
        return create_engine(
            "sqlite://", creator=lambda: sqlite3.connect(file, patience, uri=True), poolclass=NullPool
        )
    try:
        seconds = str(max(2, round(patience)))  # the least that PostgreSQL's library takes
        return create_engine(address.url.update_query_dict({"connect_timeout": seconds}), poolclass=NullPool)
    except ImportError:
        raise MissingDependencyError(
            "a store in PostgreSQL needs the psycopg package; pip install 'trimtab[postgres]'"
        ) from None
