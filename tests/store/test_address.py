"""Disks that are full or read-only, files that are no database, servers that are away."""

import os
import re
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from small_disk import fill, needs_root, small_disk

from trimtab.core import Decision, StorageError
from trimtab.store import FullError, open_store
from trimtab.store.database import resolve


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path / "deep" / "home"))
    monkeypatch.delenv("TRIMTAB_STORE", raising=False)


def test_the_default_is_a_file_in_a_home_that_is_made(tmp_path: Path) -> None:
    with open_store() as store:
        assert store.name == str(tmp_path / "deep" / "home" / "trimtab.sqlite")
    assert (tmp_path / "deep" / "home" / "trimtab.sqlite").exists()


def test_the_environment_names_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMTAB_STORE", f"sqlite:///{tmp_path}/other.sqlite")
    assert resolve(None).name == str(tmp_path / "other.sqlite")
    assert resolve("sqlite:////mine.sqlite").name == "/mine.sqlite"


def test_a_relative_path_stays_where_it_was_when_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    address = resolve("sqlite:///here.sqlite")
    monkeypatch.chdir("/")
    assert address.path == tmp_path / "here.sqlite"


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_a_postgresql_url_goes_to_psycopg_and_is_named_without_its_password(scheme: str) -> None:
    address = resolve(f"{scheme}://ann:hush@db.example:5433/trim?password=also&sslmode=require")
    assert address.url.drivername == "postgresql+psycopg"
    assert address.url.password == "hush"
    assert address.name == "postgresql://ann@db.example:5433/trim"
    assert address.without_secrets("hush and also") == "*** and ***"


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("mysql://ann:hush@db/trim", "mysql"),
        ("postgresql+asyncpg://ann:hush@db/trim", r"postgresql\+asyncpg"),
        ("ann:hush@db/trim", "scheme"),
        ("/var/lib/trimtab.sqlite", "scheme"),
        ("postgresql://ann:hush@db:port/trim", "postgresql"),
        ("postgresql://ann:half@hush/x@db/trim", "@"),
        ("postgresql://ann:half@hush@db/trim", "@"),
        ("sqlite://", "file"),
        ("sqlite:///:memory:", "file"),
        ("sqlite://host/path", "file"),
        ("sqlite:///path?mode=ro", "file"),
    ],
)
def test_a_wrong_url_is_refused_in_one_sentence_that_keeps_its_password(url: str, sentence: str) -> None:
    with pytest.raises(StorageError, match=sentence) as refusal:
        open_store(url)
    assert "hush" not in str(refusal.value)
    assert "\n" not in str(refusal.value)


@needs_root
def test_a_full_disk_refuses_in_one_sentence_and_keeps_what_was_acknowledged(
    tmp_path: Path, make_decision: Callable[..., Decision]
) -> None:
    with small_disk(tmp_path / "disk") as disk, open_store(f"sqlite:///{disk}/s.sqlite") as store:
        acknowledged: list[str] = []

        def write_on() -> None:
            for n in range(10_000):
                store.ledger.record(make_decision(f"d{n:04}", reason="x" * 10_000))
                acknowledged.append(f"d{n:04}")

        with pytest.raises(FullError, match=r"s\.sqlite"):
            write_on()
        assert acknowledged
        with open_store(f"sqlite:///{disk}/s.sqlite") as again:
            assert sorted(decision.id for decision in again.ledger.list(10_000)) == acknowledged


@needs_root
def test_a_store_goes_on_when_a_full_disk_has_room_again(
    tmp_path: Path, make_decision: Callable[..., Decision]
) -> None:
    with small_disk(tmp_path / "disk") as disk, open_store(f"sqlite:///{disk}/s.sqlite") as store:
        fill(disk / "filler")
        with pytest.raises(FullError, match=r"s\.sqlite"):
            store.ledger.record(make_decision("d1", reason="x" * 100_000))
        (disk / "filler").unlink()
        store.ledger.record(make_decision("d2"))
        assert [decision.id for decision in store.ledger.list()] == ["d2"]


@needs_root
def test_many_writers_on_a_full_disk_lose_nothing_acknowledged_and_go_on_when_there_is_room(
    tmp_path: Path, make_decision: Callable[..., Decision]
) -> None:
    with small_disk(tmp_path / "disk", "3m") as disk, open_store(f"sqlite:///{disk}/s.sqlite") as store:
        (disk / "filler").write_bytes(b"\0" * (1 << 20))
        acknowledged, refused = list[str](), list[Exception]()

        def write(name: str) -> None:
            for n in range(10_000):
                try:
                    store.ledger.record(make_decision(f"{name}{n:04}", reason="x" * 5_000))
                except StorageError as error:
                    refused.append(error)
                    return
                acknowledged.append(f"{name}{n:04}")

        writers = [threading.Thread(target=write, args=(name,)) for name in "abcdefgh"]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert [type(error) for error in refused] == [FullError] * 8
        (disk / "filler").unlink()
        store.ledger.record(make_decision("last"))
        kept = {decision.id for decision in store.ledger.list(100_000)}
        assert kept == {*acknowledged, "last"}
        assert store.faults() == ()


