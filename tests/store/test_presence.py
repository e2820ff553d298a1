"""A store that was served and is missing, empty, replaced or damaged is refused, and never made anew."""

import os
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from postgres_server import private_postgres

from trimtab.core import StorageError
from trimtab.store import (
    DamagedError,
    MissingStoreError,
    look_at_store,
    maintenance,
    open_store,
    wait_for_server,
)


@pytest.fixture
def remove(request: pytest.FixtureRequest, empty_url: str) -> Callable[[], None]:
    """Leaves nothing of the store, as an unmounted disk or a new database server would."""

    def remove_files() -> None:
        path = Path(empty_url.removeprefix("sqlite:///"))
        for file in path.parent.glob(f"{path.name}*"):
            file.unlink()

    def empty_database() -> None:
        server, name = request.getfixturevalue("postgres"), empty_url.rpartition("/")[2]
        server.drop(empty_url)
        server.execute("postgres", f"CREATE DATABASE {name}")

    return remove_files if empty_url.startswith("sqlite") else empty_database


def test_a_store_that_was_served_is_not_made_anew(empty_url: str, remove: Callable[[], None]) -> None:
    with open_store(empty_url) as store:
        store.mark_served()
    remove()
    with pytest.raises(MissingStoreError, match="--new-store"):
        open_store(empty_url)
    look = look_at_store(empty_url)
    assert (look.revision, look.served) == (None, True)
    if look.path is not None:
        assert not look.path.exists()


def test_one_with_empty_tables_is_refused_until_it_is_accepted(
    empty_url: str, remove: Callable[[], None]
) -> None:
    with open_store(empty_url) as store:
        store.mark_served()
    remove()
    open_store(empty_url, new=True).close()
    with open_store(empty_url) as store, pytest.raises(MissingStoreError):
        store.mark_served()
    with open_store(empty_url) as store:
        store.mark_served(new=True)
    with open_store(empty_url) as store:
        store.mark_served()


def test_a_backup_takes_the_place_of_a_missing_store(
    empty_url: str, remove: Callable[[], None], tmp_path: Path
) -> None:
    with open_store(empty_url) as store:
        store.events.append("job.waiting", "a", {}, 1.0)
        store.back_up(tmp_path / "backup")
        store.mark_served()
    remove()
    with open_store(empty_url, new=True) as store:
        store.restore(tmp_path / "backup")
    with open_store(empty_url) as store:
        store.mark_served()
        assert store.events.newest() == 1


def test_a_file_that_was_emptied_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    with open_store(f"sqlite:///{path}") as store:
        store.mark_served()
    os.truncate(path, 0)
    with pytest.raises(MissingStoreError, match=str(path)):
        open_store(f"sqlite:///{path}")


def test_a_store_that_was_never_served_is_made(empty_url: str, remove: Callable[[], None]) -> None:
    open_store(empty_url).close()
    remove()
    open_store(empty_url).close()


def test_a_file_that_is_removed_under_an_open_store_is_neither_written_nor_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    with open_store(f"sqlite:///{path}") as store:
        store.events.append("job.waiting", "a", {}, 1.0)
        path.rename(tmp_path / "moved")
        with pytest.raises(StorageError, match=str(path)):
            store.events.append("job.waiting", "b", {}, 1.0)
        store._database._reader.dispose()  # a thread that has read nothing before needs a new connection now
        with ThreadPoolExecutor(1) as thread, pytest.raises(StorageError, match=str(path)):
            thread.submit(store.events.newest).result()
        assert not path.exists()
        (tmp_path / "moved").rename(path)
        assert store.events.append("job.waiting", "b", {}, 1.0) == 2


def damage(path: Path) -> None:
    """Overwrite the pages in the middle of a database."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 3 // 4096 * 4096)
        file.write(os.urandom(size // 3))


def filled(path: Path) -> None:
    with open_store(f"sqlite:///{path}") as store, store.together():
        for number in range(2000):
            store.events.append("job.waiting", f"job-{number}", {"why": "x" * 100}, 1.0)


def test_damaged_pages_are_found_and_remembered(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    filled(path)
    with open_store(f"sqlite:///{path}") as store:
        assert store.find_damage(60.0)
        assert store.damage is None
    damage(path)
    with open_store(f"sqlite:///{path}") as store:
        with pytest.raises(DamagedError, match=str(path)):
            store.find_damage(60.0)
        assert isinstance(store.damage, DamagedError)


def test_a_query_that_meets_damage_is_remembered(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    filled(path)
    damage(path)
    with open_store(f"sqlite:///{path}") as store:
        with pytest.raises(DamagedError):
            store.events.since(0, 10_000)
        assert store.damage is not None


def test_the_search_for_damage_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store.sqlite"
    filled(path)
    monkeypatch.setattr(maintenance, "_INSTRUCTIONS", 10)
    with open_store(f"sqlite:///{path}") as store:
        assert not store.find_damage(0.0)


def test_damaged_pages_of_postgresql_are_remembered(postgres: Any) -> None:
    url = postgres.new_database()
    with open_store(url) as store, store.together():
        for number in range(2000):
            store.events.append("job.waiting", f"job-{number}", {"why": "x" * 100}, 1.0)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
        row = connection.execute(
            "SELECT current_setting('data_directory'), pg_relation_filepath('events')"
        ).fetchone()
        assert row is not None
    postgres.kill()
    with Path(row[0], row[1]).open("r+b") as file:
        file.seek(2 * 8192)
        file.write(b"\xff" * 8192)
    postgres.start()
    with open_store(url) as store:
        with pytest.raises(DamagedError):
            store.events.since(0, 10_000)
        assert store.damage is not None


def test_a_server_that_is_stopped_or_stopping_is_waited_for() -> None:
    with private_postgres() as server:
        url, notices, ready = server.new_database(), list[str](), threading.Event()

        def wait() -> None:
            # It rejects connections: that is waited for whatever the patience.
            wait_for_server(url, notices.append, patience=0.0)
            ready.set()

        with psycopg.connect(url):
            server.stop_smartly()
            waiting = threading.Thread(target=wait)
            waiting.start()
            while not notices:
                assert not ready.wait(0.05)
        waiting.join()

        returned = threading.Event()

        def wait_longer() -> None:
            wait_for_server(url, notices.append)
            returned.set()

        before = len(notices)
        waiting = threading.Thread(target=wait_longer)
        waiting.start()
        while len(notices) == before:
            assert not returned.wait(0.05)
        server.start()
        waiting.join()
        open_store(url).close()
        assert all(url.rpartition("/")[2] in notice for notice in notices)


def test_a_file_and_a_server_that_runs_are_not_waited_for(url: str) -> None:
    notices: list[str] = []
    wait_for_server(url, notices.append)
    assert notices == []
