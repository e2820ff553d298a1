"""Rows kept under an id: written once, found by a unique prefix of the id, listed in pages."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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

from trimtab.core import DEFAULT_TENANT, BadInputError, NotFoundError, StorageError, from_plain, to_plain
from trimtab.store.database import (
    ConflictError,
    Database,
    decode_json,
    is_storable,
    json_string,
    require_storable,
)
from trimtab.store.entities import Page, StateConflictError

T = TypeVar("T")
W = TypeVar("W")
Row = tuple[Any, ...]

_MOST_ROWS = 2**31 - 1
_MOST_RANGES = 100
_LIMIT = bindparam("limit", type_=BigInteger())
_NAMED = 5  # ids in a message
_LAST_CHARACTER = "\U0010ffff"


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


def row_filter(
    tenants: Sequence[str] | None,
    kind: str | None = None,
    subject: str | None = None,
    since: Any = None,
    until: Any = None,
    **columns: Sequence[str] | None,
) -> RowFilter:
    """Conditions on rows: seen by `tenants` (None: all), of a kind, about a subject, with column values."""
    equal: dict[str, Sequence[str]] = {}
    if tenants is not None:
        equal["tenant"] = tuple(dict.fromkeys(filter(is_storable, tenants)))
    equal |= {name: values for name, values in columns.items() if values is not None}
    unindexed = {}
    # A subject has far fewer rows than a kind, so its index is the one to walk if both are given.
    if subject is not None:
        equal["subject"] = (subject,)
        if kind is not None:
            unindexed["kind"] = kind
    elif kind is not None:
        equal["kind"] = (kind,)
    return RowFilter(equal, unindexed, since, until)


class Listing:
    """The rows of a table, ordered by some of its columns, with others that are shown."""

    def __init__(
        self, database: Database, table: Table, shown: Sequence[ColumnElement[Any]], order: Sequence[str]
    ) -> None:
        self._database = database
        self._table = table
        self._shown = shown
        self._order: list[Column[Any]] = [table.c[name] for name in order]

    def rows(self, conditions: RowFilter, limit: int, newest_first: bool = True) -> list[Row]:
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
            for name, value in zip(conditions.equal, chosen, strict=True):
                values[f"{name}_{number}"] = value
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
            .limit(_LIMIT)
            for number in range(ranges)
        ]
        if ranges == 1:
            return parts[0]
        merged = union_all(*(select(part.subquery()) for part in parts)).subquery()
        by = [merged.c[f"order_{i}"] for i in range(len(self._order))]
        return (
            select(merged)
            .order_by(*(column.desc() if newest_first else column.asc() for column in by))
            .limit(_LIMIT)
        )

    def _conditions(
        self, conditions: RowFilter, number: int, newest_first: bool
    ) -> list[ColumnElement[bool]]:
        columns, lead = self._table.c, self._order[0]

        def value(name: str, number: int) -> BindParameter[Any]:
            return bindparam(f"{name}_{number}", type_=columns[name].type)

        tests = [columns[name] == value(name, number) for name in conditions.equal]
        # As an expression, the column does not tempt SQLite to another index than that of the columns above.
        tests += [columns[name] + "" == value(name, 0) for name in conditions.unindexed]
        if conditions.since is not None:
            tests.append(lead >= bindparam("since", type_=lead.type))
        if conditions.until is not None:
            tests.append(lead < bindparam("until", type_=lead.type))
        if conditions.after is not None:
            place = tuple_(*self._order)
            last = tuple_(*(bindparam(f"after_{i}", type_=c.type) for i, c in enumerate(self._order)))
            tests.append(place < last if newest_first else place > last)
        return tests


def row_limit(limit: int) -> int:
    """`limit` as a database takes it."""
    if limit < 1:
        raise BadInputError(f"a limit of {limit} shows nothing; give 1 or more")
    return min(limit, _MOST_ROWS)


class Records(ABC, Generic[T, W]):
    """The rows of one table as instances of `kind`, called `noun` in messages, and filtered by a `W`."""

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

        Adding an equal record again is no error, so a write whose answer was lost can be repeated.
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
                raise StateConflictError(
                    f"{self._noun} {id} is already kept with other contents, and is written once; "
                    f"give the new one an id of its own"
                ) from None

    def get(self, id: str, tenants: Sequence[str] | None = None) -> T:
        """The record whose id is, or alone starts with, `id`, of those that `tenants` may see."""
        return self._record(self._one(id, tenants))

    def text(self, id: str, tenants: Sequence[str] | None = None) -> str:
        """The record as JSON with its tenant, found like `get` does."""
        return self._text(self._one(id, tenants))

    def page(self, limit: int = 100, criteria: W | None = None, after: str | None = None) -> Page[T]:
        """At most `limit` records, newest first; `after` is the `next` of the page before."""
        rows, following = self._page(criteria, limit, after)
        return Page(tuple(self._record(row) for row in rows), following)

    def page_text(self, limit: int = 100, criteria: W | None = None, after: str | None = None) -> Page[str]:
        """A page as JSON texts with their tenants, undecoded, at a twentieth of the cost of `page`."""
        rows, following = self._page(criteria, limit, after)
        return Page(tuple(self._text(row) for row in rows), following)

    def missing(self, id: str, tenants: Sequence[str] | None = None) -> NotFoundError:
        """The error that says that `id` names nothing, and which ids there are."""
        rows = self._by_time.rows(row_filter(tenants), _NAMED)
        newest = f"the newest are {_names(rows)}" if rows else f"there are no {self._noun}s yet"
        # Only a caller that sees every tenant learns where the store is.
        where = f" in {self._database.name}" if tenants is None else ""
        return NotFoundError(f'there is no {self._noun} "{id!s:.80}"{where}; {newest}')

    def _one(self, id: str, tenants: Sequence[str] | None) -> Row:
        if not id or not is_storable(id):
            raise self.missing(id, tenants)
        exact = self._exactly(id, tenants)
        if exact is not None:
            return exact
        span = row_filter(tenants, since=id, until=id + _LAST_CHARACTER)
        rows = self._by_id.rows(span, _NAMED + 1, newest_first=False)
        if len(rows) == 1:
            return rows[0]
        if rows:
            raise NotFoundError(
                f'"{id}" starts the ids of several {self._noun}s: {_names(rows)}; give more characters'
            )
        raise self.missing(id, tenants)

    def _exactly(self, id: str, tenants: Sequence[str] | None) -> Row | None:
        def build() -> Select[Any]:
            column = self._table.c.id
            return select(*self._shown(self._table)).where(column == bindparam("id", type_=column.type))

        rows = self._database.fetch((self, "exactly"), build, {"id": id})
        return rows[0] if rows and (tenants is None or rows[0][1] in tenants) else None

    def _page(self, criteria: W | None, limit: int, after: str | None) -> tuple[list[Row], str | None]:
        limit, conditions = row_limit(limit), self._conditions(criteria)
        values = itertools.chain(*conditions.equal.values(), conditions.unindexed.values())
        if not all(map(is_storable, values)):
            return [], None
        if after is not None:
            tenants = conditions.equal.get("tenant")  # no other tenant's id says anything to the caller
            last = self._exactly(after, tenants) if after and is_storable(after) else None
            if last is None:
                raise unknown_place(after)
            conditions = replace(conditions, after=(last[2], last[3]))
        rows = self._by_time.rows(conditions, limit + 1)
        return rows[:limit], rows[limit - 1][0] if len(rows) > limit else None

    @abstractmethod
    def _conditions(self, criteria: W | None) -> RowFilter:
        """Conditions on the rows that a filter of this kind of record stands for."""

    @staticmethod
    def _shown(table: Table) -> Sequence[ColumnElement[Any]]:
        """The columns of a row; those of every table first: id, tenant, created, sequence."""
        c = table.c
        return [c.id, c.tenant, c.created, c.sequence, cast(c.body, Text)]

    def _record(self, row: Row) -> T:
        where = f"{self._noun} {row[0]} in {self._database.name}"
        return from_kept(self._kind, decode_json(row[4]), where)

    def _text(self, row: Row) -> str:
        return f'{row[4][:-1]}, "tenant": {json_string(row[1])}}}'


def unknown_place(after: str) -> NotFoundError:
    """The error for an `after` that no page has as its `next`."""
    return NotFoundError(f'no list continues after "{after!s:.80}"; give the `next` of the page before')


def from_kept(kind: type[T], body: Any, where: str) -> T:
    """An instance of `kind` from the JSON of a row, which a message names by `where`."""
    try:
        return from_plain(kind, body)
    except BadInputError as error:
        raise StorageError(
            f"{where} was written by another version of Trimtab ({error}); use that version to read it"
        ) from None


def _names(rows: list[Row]) -> str:
    return ", ".join(row[0] for row in rows[:_NAMED]) + (", …" if len(rows) > _NAMED else "")