@needs_root
def test_a_store_on_a_full_disk_is_not_made(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        fill(disk / "filler")
        with pytest.raises(StorageError, match=r"s\.sqlite"):
            open_store(f"sqlite:///{disk}/s.sqlite")


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Nothing in `folder` can be written; root ignores permissions, so for root it is a mount."""
    if os.geteuid() != 0:
        folder.chmod(0o500)
        try:
            yield
        finally:
            folder.chmod(0o700)
        return
    subprocess.run(["mount", "--bind", str(folder), str(folder)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_read_only_home_refuses_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRIMTAB_STORE", raising=False)
    with read_only(tmp_path):
        monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path))
        with pytest.raises(StorageError, match=r"trimtab\.sqlite .*TRIMTAB_HOME"):
            open_store()
        monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path / "new"))
        with pytest.raises(StorageError, match=r"folder .*new/trimtab\.sqlite .*TRIMTAB_HOME"):
            open_store()


def test_a_store_in_a_home_that_became_read_only_refuses_in_one_sentence(
    tmp_path: Path, make_decision: Callable[..., Decision]
) -> None:
    url = f"sqlite:///{tmp_path}/s.sqlite"
    open_store(url).close()
    with (
        read_only(tmp_path),
        pytest.raises(StorageError, match=r"s\.sqlite .*TRIMTAB_"),
    ):
        open_store(url).ledger.record(make_decision("d1"))


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "thesis.txt"
    file.write_text("All happy families are alike. " * 100)
    with pytest.raises(StorageError, match=r"thesis\.txt .*SQLite"):
        open_store(f"sqlite:///{file}")
    assert file.read_text() == "All happy families are alike. " * 100


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=re.escape(str(tmp_path))):
        open_store(f"sqlite:///{tmp_path}")


def test_a_damaged_database_is_refused(tmp_path: Path, make_decision: Callable[..., Decision]) -> None:
    file = tmp_path / "s.sqlite"
    with open_store(f"sqlite:///{file}") as store:
        for n in range(50):
            store.ledger.record(make_decision(f"d{n}"))
    with file.open("r+b") as opened:
        opened.seek(4096)
        opened.write(b"\xff" * (file.stat().st_size - 4096))
    with pytest.raises(StorageError, match=r"s\.sqlite .*damaged"):
        open_store(f"sqlite:///{file}").ledger.list()


def test_a_store_that_stays_locked_is_refused(
    tmp_path: Path, make_decision: Callable[..., Decision], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trimtab.store.database.BUSY_TIMEOUT", 0.1)
    with open_store(f"sqlite:///{tmp_path}/s.sqlite") as store:
        other = sqlite3.connect(tmp_path / "s.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="busy"):
            store.ledger.record(make_decision("d1"))
        other.execute("ROLLBACK")
        other.close()
        store.ledger.record(make_decision("d1"))


def test_a_server_that_is_away_is_named_without_the_password() -> None:
    pytest.importorskip("psycopg")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(StorageError) as refusal:
        open_store(f"postgresql://ann:hush@127.0.0.1:{port}/trim")
    assert f"postgresql://ann@127.0.0.1:{port}/trim" in str(refusal.value)
    assert "hush" not in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_database_that_does_not_exist_is_refused(postgres: Any) -> None:
    with pytest.raises(StorageError, match=r'/nowhere .*database "nowhere" does not exist'):
        open_store(postgres.url("nowhere"))


def test_a_user_that_may_not_make_tables_is_refused(postgres: Any) -> None:
    url = postgres.new_database()
    postgres.execute("postgres", "CREATE ROLE guest LOGIN")
    try:
        with pytest.raises(StorageError, match="user"):
            open_store(url.replace("//trimtab@", "//guest@"))
    finally:
        postgres.execute("postgres", "DROP ROLE guest")


def test_a_wrong_option_in_a_postgresql_url_is_one_sentence() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(StorageError, match="colour"):
        open_store("postgresql://ann:hush@127.0.0.1/trim?colour=red")


def test_without_psycopg_the_sentence_says_how_to_install_it() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from trimtab.core import MissingDependencyError; from trimtab.store import open_store\n"
        "try: open_store('postgresql://ann@127.0.0.1/trim')\n"
        "except MissingDependencyError as error: print(error)"
    )
    output = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert output.strip().endswith("pip install 'trimtab[postgres]'")
