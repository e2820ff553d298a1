"""Everything that happened, in order. Rows are added, never changed: the database itself refuses."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Text, cast, text

from trimtab.core import BadInputError, to_plain
from trimtab.store import json_text
from trimtab.store.database import Database
from trimtab.store.event import Event
from trimtab.store.json_text import number, string
from trimtab.store.listing import Asked, Listing, row_limit
from trimtab.store.page import Page
from trimtab.store.records import is_storable, require_storable, seen_by
from trimtab.store.tables import EVERYBODY, events
from trimtab.store.wanted import WantedEvents

# Any number that no other user of the same PostgreSQL database is likely to lock.
_LOCK = 0x7472696D746163
_LARGEST = 2**63 - 1


class Events:
    """An append-only record that readers can follow by id."""

    def __init__(self, database: Database) -> None:
        self._database = database
        c = events.c
        shown = [c.id, c.time, c.kind, c.subject, c.tenant, cast(c.detail, Text)]
        self._by_id = Listing(database, events, shown, ("id",))

    def append(
        self, kind: str, subject: str, detail: Mapping[str, Any], time: float, tenant: str = EVERYBODY
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
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            return int(self._database.add(events, row, returning="id"))

        return self._database.write(effect)

    def since(self, id: int, limit: int = 1000, wanted: WantedEvents | None = None) -> tuple[Event, ...]:
        """At most `limit` events that were added after event `id` (0 for all), oldest first."""
        return tuple(_event(row) for row in self._rows(wanted, limit, id, newest_first=False))

    def since_text(
        self, id: int, limit: int = 1000, wanted: WantedEvents | None = None
    ) -> tuple[tuple[int, str], ...]:
        """The same as pairs of an id and JSON."""
        rows = self._rows(wanted, limit, id, newest_first=False)
        return tuple((row[0], _text(row)) for row in rows)

    def newest(self) -> int:
        """The id of the last event, 0 where there is none: where to begin to follow."""
        rows = self._by_id.rows(Asked(), 1)
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
        """The same as JSON; those of a `hidden` kind are left out of it."""
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
        alike: dict[str, Sequence[str]] = {**seen_by(wanted.tenants)}
        beside = {}
        if wanted.subject is not None:
            alike["subject"] = (wanted.subject,)
            if wanted.kind is not None:
                beside["kind"] = wanted.kind
        elif wanted.kind is not None:
            alike["kind"] = (wanted.kind,)
        asked = Asked(alike, beside, after=None if after is None else (after,))
        return self._by_id.rows(asked, limit, newest_first)


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
