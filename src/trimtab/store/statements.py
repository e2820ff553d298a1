"""Statements run on the driver's own connection, past SQLAlchemy's results: compiled once, run often."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Dialect, Insert, Select, Update
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import PoolProxiedConnection

Raw = DBAPIConnection | PoolProxiedConnection


class CompiledStatement:
    """A statement compiled for one dialect; values are given by the names of its `bindparam`s."""

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
        return execute(
            connection,
            self._dialect,
            self._sql,
            given if order is None else [given[name] for name in order],
        )


def execute(
    connection: Raw, dialect: Dialect, words: str, values: Mapping[str, Any] | Sequence[Any] = ()
) -> list[tuple[Any, ...]]:
    """Execute SQL on the driver's connection and return its rows; raises SQLAlchemy's errors."""
    try:
        cursor = connection.cursor()
        try:
            cursor.execute(words, values)
            return list(cursor.fetchall()) if cursor.description else []
        finally:
            cursor.close()
    except dialect.loaded_dbapi.Error as error:
        raise DBAPIError.instance(words, None, error, dialect.loaded_dbapi.Error, dialect=dialect) from None


@contextmanager
def savepoint(connection: Connection) -> Iterator[Connection]:
    """A savepoint around the block: its writes are undone if it fails, and the transaction continues."""
    # Filter of the driver: SQLAlchemy takes longer to name one than the database to set it.
    raw, dialect = connection.connection.dbapi_connection, connection.dialect
    assert raw is not None
    execute(raw, dialect, "SAVEPOINT part")
    try:
        yield connection
        execute(raw, dialect, "RELEASE SAVEPOINT part")
    except BaseException:
        # Out of space or memory, SQLite may have rolled back all of the transaction at once.
        if getattr(raw, "in_transaction", True):
            execute(raw, dialect, "ROLLBACK TO SAVEPOINT part")
            execute(raw, dialect, "RELEASE SAVEPOINT part")
        raise
