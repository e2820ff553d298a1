"""The API over PostgreSQL, and two systems on one of them: both answer, one leads, the other takes over."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from httpx import Client, HTTPError
from postgres_server import private_postgres

from trimtab.serve.http import HttpApplication
from trimtab.serve.processes.server import listening
from trimtab.serve.settings import Settings
from trimtab.store import open_store

TRIMTAB = str(Path(sys.executable).parent / "trimtab")
JOB = {"jobs": [{"name": "train", "command": ["python", "train.py"]}]}


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with private_postgres() as server:
        yield server.new_database()


def test_requests_are_answered_as_over_sqlite(database: str, tmp_path: Path) -> None:
    result = Settings(listen="127.0.0.1:0", dashboard=False, rate_limit=0.0)
    with ExitStack() as stack:
        store = stack.enter_context(open_store(database))
        server = stack.enter_context(listening(HttpApplication(store, result), result))
        client = stack.enter_context(Client(base_url=f"http://127.0.0.1:{server.port}", timeout=30))

        def submit(_: int) -> str:
            answer = client.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": "once"})
            assert answer.status_code == 201, answer.text
            return str(answer.json()["items"][0]["id"])

        with ThreadPoolExecutor(8) as threads:
            made = set(threads.map(submit, range(16)))
        assert len(made) == 1
        id = made.pop()
        observed = client.get(f"/v1/jobs/{id}")
        assert (
            client.get(f"/v1/jobs/{id}", headers={"If-None-Match": observed.headers["etag"]}).status_code
            == 304
        )
        assert [job["id"] for job in client.get("/v1/jobs?limit=1").json()["items"]] == [id]
        new = {"If-None-Match": "*"}
        with ThreadPoolExecutor(8) as threads:
            puts = threads.map(lambda _: client.put("/v1/tenants/a", json={}, headers=new), range(8))
            assert sorted(answer.status_code for answer in puts) == [200] + [412] * 7
        with client.stream("GET", "/v1/events/stream?since=0&kind=job") as received:
            lines = received.iter_lines()
            assert any(line == "event: job.waiting" for line in lines)
        cancelled = client.post(f"/v1/jobs/{id}/cancel")
        assert cancelled.json()["state"] == "cancelled"


@pytest.mark.slow
def test_when_the_one_that_leads_is_killed_the_other_leads_and_both_had_answered(
    database: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        systems = [_up(stack, database, tmp_path / str(number)) for number in range(2)]
        urls = [url for _, url in systems]
        _until(lambda: all(map(_answers, urls)) and sum(map(_leads, urls)) == 1, 60.0)
        first = 0 if _leads(urls[0]) else 1
        systems[first][0].kill()
        _until(lambda: _leads(urls[1 - first]), 60.0)


def _up(
    stack: ExitStack, database: str, home: Path, log: Any = subprocess.DEVNULL
) -> tuple["subprocess.Popen[bytes]", str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    child = subprocess.Popen(
        [TRIMTAB, "up", "--store", database, "--listen", address, "--no-dashboard", "--log-level", "error"],
        env=os.environ | {"TRIMTAB_HOME": str(home)},
        stderr=log,
    )
    stack.callback(child.wait)
    stack.callback(child.kill)
    return child, f"http://{address}"


def _answers(url: str) -> bool:
    try:
        return Client().get(f"{url}/v1/jobs").status_code == 200
    except HTTPError:
        return False


def _leads(url: str) -> bool:
    try:
        return "trimtab_leading 1" in Client().get(f"{url}/metrics").text
    except HTTPError:
        return False


def _until(condition, seconds: float) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_a_database_that_is_killed_and_comes_back_leaves_no_traceback(tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(private_postgres())
        log = stack.enter_context((tmp_path / "log").open("wb"))
        child, url = _up(stack, server.new_database(), tmp_path, log)
        client = stack.enter_context(Client(base_url=url, timeout=60))

        def ready() -> str:
            try:
                return str(client.get("/v1/ready").json().get("type", "ready"))
            except HTTPError:
                return "unreachable"

        _until(lambda: ready() == "ready", 60.0)
        for _ in range(2):
            server.kill()
            _until(lambda: ready() == "urn:trimtab:store-failed", 60.0)
            assert client.post("/v1/jobs", json=JOB).status_code == 503
            server.start()
            _until(lambda: ready() == "ready", 60.0)
            assert client.post("/v1/jobs", json=JOB).status_code == 201
        child.terminate()
        assert child.wait(60) == 0
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.slow
def test_a_database_that_is_still_down_is_waited_for(tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(private_postgres())
        database = server.new_database()
        server.kill()
        log = stack.enter_context((tmp_path / "log").open("wb"))
        _, url = _up(stack, database, tmp_path, log)
        _until(lambda: "waiting for PostgreSQL" in (tmp_path / "log").read_text(), 60.0)
        server.start()
        _until(lambda: _answers(url), 60.0)
