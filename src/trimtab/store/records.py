"""Things kept under an id: written once, found by any unique start of it, listed newest first."""

import re
from typing import Any, Generic, TypeVar

from sqlalchemy import ColumnElement, Select, Table, insert, select

from trimtab.core import BadInputError, NotFoundError, StorageError, from_plain, to_plain
from trimtab.store.database import Database
from trimtab.store.faults import ConflictError

T = TypeVar("T")

_SHOWN = 5
_MOST_ROWS = 2**31 - 1
_LAST_CHARACTER = "\U0010ffff"
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


class Records(Generic[T]):
    """The rows of one table as instances of `kind`, called `noun` in messages."""

    def __init__(self, database: Database, table: Table, kind: type[T], noun: str) -> None:
        self._database = database
        self._table = table
        self._kind = kind
        self._noun = noun

    def add(self, id: str, record: T, columns: dict[str, Any]) -> None:
        """Keep `record` under `id`, with the `columns` it is searched by.

        The same record again is no error, so a write whose answer was lost can be repeated.
        """
        for name, value in {"id": id, **columns}.items():
            require_storable(value, f"the {self._noun}'s {name}")
        if not id:
            raise BadInputError(f"the {self._noun} has an empty id; give it one")
        body = to_plain(record)
        try:
            with self._database.writing() as connection:
                connection.execute(insert(self._table).values(id=id, body=body, **columns))
        except ConflictError:
            if to_plain(self.get(id)) != body:
                raise BadInputError(
                    f"{self._noun} {id} is already kept with other contents, and is written once; "
                    f"give the new one an id of its own"
                ) from None

    def get(self, id: str) -> T:
        """The record whose id is, or alone starts with, `id`."""
        found = self._starting_with(id) if id and is_storable(id) else []
        if len(found) == 1 or (found and found[0].id == id):
            return self._record(found[0])
        if found:
            raise NotFoundError(
                f'"{id}" starts the ids of several {self._noun}s: {_names(found)}; give more of the one meant'
            )
        raise self.missing(id)

    def newest(self, limit: int, *conditions: ColumnElement[bool]) -> tuple[T, ...]:
        """At most `limit` records that meet the conditions, by time and then by writing, newest first."""
        rows = self._rows(
            select(self._table)
            .where(*conditions)
            .order_by(self._table.c.created.desc(), self._table.c.sequence.desc())
            .limit(row_limit(limit))
        )
        return tuple(self._record(row) for row in rows)

    def missing(self, id: str) -> NotFoundError:
        """The error that says `id` names nothing, and what there is instead."""
        rows = self._rows(select(self._table.c.id).order_by(self._table.c.created.desc()).limit(_SHOWN))
        there = f"the newest are {_names(rows)}" if rows else f"there are no {self._noun}s yet"
        return NotFoundError(f'there is no {self._noun} "{id!s:.80}" in {self._database.name}; {there}')

    def _starting_with(self, prefix: str) -> list[Any]:
        column = self._table.c.id
        # An exact match sorts first, so it is seen even where many ids go on from it.
        return self._rows(
            select(self._table)
            .where(column >= prefix, column < prefix + _LAST_CHARACTER)
            .order_by(column)
            .limit(_SHOWN + 1)
        )

    def _rows(self, query: Select[Any]) -> list[Any]:
        with self._database.reading() as connection:
            return list(connection.execute(query))

    def _record(self, row: Any) -> T:
        return from_kept(self._kind, row.body, f"{self._noun} {row.id} in {self._database.name}")


def from_kept(kind: type[T], body: Any, where: str) -> T:
    """An instance of `kind` from the JSON of a row, which a message names by `where`."""
    try:
        return from_plain(kind, body)
    except BadInputError as error:
        raise StorageError(
            f"{where} was written by another version of Trimtab ({error}); use that version to read it"
        ) from None


def row_limit(limit: int) -> int:
    """`limit` as a database takes it."""
    if limit < 1:
        raise BadInputError(f"a limit of {limit} shows nothing; give 1 or more")
    return min(limit, _MOST_ROWS)


def is_storable(value: Any) -> bool:
    """Whether both databases can keep `value` in a column of its own: text without NUL or half characters."""
    return not isinstance(value, str) or _UNSTORABLE.search(value) is None


def require_storable(value: Any, where: str) -> None:
    """Refuse what the databases cannot keep, naming it by `where`."""
    if not is_storable(value):
        raise BadInputError(f"{where} holds a character that cannot be stored; use plain text")


def _names(rows: list[Any]) -> str:
    return ", ".join(row.id for row in rows[:_SHOWN]) + (", …" if len(rows) > _SHOWN else "")
