"""What a store says of itself, and whether it is sound."""

from sqlalchemy import JSON, Connection, func, inspect, select, text

from trimtab.store.database import Database
from trimtab.store.facts import Facts
from trimtab.store.schema import revision_of
from trimtab.store.tables import decisions, metadata, outcomes

_GUARDED = ("decisions", "outcomes", "events")


def facts(database: Database) -> Facts:
    """Its name, schema, size and rows."""
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
    """What is wrong with the database, one sentence each; none where it is sound."""
    with database.snapshot() as connection:
        found = _sqlite(connection) if database.address.path else ()
        return (*found, *_orphans(connection), *_unguarded(connection))


def _sqlite(connection: Connection) -> tuple[str, ...]:
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
