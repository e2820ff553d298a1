"""A whole session of the real system over PostgreSQL: no token and no password of it is left anywhere."""

import contextlib
import gzip
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from httpx import Client, HTTPError
from postgres_server import PostgresServer, private_postgres

from trimtab.store import open_store

TRIMTAB = str(Path(sys.executable).parent / "trimtab")
PASSWORD = "s3cr3t-of-the-database"
SHOWS_ITS_ENVIRONMENT = {"name": "a", "command": "env", "resources": {"gpus": 0, "cpus": 0.1}}
PATIENCE = 60.0


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with private_postgres() as server:
        yield server


def until(condition, what: str) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"in vain waited for {what}"
        time.sleep(0.05)


def answers(client: Client, path: str, status: int) -> bool:
    try:
        return client.get(path).status_code == status
    except HTTPError:
        return False


def command_lines(parent: int) -> str:
    """Of a process and all below it, as everybody on the machine can read them."""
    lines = []
    for process in [psutil.Process(parent), *psutil.Process(parent).children(recursive=True)]:
        with contextlib.suppress(psutil.Error):  # it has just ended
            lines += process.cmdline()
    return " ".join(lines)


def test_after_a_whole_session_no_secret_is_in_the_log_the_store_or_a_command_line(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    plain = postgres.new_database()
    database = plain.replace("trimtab@", f"trimtab:{PASSWORD}@")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    home, log = tmp_path / "home", tmp_path / "log"
    environment = os.environ | {"TRIMTAB_HOME": str(home), "TRIMTAB_STORE": database}
    with log.open("wb") as output:
        child = subprocess.Popen(
            [TRIMTAB, "up", "--listen", address, "--log-level", "debug", "--rate-limit", "0"],
            env=environment,
            stdout=output,
            stderr=output,
        )
    try:
        with Client(base_url=f"http://{address}", timeout=30) as client:
            until(lambda: answers(client, "/v1/ready", 200), "the server")
            secrets = _session(client)
            assert PASSWORD not in command_lines(child.pid)
            texts = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
            kept = _everything(plain)
            postgres.kill()
            until(lambda: answers(client, "/v1/ready", 503), "the store to be missed")
            failed = client.get("/v1/jobs", headers={"Authorization": f"Bearer {secrets[0]}"})
            assert failed.status_code == 503
    finally:
        child.terminate()
        child.wait(60)
    written = log.read_text()
    assert re.search(r"/v1/tokens 201", written), written[-2000:]
    assert "/sign-in" in written
    for secret in (PASSWORD, *(re.sub(r"^tt_[0-9a-f]{12}_", "", text) for text in secrets)):
        assert secret not in written
        assert secret not in kept
        assert secret not in failed.text
        assert not [path for path, content in texts.items() if secret.encode() in content]
    assert secrets[0].split("_")[1] in kept  # by its id, which is no secret


def _session(client: Client) -> list[str]:
    """Make, use, mistake and revoke tokens, by the API and the dashboard; their texts, cookies among them."""
    first = client.post("/v1/tokens", json={"name": "first", "role": "admin", "tenant": "*"}).json()["text"]
    admin = {"Authorization": f"Bearer {first}"}
    key = {**admin, "Idempotency-Key": "second"}
    made = client.post(
        "/v1/tokens", json={"name": "second", "role": "user", "tenant": "a"}, headers=key
    ).json()
    job = client.post("/v1/jobs", json={"jobs": [SHOWS_ITS_ENVIRONMENT]}, headers=admin).json()["items"][0]
    assert client.get("/v1/jobs", params={"token": first}, headers=admin).status_code == 422
    assert client.get("/v1/jobs", headers={"Authorization": f"Bearer {first}x"}).status_code == 401
    until(lambda: answers(client, "/v1/jobs", 401), "the first token to be needed")
    own = {"Origin": str(client.base_url).rstrip("/")}
    for typed, status in ((made["text"], 303), (made["text"] + "x", 401)):
        answer = client.post("/sign-in", data={"token": typed}, headers=own)
        assert answer.status_code == status
        assert typed not in answer.text + str(answer.headers)
    session = client.cookies["trimtab_session"]
    assert client.get("/jobs").status_code == 200
    assert client.delete(f"/v1/tokens/{made['id']}", headers=admin).is_success
    log = f"/v1/jobs/{job['id']}/log"
    until(lambda: client.get(log, headers=admin).json().get("over"), "the job's end")
    assert "PATH=" in client.get(log, headers=admin).json()["text"]
    return [first, made["text"], session]


def _everything(database: str) -> str:
    """All rows of all tables, as text."""
    with open_store(database) as store:
        path = Path(os.environ["TRIMTAB_HOME"]) / "backup"
        path.parent.mkdir(parents=True, exist_ok=True)
        store.back_up(path)
    return gzip.decompress(path.read_bytes()).decode()
