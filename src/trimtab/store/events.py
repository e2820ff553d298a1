"""Everything that happened, in order. Rows are added, never changed: the database itself refuses."""

import math
from collections.abc import Mapping
from typing import Any

from sqlalchemy import insert, select, text

from trimtab.core import BadInputError, to_plain
from trimtab.store.database import Database
from trimtab.store.event import Event
from trimtab.store.records import require_storable, row_limit
from trimtab.store.tables import events

# Any number that no other user of the same PostgreSQL database is likely to lock.
_LOCK = 0x7472696D746163


class Events:
    """An append-only record that readers can follow by id."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def append(self, kind: str, subject: str, detail: Mapping[str, Any], time: float) -> int:
        """Add an event that happened at `time` (seconds since the epoch); returns its id."""
        require_storable(kind, "the event's kind")
        require_storable(subject, "the event's subject")
        if math.isnan(time):
            raise BadInputError("the event's time is NaN; give seconds since the epoch")
        row = {"kind": kind, "subject": subject, "detail": to_plain(detail), "time": time}
        with self._database.writing() as connection:
            # Ids are given before the commit: without a queue, a reader could see 7, go on from there, and
            # never see the 6 that commits later.
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            return int(connection.execute(insert(events).values(row).returning(events.c.id)).scalar_one())

    def since(self, id: int, limit: int = 1000) -> tuple[Event, ...]:
        """At most `limit` events that were added after event `id` (0 for all), oldest first."""
        query = select(events).where(events.c.id > id).order_by(events.c.id).limit(row_limit(limit))
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
        return tuple(Event(row.id, row.time, row.kind, row.subject, row.detail) for row in rows)
