"""Short writes in a process of their own: answered as without it, and no write is lost with it."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from companions import companions
from driven_loop import until
from httpx import Client, Response
from small_disk import fill, needs_root, small_disk

from trimtab.serve.http import HttpApplication
from trimtab.serve.processes.server import listening
from trimtab.serve.processes.writer import writer_process
from trimtab.serve.settings import Settings
from trimtab.store import EventFilter, Role, Store, open_store

JOB = {"jobs": [{"name": "train", "command": ["python", "train.py"]}]}
OUTCOME = {"decision_id": "none", "recorded": 1.0, "measured": {"time": 1.0}}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRIMTAB_HOME", str(folder))
        yield folder


@pytest.fixture(scope="module")
def store(home: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{home}/trimtab.sqlite") as made:
        yield made


@pytest.fixture(scope="module")
def urls(store: Store) -> Iterator[tuple[str, str]]:
    """A server with such a process, and one without it, on one store."""
    told = Settings(store=f"sqlite:///{store.name}", listen="127.0.0.1:0", dashboard=False, rate_limit=0.0)
    with ExitStack() as stack:
        writer = stack.enter_context(writer_process(told))
        with_one = stack.enter_context(listening(HttpApplication(store, told, writer=writer), told))
        without = stack.enter_context(listening(HttpApplication(store, told), told))
        until(lambda: writer.connected)
        yield f"http://127.0.0.1:{with_one.port}", f"http://127.0.0.1:{without.port}"


@pytest.fixture(scope="module")
def callers(store: Store, urls: tuple[str, str]) -> Iterator[dict[str, tuple[Client, Client]]]:
    """Clients of both servers, by role."""
    with ExitStack() as stack:
        made = {}
        for role in ("admin", "viewer"):
            tenant = "*" if role == "admin" else "red"
            _, text = store.tokens.make(role, tenant, Role(role), ("*",))
            headers = {"Authorization": f"Bearer {text}"}
            first, second = (
                stack.enter_context(Client(base_url=url, headers=headers, timeout=30)) for url in urls
            )
            made[role] = (first, second)
        yield made


def writers() -> list[psutil.Process]:
    return companions(os.getpid(), "processes.writer")


def output(answer: Response) -> tuple[int, Any, list[str]]:
    """What of an answer does not tell one request from another."""
    body = answer.json()
    if isinstance(body, dict):
        body = {name: value for name, value in body.items() if name != "instance"}
    changing = ("x-request-id", "date", "etag", "content-length")
    return answer.status_code, body, sorted(name for name in answer.headers if name not in changing)


@pytest.mark.parametrize(
    ("role", "method", "path", "told"),
    [
        ("admin", "POST", "/v1/jobs", {"json": {"jobs": []}}),
        ("admin", "POST", "/v1/jobs", {"json": {"jobs": [{"name": "x"}]}}),
        ("admin", "POST", "/v1/jobs", {"content": b"{", "headers": {"content-type": "application/json"}}),
        ("admin", "POST", "/v1/jobs", {"content": b"{}", "headers": {"content-type": "text/plain"}}),
        ("admin", "POST", "/v1/jobs/none/cancel", {}),
        ("admin", "POST", "/v1/decisions/none/outcomes", {"json": OUTCOME}),
        ("admin", "PUT", "/v1/tenants/blue", {"json": {}, "headers": {"if-match": '"no"'}}),
        ("admin", "PUT", "/v1/tenants/blue", {"json": {"weight": -1}}),
        ("admin", "DELETE", "/v1/tenants/nobody", {}),
        ("viewer", "POST", "/v1/jobs", {"json": JOB}),
        ("viewer", "PUT", "/v1/tenants/blue", {"json": {}}),
    ],
)
def test_it_answers_as_a_server_without_it(
    callers: dict[str, tuple[Client, Client]], role: str, method: str, path: str, told: dict[str, Any]
) -> None:
    with_one, without = (output(client.request(method, path, **told)) for client in callers[role])
    assert with_one == without
    assert with_one[0] >= 400


def test_what_it_does_is_kept_once_and_read_at_once(callers: dict[str, tuple[Client, Client]]) -> None:
    client = callers["admin"][0]
    with ThreadPoolExecutor(16) as threads:
        key = {"Idempotency-Key": "once"}
        answers = list(threads.map(lambda _: client.post("/v1/jobs", json=JOB, headers=key), range(16)))
    assert {answer.status_code for answer in answers} == {201}
    (id,) = {answer.json()["items"][0]["id"] for answer in answers}
    assert client.get(f"/v1/jobs/{id}").json()["name"] == "train"
    other = client.post("/v1/jobs", json={**JOB, "tenant": "red"}, headers={"Idempotency-Key": "once"})
    assert other.status_code == 409
    with ThreadPoolExecutor(8) as threads:
        new = {"If-None-Match": "*"}
        puts = threads.map(lambda _: client.put("/v1/tenants/a", json={}, headers=new), range(8))
        assert sorted(answer.status_code for answer in puts) == [200] + [412] * 7


def test_a_refusal_is_in_the_audit(callers: dict[str, tuple[Client, Client]], store: Store) -> None:
    assert callers["viewer"][0].post("/v1/jobs", json=JOB).status_code == 403
    newest = store.events.page(1, EventFilter(kind="audit")).items[0]
    assert newest.detail["did"] == "refused"


def test_when_it_is_killed_no_acknowledged_write_is_lost_and_writing_goes_on(
    callers: dict[str, tuple[Client, Client]], store: Store
) -> None:
    client, kept = callers["admin"][0], list[str]()
    statuses = set[int]()

    def submit(number: int) -> None:
        answer = client.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": f"k{number}"})
        statuses.add(answer.status_code)
        if answer.status_code == 201:
            kept.append(answer.json()["items"][0]["id"])
        if number == 60:
            writers()[0].send_signal(signal.SIGKILL)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(submit, range(200)))
    assert statuses <= {201, 503}
    assert all(store.jobs.get(id).id == id for id in kept)
    assert len(kept) >= 180
    until(writers)


@needs_root
def test_a_full_disk_refuses_keeps_what_was_acknowledged_and_goes_on_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path))
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(tmp_path / "disk", "4m"))
        told = Settings(store=f"sqlite:///{disk}/s.sqlite", listen="127.0.0.1:0", dashboard=False)
        store = stack.enter_context(open_store(told.store))
        writer = stack.enter_context(writer_process(told))
        server = stack.enter_context(listening(HttpApplication(store, told, writer=writer), told))
        client = stack.enter_context(Client(base_url=f"http://127.0.0.1:{server.port}", timeout=30))
        until(lambda: writer.connected)
        assert client.post("/v1/jobs", json=JOB).status_code == 201
        fill(disk / "filler")
        answers = []
        until(lambda: answers and answers[-1].status_code != 201, lambda: answers.append(submit(client)))
        assert answers[-1].status_code == 503
        assert writer.connected
        (disk / "filler").unlink()
        assert client.post("/v1/jobs", json=JOB).status_code == 201
        acknowledged = sum(answer.status_code == 201 for answer in answers)
        assert len(store.jobs.list()) == acknowledged + 2


def submit(client: Client) -> Response:
    return client.post("/v1/jobs", json=JOB)
