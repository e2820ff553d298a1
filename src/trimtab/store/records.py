"""Rows kept under an id: written once, found by a unique prefix of the id, listed in pages."""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sqlalchemy import (
    BigInteger,
    BindParameter,
    Column,
    ColumnElement,
    Select,
    Table,
    Text,
    bindparam,
    cast,
    select,
    tuple_,
    union_all,
)

from trimtab.core import BadInputError, NotFoundError, StorageError, from_plain, to_plain
from trimtab.store import json_text
from trimtab.store.address import ConflictError
from trimtab.store.database import Database
from trimtab.store.entities import Page
from trimtab.store.tables import DEFAULT_TENANT

_MOST_ROWS = 2**31 - 1
_MOST_RANGES = 100
_WHOLE = BigInteger()


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Conditions on rows.

    `equal` maps an indexed column to its allowed values, `unindexed` a column that no index serves to its
    value; `since` and `until` bound the first column of the order, `after` is the position of the last row
    seen.
    """

    equal: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    unindexed: Mapping[str, Any] = field(default_factory=dict)
    since: Any = None
    until: Any = None
    after: tuple[Any, ...] | None = None

    @property
    def shape(self) -> tuple[Any, ...]:
        """The part that determines the statement, without the values bound to it."""
        bounds = (self.since is not None, self.until is not None, self.after is not None)
        return (*((name, len(values)) for name, values in self.equal.items()), *self.unindexed, *bounds)


class Listing:
    """The rows of a table, ordered by some of its columns, with others that are shown."""

    def __init__(
        self, database: Database, table: Table, shown: Sequence[ColumnElement[Any]], order: Sequence[str]
    ) -> None:
        self._database = database
        self._table = table
        self._shown = shown
        self._order: list[Column[Any]] = [table.c[name] for name in order]

    def rows(self, conditions: RowFilter, limit: int, newest_first: bool = True) -> list[tuple[Any, ...]]:
        """At most `limit` rows."""
        ranges = list(itertools.product(*conditions.equal.values()))
        if len(ranges) > _MOST_RANGES:
            raise BadInputError(f"{len(ranges)} tenants times states are too many at once; ask for fewer")
        if not ranges:
            return []
        values: dict[str, Any] = {
            "limit": row_limit(limit),
            "since": conditions.since,
            "until": conditions.until,
        }
        values |= {f"{name}_0": value for name, value in conditions.unindexed.items()}
        values |= {f"after_{number}": value for number, value in enumerate(conditions.after or ())}
        for number, chosen in enumerate(ranges):
            values |= {
                f"{name}_{number}": value for name, value in zip(conditions.equal, chosen, strict=True)
            }
        return self._database.fetch(
            (self, newest_first, conditions.shape),
            lambda: self._select(conditions, len(ranges), newest_first),
            values,
        )

    def _select(self, conditions: RowFilter, ranges: int, newest_first: bool) -> Select[Any]:
        ordered = [column.desc() if newest_first else column.asc() for column in self._order]
        # The order's columns come along, so that ranges can be merged by them.
        shown = [*self._shown, *(column.label(f"order_{i}") for i, column in enumerate(self._order))]
        parts = [
            select(*shown)
            .where(*self._conditions(conditions, number, newest_first))
            .order_by(*ordered)
            .limit(bindparam("limit", type_=_WHOLE))
            for number in range(ranges)
        ]
        if ranges == 1:
            return parts[0]
        merged = union_all(*(select(part.subquery()) for part in parts)).subquery()
        by = [merged.c[f"order_{i}"] for i in range(len(self._order))]
        return (
            select(merged)
            .order_by(*(column.desc() if newest_first else column.asc() for column in by))
            .limit(bindparam("limit", type_=_WHOLE))
        )

    def _conditions(
        self, conditions: RowFilter, number: int, newest_first: bool
    ) -> list[ColumnElement[bool]]:
        columns, lead = self._table.c, self._order[0]

        def value(name: str, number: int) -> BindParameter[Any]:
            return bindparam(f"{name}_{number}", type_=columns[name].type)

        found = [columns[name] == value(name, number) for name in conditions.equal]
        # As an expression, the column does not tempt SQLite to another index than that of the columns above.
        found += [columns[name] + "" == value(name, 0) for name in conditions.unindexed]
        if conditions.since is not None:
            found.append(lead >= bindparam("since", type_=lead.type))
        if conditions.until is not None:
            found.append(lead < bindparam("until", type_=lead.type))
        if conditions.after is not None:
            place = tuple_(*self._order)
            last = tuple_(*(bindparam(f"after_{i}", type_=c.type) for i, c in enumerate(self._order)))
            found.append(place < last if newest_first else place > last)
        return found


def row_limit(limit: int) -> int:
    """`limit` as a database takes it."""
    if limit < 1:
        raise BadInputError(f"a limit of {limit} shows nothing; give 1 or more")
    return min(limit, _MOST_ROWS)


T = TypeVar("T")

_SHOWN = 5
_LAST_CHARACTER = "\U0010ffff"
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


class Records(Generic[T]):
    """The rows of one table as instances of `kind`, called `noun` in messages."""

    def __init__(self, database: Database, table: Table, kind: type[T], noun: str) -> None:
        self._database = database
        self._table = table
        self._kind = kind
        self._noun = noun
        shown = self._shown(table)
        self._by_time = Listing(database, table, shown, ("created", "sequence"))
        self._by_id = Listing(database, table, shown, ("id",))

    def add(self, id: str, record: T, columns: dict[str, Any], tenant: str = DEFAULT_TENANT) -> None:
        """Keep `record` under `id`, with the `columns` it is searched by.

        The same record again is no error, so a write whose answer was lost can be repeated.
        """
        for name, value in {"id": id, "tenant": tenant, **columns}.items():
            require_storable(value, f"the {self._noun}'s {name}")
        if not id:
            raise BadInputError(f"the {self._noun} has an empty id; give it one")
        body = to_plain(record)
        try:
            row = {"id": id, "tenant": tenant, "body": body, **columns}
            self._database.write(lambda connection: self._database.add(self._table, row))
        except ConflictError:
            kept = self._exactly(id, (tenant,))
            if kept is None or to_plain(self._record(kept)) != body:
                raise BadInputError(
                    f"{self._noun} {id} is already kept with other contents, and is written once; "
                    f"give the new one an id of its own"
                ) from None

    def get(self, id: str, tenants: Sequence[str] | None = None) -> T:
        """The record whose id is, or alone starts with, `id`, of those that `tenants` may see."""
        return self._record(self._one(id, tenants))

    def whole_id(self, id: str, tenants: Sequence[str] | None = None) -> str:
        """The id that is, or alone starts with, `id`, of those that `tenants` may see."""
        return str(self._one(id, tenants)[0])

    def text(self, id: str, tenants: Sequence[str] | None = None) -> str:
        """The record as JSON with its tenant, as it is kept."""
        return self._text(self._one(id, tenants))

    def records(self, conditions: RowFilter, limit: int, after: str | None = None) -> Page[T]:
        """At most `limit` records, by time and then by writing, newest first; `after` the page before."""
        rows, following = self._page(conditions, limit, after)
        return Page(tuple(self._record(row) for row in rows), following)

    def texts(self, conditions: RowFilter, limit: int, after: str | None = None) -> Page[str]:
        """A page as JSON texts, undecoded, at a twentieth of the cost of `records`."""
        rows, following = self._page(conditions, limit, after)
        return Page(tuple(self._text(row) for row in rows), following)

    def missing(self, id: str, tenants: Sequence[str] | None = None) -> NotFoundError:
        """The error that says `id` names nothing, and what there is instead."""
        rows = self._by_time.rows(RowFilter(seen_by(tenants)), _SHOWN)
        there = f"the newest are {_names(rows)}" if rows else f"there are no {self._noun}s yet"
        # Where the store is concerns only who sees all of it.
        where = f" in {self._database.name}" if tenants is None else ""
        return NotFoundError(f'there is no {self._noun} "{id!s:.80}"{where}; {there}')

    def _one(self, id: str, tenants: Sequence[str] | None) -> tuple[Any, ...]:
        if not id or not is_storable(id):
            raise self.missing(id, tenants)
        exact = self._exactly(id, tenants)
        if exact is not None:
            return exact
        span = RowFilter(seen_by(tenants), since=id, until=id + _LAST_CHARACTER)
        found = self._by_id.rows(span, _SHOWN + 1, newest_first=False)
        if len(found) == 1:
            return found[0]
        if found:
            raise NotFoundError(
                f'"{id}" starts the ids of several {self._noun}s: {_names(found)}; give more of the one meant'
            )
        raise self.missing(id, tenants)

    def _exactly(self, id: str, tenants: Sequence[str] | None) -> tuple[Any, ...] | None:
        found = self._database.fetch((self, "exactly"), self._select_exactly, {"id": id})
        return found[0] if found and (tenants is None or found[0][1] in tenants) else None

    def _select_exactly(self) -> Select[Any]:
        column = self._table.c.id
        return select(*self._shown(self._table)).where(column == bindparam("id", type_=column.type))

    def _page(
        self, conditions: RowFilter, limit: int, after: str | None
    ) -> tuple[list[tuple[Any, ...]], str | None]:
        limit = row_limit(limit)
        if not all(is_storable(value) for value in _values(conditions)):
            return [], None
        if after is not None:
            conditions = RowFilter(
                conditions.equal,
                conditions.unindexed,
                conditions.since,
                conditions.until,
                self._place(after, conditions),
            )
        rows = self._by_time.rows(conditions, limit + 1)
        return rows[:limit], rows[limit - 1][0] if len(rows) > limit else None

    def _place(self, after: str, conditions: RowFilter) -> tuple[Any, ...]:
        """Where in the order the record `after` is. An id tells who reads it nothing of other tenants."""
        row = self._exactly(after, conditions.equal.get("tenant")) if after and is_storable(after) else None
        if row is None:
            raise BadInputError(
                f'no list goes on after "{after!s:.80}"; give what the page before has under `next`'
            )
        return (row[2], row[3])

    @staticmethod
    def _shown(table: Table) -> Sequence[ColumnElement[Any]]:
        """The columns of a row; those of every table first: id, tenant, created, sequence."""
        c = table.c
        return [c.id, c.tenant, c.created, c.sequence, cast(c.body, Text)]

    def _record(self, row: tuple[Any, ...]) -> T:
        where = f"{self._noun} {row[0]} in {self._database.name}"
        return from_kept(self._kind, json_text.loads(row[4]), where)

    def _text(self, row: tuple[Any, ...]) -> str:
        return f'{row[4][:-1]}, "tenant": {json_text.string(row[1])}}}'


def seen_by(tenants: Sequence[str] | None) -> Mapping[str, Sequence[str]]:
    """The columns' values of what `tenants` may see."""
    return {} if tenants is None else {"tenant": tuple(dict.fromkeys(filter(is_storable, tenants)))}


def from_kept(kind: type[T], body: Any, where: str) -> T:
    """An instance of `kind` from the JSON of a row, which a message names by `where`."""
    try:
        return from_plain(kind, body)
    except BadInputError as error:
        raise StorageError(
            f"{where} was written by another version of Trimtab ({error}); use that version to read it"
        ) from None


def is_storable(value: Any) -> bool:
    """Whether both databases can keep `value` in a column of its own: text without NUL or half characters."""
    return not isinstance(value, str) or _UNSTORABLE.search(value) is None


def require_storable(value: Any, where: str) -> None:
    """Refuse what the databases cannot keep, naming it by `where`."""
    if not is_storable(value):
        raise BadInputError(f"{where} holds a character that cannot be stored; use plain text")


def _values(conditions: RowFilter) -> list[Any]:
    return [
        *(value for values in conditions.equal.values() for value in values),
        *conditions.unindexed.values(),
    ]


def _names(rows: list[tuple[Any, ...]]) -> str:
    return ", ".join(row[0] for row in rows[:_SHOWN]) + (", …" if len(rows) > _SHOWN else "")
