"""A select that is compiled once and asked often, past SQLAlchemy's results."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Dialect, Select
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import PoolProxiedConnection


class Prepared:
    """A statement in the words of one database; values are given by the names of its `bindparam`s."""

    def __init__(self, statement: Select[Any], dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect)
        self._sql = str(compiled)
        # SQLAlchemy puts in numbers of its own, such as an offset of nothing.
        self._own = {name: value for name, value in compiled.params.items() if value is not None}
        self._order: list[str] | None = getattr(compiled, "positiontup", None)

    def rows(
        self, connection: DBAPIConnection | PoolProxiedConnection, values: Mapping[str, Any]
    ) -> list[tuple[Any, ...]]:
        """All rows, as the driver gives them."""
        cursor = connection.cursor()
        try:
            given = {**values, **self._own}
            order = self._order
            cursor.execute(self._sql, given if order is None else [given[name] for name in order])
            return list(cursor.fetchall())
        finally:
            cursor.close()
