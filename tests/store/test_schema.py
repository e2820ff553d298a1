"""Opening: fresh, again, at once, after a newer version, beside strangers; and rows that stay as they are."""

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, inspect, make_url, text
from sqlalchemy.exc import DBAPIError

from trimtab.core import Decision, Outcome, Profile, StorageError, to_plain
from trimtab.store import Store, look_at_store, open_store
from trimtab.store.database import REVISIONS, Database, encode_json, migrate, resolve
from trimtab.store.tables import VERSION_TABLE, metadata

# Imports first and waits, so that what all openers do at the same moment is open.
OPENER = """
import sys
import alembic.command, psycopg
import trimtab.store.ledger
from trimtab.store import open_store

print("ready", flush=True)
sys.stdin.readline()
with open_store(sys.argv[1]) as store:
    store.events.append("opened", sys.argv[2], {}, 0.0)
"""


@pytest.fixture
def url(empty_url: str) -> str:
    return empty_url


def raw(url: str, *statements: str) -> None:
    """Run statements past the store, as another program would."""
    engine = create_engine(resolve(url).url)
    try:
        with engine.begin() as connection:
            for statement in statements:
                connection.execute(text(statement))
    finally:
        engine.dispose()


def test_a_store_opened_again_holds_what_it_held(url: str, make_decision: Callable[..., Decision]) -> None:
    with open_store(url) as store:
        store.ledger.record(make_decision("d1"))
    with open_store(url) as store:
        assert store.ledger.get("d1") == make_decision("d1")


