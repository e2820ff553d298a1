"""Events in order, append-only (triggers refuse changes), and the latest note that each process left."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Text, cast, delete, insert, select

from trimtab.core import BadInputError, to_plain
from trimtab.store import json_text
from trimtab.store.database import Database, lock
from trimtab.store.entities import Event, Page, WantedEvents
from trimtab.store.json_text import number, string
from trimtab.store.records import Listing, RowFilter, is_storable, require_storable, row_limit, seen_by
from trimtab.store.tables import DEFAULT_TENANT, events, notes

_LARGEST = 2**63 - 1


class Events:
    """An append-only record that readers can follow by id."""

    def __init__(self, database: Database) -> None:
        self._database = database
        c = events.c
        shown = [c.id, c.time, c.kind, c.subject, c.tenant, cast(c.detail, Text)]
        self._by_id = Listing(database, events, shown, ("id",))

    def append(
        self, kind: str, subject: str, detail: Mapping[str, Any], time: float, tenant: str = DEFAULT_TENANT
    ) -> int:
        """Add an event that happened to a tenant's at `time` (seconds since the epoch); returns its id."""
        for name, value in (("kind", kind), ("subject", subject), ("tenant", tenant)):
            require_storable(value, f"the event's {name}")
        if math.isnan(time):
            raise BadInputError("the event's time is NaN; give seconds since the epoch")
        row = {"kind": kind, "subject": subject, "detail": to_plain(detail), "time": time, "tenant": tenant}

        def effect(connection: Connection) -> int:
            # Ids are given before the commit: without a queue, a reader could see 7, go on from there, and
            # never see the 6 that commits later.
            lock(connection, "events")
            return int(self._database.add(events, row, returning="id"))

        return self._database.write(effect)

    def since(self, id: int, limit: int = 1000, wanted: WantedEvents | None = None) -> tuple[Event, ...]:
        """At most `limit` events that were added after event `id` (0 for all), oldest first."""
        return tuple(_event(row) for row in self._rows(wanted, limit, id, newest_first=False))

    def newest(self) -> int:
        """The id of the last event, 0 where there is none: where to begin to follow."""
        rows = self._by_id.rows(RowFilter(), 1)
        return int(rows[0][0]) if rows else 0

    def page(
        self, limit: int = 100, wanted: WantedEvents | None = None, after: str | None = None
    ) -> Page[Event]:
        """A page of at most `limit` events, newest first, from where the page before said `next`."""
        rows, following = self._page(wanted, limit, after)
        return Page(tuple(_event(row) for row in rows), following)

    def page_text(
        self,
        limit: int = 100,
        wanted: WantedEvents | None = None,
        after: str | None = None,
        hidden: str | None = None,
    ) -> Page[str]:
        """A page of events as JSON texts, without those of a `hidden` kind."""
        rows, following = self._page(wanted, limit, after)
        return Page(tuple(_text(row) for row in rows if row[2] != hidden), following)

    def _page(
        self, wanted: WantedEvents | None, limit: int, after: str | None
    ) -> tuple[list[tuple[Any, ...]], str | None]:
        limit = row_limit(limit)
        rows = self._rows(wanted, limit + 1, None if after is None else _number(after))
        return rows[:limit], str(rows[limit - 1][0]) if len(rows) > limit else None

    def _rows(
        self, wanted: WantedEvents | None, limit: int, after: int | None, newest_first: bool = True
    ) -> list[tuple[Any, ...]]:
        wanted = wanted or WantedEvents()
        if not (is_storable(wanted.kind) and is_storable(wanted.subject)):
            return []
        equal: dict[str, Sequence[str]] = {**seen_by(wanted.tenants)}
        unindexed = {}
        if wanted.subject is not None:
            equal["subject"] = (wanted.subject,)
            if wanted.kind is not None:
                unindexed["kind"] = wanted.kind
        elif wanted.kind is not None:
            equal["kind"] = (wanted.kind,)
        conditions = RowFilter(equal, unindexed, after=None if after is None else (after,))
        return self._by_id.rows(conditions, limit, newest_first)


def _number(after: str) -> int:
    if not (after.isascii() and after.isdecimal() and int(after) <= _LARGEST):
        raise BadInputError(
            f'no list goes on after "{after!s:.80}"; give what the page before has under `next`'
        )
    return int(after)


def _event(row: tuple[Any, ...]) -> Event:
    id, time, kind, subject, tenant, detail, *_ = row
    return Event(id, time, kind, subject, json_text.loads(detail), tenant)


def _text(row: tuple[Any, ...]) -> str:
    id, time, kind, subject, tenant, detail, *_ = row
    about = f'"kind": {string(kind)}, "subject": {string(subject)}, "tenant": {string(tenant)}'
    return f'{{"id": {id}, "time": {number(time)}, {about}, "detail": {detail}}}'


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
