"""The schema of a store: migrating it, looking at it without changing it, and checking that it is sound."""

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import JSON, Connection, Engine, create_engine, func, inspect, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from trimtab.core import MissingDependencyError, StorageError
from trimtab.store.address import Address, resolve, storage_error
from trimtab.store.database import Database, lock
from trimtab.store.entities import Facts
from trimtab.store.tables import VERSION_TABLE, decisions, metadata, outcomes

REVISIONS = ("0001", "0002", "0003")
"""Every schema there has been, oldest first; the last one is the code's own."""


def bring_up_to_date(database: Database) -> None:
    """Make or migrate the tables; several processes may do so at once, and one of them will."""
    with database.reading() as connection:
        if revision_of(connection, database.name) == REVISIONS[-1]:
            return
    with database.writing() as connection:
        lock(connection, "schema")
        if revision_of(connection, database.name) != REVISIONS[-1]:
            migrate(connection)


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


_GUARDED = ("decisions", "outcomes", "events")


def facts(database: Database) -> Facts:
    """Name, schema revision, size in bytes and rows per table."""
    with database.snapshot() as connection:
        rows = {
            table.name: int(connection.execute(select(func.count()).select_from(table)).scalar_one())
            for table in metadata.sorted_tables
        }
        schema = revision_of(connection, database.name) or ""
        path = database.address.path
        if path is None:
            size = int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())
        else:
            log = path.with_name(f"{path.name}-wal")
            size = sum(file.stat().st_size for file in (path, log) if file.exists())
    return Facts(database.name, schema, size, rows)


def faults_of(database: Database) -> tuple[str, ...]:
    """Faults of the database, one sentence each; empty if it is sound."""
    with database.snapshot() as connection:
        found = _damage(connection) if database.address.path else ()
        return (*found, *_orphans(connection), *_unguarded(connection))


def _damage(connection: Connection) -> tuple[str, ...]:
    damage = connection.exec_driver_sql("PRAGMA integrity_check(10)").scalars().all()
    found = [f"SQLite finds damage: {said}" for said in damage if said != "ok"]
    for table in metadata.sorted_tables:
        for column in (each for each in table.columns if isinstance(each.type, JSON)):
            # PostgreSQL checks JSON itself when it is written; SQLite takes any text.
            wrong = f'NOT json_valid("{column.name}")'
            counting = f'SELECT count(*) FROM "{table.name}" WHERE {wrong}'  # nosec B608 # names of the schema
            if count := connection.exec_driver_sql(counting).scalar_one():
                found.append(f"{count} rows of {table.name} have a {column.name} that is no JSON")
    return tuple(found)


def _orphans(connection: Connection) -> tuple[str, ...]:
    missing = ~select(decisions.c.id).where(decisions.c.id == outcomes.c.decision_id).exists()
    count = connection.execute(select(func.count()).select_from(outcomes).where(missing)).scalar_one()
    return (f"{count} outcomes are of decisions that are not there",) if count else ()


def _unguarded(connection: Connection) -> tuple[str, ...]:
    if connection.dialect.name == "postgresql":
        query = (
            "SELECT relname FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid WHERE tgname LIKE '%refuse%'"
        )
    else:
        query = "SELECT tbl_name FROM sqlite_master WHERE type = 'trigger' AND name LIKE '%refuse%'"
    guarded = set(connection.execute(text(query)).scalars())
    there = set(inspect(connection).get_table_names())
    return tuple(
        f"{table} have lost the trigger that keeps history as it was"
        for table in _GUARDED
        if table in there and table not in guarded
    )


@dataclass(frozen=True, slots=True)
class Look:
    """The store's name, its file where it is SQLite, its schema (None: there is none yet) and ours."""

    name: str
    path: Path | None
    revision: str | None
    newest: str


def look_at_store(url: str | None = None, patience: float = 2.0) -> Look:
    """As `open_store` would find it; waits at most about `patience` seconds for an answer.

    Raises a sentence where the database does not answer, is not a store, or one of a newer Trimtab.
    """
    address = resolve(url)
    if address.path is not None and not address.path.exists():
        return Look(address.name, address.path, None, REVISIONS[-1])
    engine = _engine(address, patience)
    try:
        with engine.connect() as connection:
            revision = revision_of(connection, address.name)
    except DBAPIError as error:
        raise storage_error(error, address) from None
    finally:
        engine.dispose()
    return Look(address.name, address.path, revision, REVISIONS[-1])


def _engine(address: Address, patience: float) -> Engine:
    if address.path is not None:
        path = address.path
        # With no log beside it everything is in the file; a reader of the log would leave files of its own.
        mode = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
        file = f"file:{quote(str(path))}?{mode}"
        return create_engine(
            "sqlite://", creator=lambda: sqlite3.connect(file, patience, uri=True), poolclass=NullPool
        )
    try:
        seconds = str(max(2, round(patience)))  # the least that PostgreSQL's library takes
        return create_engine(address.url.update_query_dict({"connect_timeout": seconds}), poolclass=NullPool)
    except ImportError:
        raise MissingDependencyError(
            "a store in PostgreSQL needs the psycopg package; pip install 'trimtab[postgres]'"
        ) from None