def test_processes_that_open_a_fresh_store_at_once_all_succeed(url: str) -> None:
    openers = [
        subprocess.Popen(
            [sys.executable, "-c", OPENER, url, str(n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for n in range(4)
    ]
    for opener in openers:
        assert opener.stdout is not None
        assert opener.stdout.readline() == b"ready\n"
    for opener in openers:
        assert opener.stdin is not None
        opener.stdin.write(b"go\n")
        opener.stdin.flush()
    for opener in openers:
        opener.communicate()
    assert [opener.returncode for opener in openers] == [0] * 4
    with open_store(url) as store:
        assert sorted(event.subject for event in store.events.since(0)) == list("0123")


def test_opening_waits_for_another_process_that_is_writing_the_fresh_file(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "s.sqlite", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.5, other.execute, ["ROLLBACK"])
    release.start()
    open_store(f"sqlite:///{tmp_path}/s.sqlite").close()
    release.join()
    other.close()


def test_a_store_made_by_a_newer_version_is_refused_and_left_alone(url: str) -> None:
    open_store(url).close()
    raw(url, f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    for _ in range(2):
        with pytest.raises(StorageError, match="9999"):
            open_store(url)


def test_a_database_with_tables_of_others_is_refused_and_left_alone(url: str) -> None:
    raw(url, "CREATE TABLE events (concert TEXT)", "INSERT INTO events VALUES ('Bach')")
    with pytest.raises(StorageError, match="table events"):
        open_store(url)
    raw(url, "UPDATE events SET concert = 'Brahms'")


def test_the_migrations_lead_to_the_tables_that_the_code_uses(url: str) -> None:
    def differences(connection: Connection) -> list[object]:
        options = {"version_table": VERSION_TABLE, "compare_type": True}
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), metadata))

    open_store(url).close()
    engine = create_engine(resolve(url).url)
    with engine.connect() as connection:
        assert differences(connection) == []
    engine.dispose()


def test_the_code_knows_every_migration_that_is_shipped() -> None:
    config = Config()
    config.set_main_option("script_location", "trimtab.store:migrations")
    shipped = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    assert tuple(reversed(shipped)) == REVISIONS


@pytest.mark.parametrize("table", ["decisions", "outcomes", "events"])
@pytest.mark.parametrize("change", ["UPDATE {} SET {} = 7.0", "DELETE FROM {}"])
def test_the_database_itself_refuses_to_change_history(
    url: str, store: Store, make_decision: Callable[..., Decision], table: str, change: str
) -> None:
    time = {"decisions": "created", "outcomes": "recorded", "events": "time"}[table]
    store.ledger.record(make_decision("d1"))
    store.ledger.record_outcome(Outcome("d1", 2.0, {"time": 3.0}))
    store.events.append("tick", "clock", {}, 1.0)
    with pytest.raises(DBAPIError, match=f"{table} are append-only"):
        raw(url, change.format(table, time))
    assert store.ledger.get("d1") == make_decision("d1")
    assert [outcome.recorded for outcome in store.ledger.outcomes("d1")] == [2.0]
    assert [event.time for event in store.events.since(0)] == [1.0]


@pytest.mark.parametrize("table", ["decisions", "outcomes", "events"])
def test_the_database_itself_refuses_to_replace_or_truncate_history(
    url: str, store: Store, make_decision: Callable[..., Decision], table: str
) -> None:
    store.ledger.record(make_decision("d1"))
    store.ledger.record_outcome(Outcome("d1", 2.0, {"time": 3.0}))
    store.events.append("tick", "clock", {}, 1.0)
    replace = f"INSERT OR REPLACE INTO {table} SELECT * FROM {table}"
    with pytest.raises(DBAPIError, match=f"{table} are append-only"):
        raw(url, replace if url.startswith("sqlite") else f"TRUNCATE {table} CASCADE")


def test_a_record_of_another_version_is_named(url: str, store: Store) -> None:
    raw(url, "INSERT INTO profiles (id, created, workload, body) VALUES ('p1', 1.0, 'w', '{\"id\": \"p1\"}')")
    with pytest.raises(StorageError, match=r"profile p1 .*Profile\.created"):
        store.profiles.get("p1")


def test_importing_the_store_loads_no_database_library() -> None:
    code = "import sys, trimtab.store; print(*{'sqlalchemy', 'alembic', 'psycopg'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == ""


def test_opening_a_store_that_is_up_to_date_loads_no_migration_library(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.sqlite"
    open_store(url).close()
    code = "import sys; from trimtab.store import open_store; open_store(sys.argv[1]).close(); "
    code += "print(*{'alembic', 'psycopg'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code, url], text=True).strip() == ""


@pytest.mark.parametrize("revision", REVISIONS[:-1])
def test_a_store_of_an_older_version_keeps_all_it_held(
    url: str, make_decision: Callable[..., Decision], make_profile: Callable[..., Profile], revision: str
) -> None:
    database = Database(resolve(url))
    with database.writing() as connection:
        migrate(connection, revision)
        connection.execute(
            text("INSERT INTO decisions (id, created, kind, subject, body) VALUES ('d1', 1.0, 'k', 's', :d)"),
            {"d": encode_json(to_plain(make_decision("d1")))},
        )
        connection.execute(
            text("INSERT INTO outcomes (decision_id, recorded, body) VALUES ('d1', 2.0, :o)"),
            {"o": encode_json(to_plain(Outcome("d1", 2.0, {"time": 3.0})))},
        )
        connection.execute(
            text("INSERT INTO profiles (id, created, workload, body) VALUES ('p1', 1.0, 'resnet', :p)"),
            {"p": encode_json(to_plain(make_profile("p1")))},
        )
        connection.execute(
            text("INSERT INTO events (time, kind, subject, detail) VALUES (1.0, 'tick', 'clock', '{}')")
        )
    database.close()
    with open_store(url) as store:
        assert store.ledger.get("d1", ["default"]) == make_decision("d1")
        assert store.ledger.outcomes("d1") == (Outcome("d1", 2.0, {"time": 3.0}),)
        assert store.profiles.get("p1", ["default"]) == make_profile("p1")
        assert [event.tenant for event in store.events.since(0)] == ["default"]
        assert store.faults() == ()
        store.ledger.record(make_decision("d2"), "vision")
        assert [decision.id for decision in store.ledger.list(tenants=["vision"])] == ["d2"]
    with pytest.raises(DBAPIError, match="decisions are append-only"):
        raw(url, "UPDATE decisions SET tenant = 'mine'")


def test_a_store_knows_its_rows_schema_and_size(store: Store, make_decision: Callable[..., Decision]) -> None:
    store.ledger.record(make_decision("d1"))
    facts = store.facts()
    assert facts.rows["decisions"] == 1
    assert facts.rows["jobs"] == 0
    assert facts.schema == REVISIONS[-1]
    assert facts.size > 10_000
    assert facts.name == store.name


def test_a_sound_store_has_no_faults(store: Store, make_decision: Callable[..., Decision]) -> None:
    store.ledger.record(make_decision("d1", action={"x": float("inf")}))
    store.ledger.record_outcome(Outcome("d1", 2.0, {"time": 3.0}))
    assert store.faults() == ()


def test_lost_triggers_and_orphans_are_found(
    store: Store, url: str, make_decision: Callable[..., Decision]
) -> None:
    store.ledger.record(make_decision("d1"))
    store.ledger.record_outcome(Outcome("d1", 2.0, {"time": 3.0}))
    if url.startswith("sqlite"):
        raw(url, "DROP TRIGGER decisions_refuse_delete", "DROP TRIGGER decisions_refuse_update")
        raw(url, "DROP TRIGGER decisions_refuse_replace", "DELETE FROM decisions")
    else:
        raw(url, "DROP TRIGGER decisions_refuse_change ON decisions")
        raw(url, "ALTER TABLE outcomes DROP CONSTRAINT outcomes_decision_id_fkey", "DELETE FROM decisions")
    orphans, trigger = store.faults()
    assert orphans.startswith("1 outcomes ")
    assert trigger.startswith("decisions ")
    assert "trigger" in trigger


@pytest.mark.parametrize("empty_url", ["sqlite"], indirect=True)
def test_text_that_is_no_json_is_found(store: Store, url: str) -> None:
    raw(url, "INSERT INTO profiles (id, created, workload, body) VALUES ('p1', 1.0, 'w', '{half')")
    (fault,) = store.faults()
    assert "1 rows of profiles" in fault
    assert "body" in fault


def test_an_empty_place_stays_empty(empty_url: str, tmp_path: Path) -> None:
    observed = look_at_store(empty_url)
    assert (observed.revision, observed.newest) == (None, REVISIONS[-1])
    if observed.path is not None:
        assert not list(tmp_path.iterdir())
        return
    engine = create_engine(make_url(empty_url).set(drivername="postgresql+psycopg"))
    assert inspect(engine).get_table_names() == []
    engine.dispose()


def test_a_store_shows_its_schema_also_while_it_is_open(url: str) -> None:
    with open_store(url) as store:
        assert look_at_store(url).revision == REVISIONS[-1]
        assert look_at_store(url).name == store.name
    assert look_at_store(url).revision == REVISIONS[-1]


def test_a_server_that_is_away_is_a_sentence_without_its_password() -> None:
    with pytest.raises(StorageError) as away:
        look_at_store("postgresql://me:geheim@127.0.0.1:1/trimtab")
    assert "geheim" not in str(away.value)
    assert "\n" not in str(away.value)


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("dear reader " * 50, encoding="utf-8")
    with pytest.raises(StorageError):
        look_at_store(f"sqlite:///{path}")
    assert path.read_text(encoding="utf-8") == "dear reader " * 50
