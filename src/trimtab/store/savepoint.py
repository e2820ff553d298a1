"""A part of a transaction that fails alone."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection

from trimtab.store.prepared import said


@contextmanager
def savepoint(connection: Connection) -> Iterator[Connection]:
    """What the block writes is undone where it fails, and the transaction goes on."""
    # Asked of the driver: SQLAlchemy takes longer to name one than the database to set it.
    raw, dialect = connection.connection.dbapi_connection, connection.dialect
    assert raw is not None
    said(raw, dialect, "SAVEPOINT part")
    try:
        yield connection
        said(raw, dialect, "RELEASE SAVEPOINT part")
    except BaseException:
        # Out of space or memory, SQLite may have rolled back all of the transaction at once.
        if getattr(raw, "in_transaction", True):
            said(raw, dialect, "ROLLBACK TO SAVEPOINT part")
            said(raw, dialect, "RELEASE SAVEPOINT part")
        raise
