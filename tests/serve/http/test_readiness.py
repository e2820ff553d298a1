"""Readiness: 503 with the reason if the store cannot be written, the disk is full, or pages are damaged."""

import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from httpx import Client, Response

from trimtab.serve.http import HttpApplication, app
from trimtab.serve.processes.server import listening
from trimtab.serve.settings import Settings
from trimtab.store import Role, Store, open_store

JOB = {"jobs": [{"name": "train", "command": "true"}]}


@pytest.fixture(autouse=True)
def _check_at_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_CHECK_INTERVAL", 0.0)
    monkeypatch.setattr(app, "_SEARCH_INTERVAL", 0.0)
    monkeypatch.setattr(app, "_SEARCH_SHARE", 1e9)


@contextmanager
def serving(store: Store) -> Iterator[Client]:
    settings = Settings(listen="127.0.0.1:0", dashboard=False)
    with (
        listening(HttpApplication(store, settings), settings) as server,
        Client(base_url=f"http://127.0.0.1:{server.port}", timeout=60) as client,
    ):
        assert client.get("/v1/ready").json() == {"status": "ok"}
        yield client
        assert client.get("/healthz").status_code == 200


def problem(answer: Response, path: Path) -> str:
    """Type of a 503 problem that does not tell where the store is."""
    assert answer.status_code == 503, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert str(path) not in answer.text
    assert answer.json()["detail"]
    return str(answer.json()["type"])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    if os.geteuid() != 0:
        pytest.skip("needs root: a file system is mounted")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"needs the right to mount: {mounted.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path) -> Path:
    """Write a file until no byte more fits."""
    path = folder / "filling"
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    return path


def test_a_full_disk_is_not_ready_and_its_503_says_so(small_disk: Path) -> None:
    with open_store(f"sqlite:///{small_disk}/store.sqlite") as store, serving(store) as client:
        filling = fill(small_disk)
        assert problem(client.get("/v1/ready"), small_disk) == "urn:trimtab:store-full"
        answers = [client.post("/v1/jobs", json=JOB) for _ in range(300)]  # until the log's own room is used
        assert problem(answers[-1], small_disk) == "urn:trimtab:store-full"
        kept = sum(answer.status_code == 201 for answer in answers)
        assert client.get("/v1/jobs").status_code == 200
        filling.unlink()
        assert client.get("/v1/ready").status_code == 200
        assert client.post("/v1/jobs", json=JOB).status_code == 201
        assert len(store.jobs.list(1000)) == kept + 1


def test_damaged_pages_are_not_ready(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    with open_store(f"sqlite:///{path}") as store:
        with store.together():
            for number in range(2000):
                store.events.append("job.waiting", f"job-{number}", {"why": "x" * 100}, 1.0)
        with serving(store) as client:
            with sqlite3.connect(path) as other:
                other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            other.close()
            size = path.stat().st_size
            with path.open("r+b") as file:
                file.seek(size // 3 // 4096 * 4096)
                file.write(os.urandom(size // 3))
            assert problem(client.get("/v1/ready"), tmp_path) == "urn:trimtab:store-damaged"


def test_a_store_whose_file_is_gone_is_not_ready_until_it_is_back(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    with open_store(f"sqlite:///{path}") as store, serving(store) as client:
        path.rename(tmp_path / "moved")
        assert problem(client.get("/v1/ready"), tmp_path) == "urn:trimtab:store-failed"
        assert client.post("/v1/jobs", json=JOB).status_code == 503
        assert not path.exists()
        (tmp_path / "moved").rename(path)
        assert client.get("/v1/ready").status_code == 200


def test_a_writer_that_blocks_the_store_makes_it_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "_CHECK_TIMEOUT", 0.5)
    path = tmp_path / "store.sqlite"
    with open_store(f"sqlite:///{path}") as store, serving(store) as client:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert problem(client.get("/v1/ready"), tmp_path) == "urn:trimtab:store-failed"
        other.close()


def test_strangers_do_not_use_up_the_answers_for_a_probe(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.sqlite") as store, serving(store) as client:
        store.tokens.make("first", "*", Role.ADMIN)
        strangers = [client.get("/v1/jobs", headers={"Authorization": "Bearer wrong"}) for _ in range(200)]
        assert strangers[-1].status_code == 429
        assert {client.get("/v1/ready").status_code for _ in range(200)} == {200}
