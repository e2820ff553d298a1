"""Rows in the order of an index, from where the last page ended: a page costs the same wherever it is."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import (
    BigInteger,
    BindParameter,
    Column,
    ColumnElement,
    Select,
    Table,
    bindparam,
    select,
    tuple_,
    union_all,
)

from trimtab.core import BadInputError
from trimtab.store.database import Database

_MOST_ROWS = 2**31 - 1
_MOST_RANGES = 100
_WHOLE = BigInteger()


@dataclass(frozen=True, slots=True)
class Asked:
    """What rows must be like.

    `alike` has the values that a column may have, `beside` those of columns that no index helps with; `since`
    and `until` bound the first column that orders, `after` is the place of the last row seen.
    """

    alike: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    beside: Mapping[str, Any] = field(default_factory=dict)
    since: Any = None
    until: Any = None
    after: tuple[Any, ...] | None = None

    @property
    def shape(self) -> tuple[Any, ...]:
        """What of it makes another statement, not only other values."""
        bounds = (self.since is not None, self.until is not None, self.after is not None)
        return (*((name, len(values)) for name, values in self.alike.items()), *self.beside, *bounds)


class Listing:
    """The rows of a table, ordered by some of its columns, with others that are shown."""

    def __init__(
        self, database: Database, table: Table, shown: Sequence[ColumnElement[Any]], order: Sequence[str]
    ) -> None:
        self._database = database
        self._table = table
        self._shown = shown
        self._order: list[Column[Any]] = [table.c[name] for name in order]

    def rows(self, asked: Asked, limit: int, newest_first: bool = True) -> list[tuple[Any, ...]]:
        """At most `limit` rows."""
        ranges = list(itertools.product(*asked.alike.values()))
        if len(ranges) > _MOST_RANGES:
            raise BadInputError(f"{len(ranges)} tenants times states are too many at once; ask for fewer")
        if not ranges:
            return []
        values: dict[str, Any] = {"limit": row_limit(limit), "since": asked.since, "until": asked.until}
        values |= {f"{name}_0": value for name, value in asked.beside.items()}
        values |= {f"after_{number}": value for number, value in enumerate(asked.after or ())}
        for number, chosen in enumerate(ranges):
            values |= {f"{name}_{number}": value for name, value in zip(asked.alike, chosen, strict=True)}
        return self._database.fetch(
            (self, newest_first, asked.shape),
            lambda: self._select(asked, len(ranges), newest_first),
            values,
        )

    def _select(self, asked: Asked, ranges: int, newest_first: bool) -> Select[Any]:
        ordered = [column.desc() if newest_first else column.asc() for column in self._order]
        # The order's columns come along, so that ranges can be merged by them.
        shown = [*self._shown, *(column.label(f"order_{i}") for i, column in enumerate(self._order))]
        parts = [
            select(*shown)
            .where(*self._conditions(asked, number, newest_first))
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

    def _conditions(self, asked: Asked, number: int, newest_first: bool) -> list[ColumnElement[bool]]:
        columns, lead = self._table.c, self._order[0]

        def value(name: str, number: int) -> BindParameter[Any]:
            return bindparam(f"{name}_{number}", type_=columns[name].type)

        found = [columns[name] == value(name, number) for name in asked.alike]
        # As an expression, the column does not tempt SQLite to another index than that of the columns above.
        found += [columns[name] + "" == value(name, 0) for name in asked.beside]
        if asked.since is not None:
            found.append(lead >= bindparam("since", type_=lead.type))
        if asked.until is not None:
            found.append(lead < bindparam("until", type_=lead.type))
        if asked.after is not None:
            place = tuple_(*self._order)
            last = tuple_(*(bindparam(f"after_{i}", type_=c.type) for i, c in enumerate(self._order)))
            found.append(place < last if newest_first else place > last)
        return found


def row_limit(limit: int) -> int:
    """`limit` as a database takes it."""
    if limit < 1:
        raise BadInputError(f"a limit of {limit} shows nothing; give 1 or more")
    return min(limit, _MOST_ROWS)
