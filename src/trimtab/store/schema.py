"""Bringing a database to the schema this version of Trimtab knows, or refusing to touch it."""

from sqlalchemy import Connection, inspect, text

from trimtab.core import StorageError
from trimtab.store.database import Database
from trimtab.store.tables import VERSION_TABLE, metadata

REVISIONS = ("0001", "0002", "0003")
"""Every schema there has been, oldest first; the last one is the code's own."""

# Any number that no other user of the same PostgreSQL database is likely to lock.
_LOCK = 0x7472696D746162


def bring_up_to_date(database: Database) -> None:
    """Make or migrate the tables; several processes may do so at once, and one of them will."""
    with database.reading() as connection:
        if revision_of(connection, database.name) == REVISIONS[-1]:
            return
    with database.writing() as connection:
        be_alone(connection)
        if revision_of(connection, database.name) != REVISIONS[-1]:
            migrate(connection)


def be_alone(connection: Connection) -> None:
    """Wait until nobody else changes the schema."""
    # SQLite's writers are alone from the start; PostgreSQL's have to agree on a lock.
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})


def revision_of(connection: Connection, name: str) -> str | None:
    """The revision of the tables, None where there are none yet."""
    found = set(inspect(connection).get_table_names())
    if VERSION_TABLE not in found:
        strangers = sorted(found & set(metadata.tables))
        if strangers:
            raise StorageError(
                f"{name} has a table {strangers[0]} that is not Trimtab's; give the store its own database"
            )
        return None
    asked = text(f"SELECT version_num FROM {VERSION_TABLE}")  # nosec B608 # a constant of ours
    revision = connection.execute(asked).scalar()
    if revision is not None and revision not in REVISIONS:
        raise StorageError(
            f"the store {name} was made by a newer Trimtab (schema {revision}, not {REVISIONS[-1]}); "
            f"upgrade Trimtab or name another store"
        )
    return revision


def migrate(connection: Connection, revision: str = "head") -> None:
    """Bring the tables to a revision, from whatever they are or are not."""
    # Most openings find nothing to do, and Alembic is slow to import.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "trimtab.store:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
