"""A statement that is compiled once and run often, past SQLAlchemy's results."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Dialect, Insert, Select, Update
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import PoolProxiedConnection

Raw = DBAPIConnection | PoolProxiedConnection


class Prepared:
    """A statement in the words of one database; values are given by the names of its `bindparam`s."""

    def __init__(self, statement: Select[Any] | Insert | Update, dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect)
        self._dialect = dialect
        self._sql = str(compiled)
        # SQLAlchemy puts in numbers of its own, such as an offset of nothing.
        self._own = {name: value for name, value in compiled.params.items() if value is not None}
        self._order: list[str] | None = getattr(compiled, "positiontup", None)

    def rows(self, connection: Raw, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """All rows, as the driver gives them; none where there can be none."""
        given = {**values, **self._own}
        order = self._order
        return said(
            connection,
            self._dialect,
            self._sql,
            given if order is None else [given[name] for name in order],
        )


def said(
    connection: Raw, dialect: Dialect, words: str, values: Mapping[str, Any] | Sequence[Any] = ()
) -> list[tuple[Any, ...]]:
    """What the driver answers to a statement; its errors are SQLAlchemy's."""
    try:
        cursor = connection.cursor()
        try:
            cursor.execute(words, values)
            return list(cursor.fetchall()) if cursor.description else []
        finally:
            cursor.close()
    except dialect.loaded_dbapi.Error as error:
        raise DBAPIError.instance(words, None, error, dialect.loaded_dbapi.Error, dialect=dialect) from None
