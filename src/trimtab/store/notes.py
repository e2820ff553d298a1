"""What whoever runs has last said about himself, by name: the scheduler's engine and fleet, say."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, insert, select, text

from trimtab.core import to_plain
from trimtab.store.database import Database
from trimtab.store.tables import notes

# Any number that no other user of the same PostgreSQL database is likely to lock.
_LOCK = 0x7472696D746165


@dataclass(frozen=True, slots=True)
class Note:
    """What was said, and when (seconds since the epoch)."""

    time: float
    body: Mapping[str, Any]


class Notes:
    """One note under each name; a new one takes the place of the old."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, name: str, body: Mapping[str, Any], time: float) -> None:
        """Say something."""
        with self._database.writing() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            connection.execute(delete(notes).where(notes.c.name == name))
            connection.execute(insert(notes).values(name=name, time=time, body=to_plain(body)))

    def get(self, name: str) -> Note | None:
        """What was said last; None where nothing was."""
        with self._database.reading() as connection:
            row = connection.execute(select(notes).where(notes.c.name == name)).one_or_none()
        return None if row is None else Note(row.time, row.body)
