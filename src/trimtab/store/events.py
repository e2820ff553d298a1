"""Events in order, append-only (triggers refuse changes), and the latest note of each process."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Text, cast, delete, insert, select

from trimtab.core import DEFAULT_TENANT, BadInputError, to_plain
from trimtab.store.database import (
    Database,
    decode_json,
    is_storable,
    json_number,
    json_string,
    lock,
    require_storable,
)
from trimtab.store.entities import Event, EventFilter, Page
from trimtab.store.records import Listing, Row, RowFilter, row_filter, row_limit, unknown_place
from trimtab.store.tables import events, notes

_LARGEST = 2**63 - 1


class EventLog:
    """An append-only record that readers can follow by id."""

    def __init__(self, database: Database) -> None:
        self._database = database
        c = events.c
        shown = [c.id, c.time, c.kind, c.subject, c.tenant, cast(c.detail, Text)]
        self._by_id = Listing(database, events, shown, ("id",))

    def append(
        self, kind: str, subject: str, detail: Mapping[str, Any], time: float, tenant: str = DEFAULT_TENANT
    ) -> int:
        """Add an event of a tenant at `time` (seconds since the epoch); returns its id."""
        for name, value in (("kind", kind), ("subject", subject), ("tenant", tenant)):
            require_storable(value, f"the event's {name}")
        if math.isnan(time):
            raise BadInputError("the event's time is NaN; give seconds since the epoch")
        row = {"kind": kind, "subject": subject, "detail": to_plain(detail), "time": time, "tenant": tenant}

        def effect(connection: Connection) -> int:
            # Ids are given before the commit: without a lock, a reader could see 7, continue from there, and
            # never see the 6 that commits later.
            lock(connection, "events")
            return int(self._database.add(events, row, returning="id"))

        return self._database.write(effect)

    def since(self, id: int, limit: int = 1000, criteria: EventFilter | None = None) -> tuple[Event, ...]:
        """At most `limit` events that were added after event `id` (0 for all), oldest first."""
        return tuple(_event(row) for row in self._rows(criteria, limit, id, newest_first=False))

    def newest(self) -> int:
        """Id of the last event, 0 if there is none: where a follower begins."""
        rows = self._by_id.rows(RowFilter(), 1)
        return int(rows[0][0]) if rows else 0

    def page(
        self, limit: int = 100, criteria: EventFilter | None = None, after: str | None = None
    ) -> Page[Event]:
        """At most `limit` events, newest first; `after` is the `next` of the page before."""
        rows, following = self._page(criteria, limit, after)
        return Page(tuple(_event(row) for row in rows), following)

    def page_text(
        self,
        limit: int = 100,
        criteria: EventFilter | None = None,
        after: str | None = None,
        hidden: str | None = None,
    ) -> Page[str]:
        """A page of events as JSON texts, without those of a `hidden` kind."""
        rows, following = self._page(criteria, limit, after)
        return Page(tuple(_text(row) for row in rows if row[2] != hidden), following)

    def _page(
        self, criteria: EventFilter | None, limit: int, after: str | None
    ) -> tuple[list[Row], str | None]:
        limit, place = row_limit(limit), None
        if after is not None:
            if not (after.isascii() and after.isdecimal() and int(after) <= _LARGEST):
                raise unknown_place(after)
            place = int(after)
        rows = self._rows(criteria, limit + 1, place)
        return rows[:limit], str(rows[limit - 1][0]) if len(rows) > limit else None

    def _rows(
        self, criteria: EventFilter | None, limit: int, after: int | None, newest_first: bool = True
    ) -> list[Row]:
        criteria = criteria or EventFilter()
        if not (is_storable(criteria.kind) and is_storable(criteria.subject)):
            return []
        conditions = row_filter(criteria.tenants, criteria.kind, criteria.subject)
        if after is not None:
            conditions = replace(conditions, after=(after,))
        return self._by_id.rows(conditions, limit, newest_first)


def _event(row: Row) -> Event:
    id, time, kind, subject, tenant, detail, *_ = row
    return Event(id, time, kind, subject, decode_json(detail), tenant)


def _text(row: Row) -> str:
    id, time, kind, subject, tenant, detail, *_ = row
    about = f'"kind": {json_string(kind)}, "subject": {json_string(subject)}, "tenant": {json_string(tenant)}'
    return f'{{"id": {id}, "time": {json_number(time)}, {about}, "detail": {detail}}}'


@dataclass(frozen=True, slots=True)
class Note:
    """A note and the time it was written (seconds since the epoch)."""

    time: float
    body: Mapping[str, Any]


class Notes:
    """Latest state that each running process reported, such as the scheduler's engine and fleet."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, name: str, body: Mapping[str, Any], time: float) -> None:
        """Replace the note under `name`."""
        with self._database.writing() as connection:
            lock(connection, "notes")
            connection.execute(delete(notes).where(notes.c.name == name))
            connection.execute(insert(notes).values(name=name, time=time, body=to_plain(body)))

    def get(self, name: str) -> Note | None:
        """The latest note under a name, None if there is none."""
        with self._database.reading() as connection:
            row = connection.execute(select(notes).where(notes.c.name == name)).one_or_none()
        return None if row is None else Note(row.time, row.body)
