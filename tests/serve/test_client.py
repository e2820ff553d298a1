"""A server asked through the client answers, refuses and is tried again as if it were here."""

import threading
from collections.abc import Iterator

import pytest

from trimtab.core import (
    Answer,
    BadInputError,
    Decision,
    Estimate,
    Host,
    Kind,
    NotFoundError,
    Profile,
    Series,
    Workload,
)
from trimtab.serve import client as client_module
from trimtab.serve.access import ForbiddenError, UnknownCallerError
from trimtab.serve.client import Client, UnreachableError
from trimtab.serve.http import HttpApplication
from trimtab.serve.processes.server import listening
from trimtab.serve.settings import Settings
from trimtab.store import JobState, Role, Store

JOB = {"name": "train", "command": ["python", "train.py"]}


@pytest.fixture
def url(store: Store) -> Iterator[str]:
    result = Settings(listen="127.0.0.1:0", dashboard=False, rate_limit=0.0)
    with listening(HttpApplication(store, result), result) as server:
        yield f"http://127.0.0.1:{server.port}"


def decided(id: str, subject: str = "resnet") -> Decision:
    output = {"time": Estimate(10.0, 8.0, float("inf"), 0.9, "s")}
    rule = Answer("rule:x", {"nodes": 1}, output)
    return Decision(
        id, 1000.0, "recommend", subject, {"nodes": 1}, output, "rule:x", rule, None, (), "Infinity"
    )


def test_things_come_back_as_they_went(url: str, store: Store) -> None:
    with Client(url) as client:
        assert client.decisions.record(decided("d1")) == decided("d1")
        assert client.decisions.get("d") == decided("d1")
        client.decisions.record_outcome("d1", {"time": 11.0}, "well")
        assert [item.measured for item in client.decisions.outcomes("d1")] == [{"time": 11.0}]
        work = Workload("resnet", Kind.TRAINING, command=("x",))
        taken = Profile("p1", 5.0, work, Host("cpu", 2.0, 1e9), 1.0, 1.0, "m", "exited", 0, Series())
        assert client.profiles.save(taken) == taken
        assert client.profiles.latest() == client.profiles.get("p1") == taken
        made = client.jobs.submit([JOB])[0]
        assert made == store.jobs.get(made.id) == client.jobs.get(made.id)
        assert client.jobs.submit([JOB], dry_run=True)[0].name == "train"
        assert client.jobs.log(made.id).data == b""
        assert client.jobs.cancel(made.id).state is JobState.CANCELLED
        assert client.jobs.page(10, state=(JobState.WAITING,)).items == ()
        assert client.tenants.put("a", guarantee=1.0) in client.tenants.list()
        assert client.tenants.put("a", guarantee=2.0) == client.tenants.get("a")
        assert client.tenants.remove("a").guarantee == 2.0
        assert not client.fleet.now().there
        with pytest.raises(NotFoundError, match="agent"):
            client.pools.status()


def test_a_long_list_is_fetched_page_by_page(url: str, store: Store) -> None:
    def fill() -> None:
        for number in range(230):
            store.ledger.record(decided(f"d{number:03}"))

    store.write(fill)
    with Client(url) as client:
        found = client.decisions.page(1000, kind="recommend")
        assert [item.id for item in found.items] == [f"d{number:03}" for number in reversed(range(230))]
        assert found.next is None
        assert len(client.decisions.page(150).items) == 150


def test_what_is_refused_is_raised_as_it_is_there(url: str, store: Store) -> None:
    with Client(url) as client:
        with pytest.raises(NotFoundError, match='"none"'):
            client.jobs.get("none")
        with pytest.raises(BadInputError, match="name"):
            client.jobs.submit([{"name": "a b", "command": "x"}])
        made, text = client.tokens.make("ci", Role.VIEWER, "a", lifetime=60.0)
        assert made.tenant == "a"
    with Client(url, text) as bound, pytest.raises(ForbiddenError, match="user"):
        bound.jobs.submit([JOB])
    with Client(url, "tt_000000000000_forged") as forged, pytest.raises(UnknownCallerError):
        forged.jobs.page()


def test_an_answer_that_was_lost_is_asked_for_again_and_the_work_done_once(
    url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    import httpx

    send, lost = httpx.Client.request, [True, True]

    def losing(self: httpx.Client, *result: object, **more: object) -> httpx.Response:
        answer = send(self, *result, **more)  # type: ignore[arg-type]
        if lost and result[0] == "POST":
            lost.pop()
            raise httpx.ReadError("the answer was lost")
        return answer

    monkeypatch.setattr(client_module, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(httpx.Client, "request", losing)
    with Client(url) as client:
        made = client.jobs.submit([JOB])
    assert lost == []
    assert [record.id for record in store.jobs.list()] == [made[0].id]


def test_where_no_server_is_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "FIRST_WAIT", 0.01)
    with Client("http://127.0.0.1:9") as client, pytest.raises(UnreachableError, match=r"127\.0\.0\.1:9"):
        client.jobs.page()
    with pytest.raises(BadInputError, match="URL"):
        Client("ftp://x")


def test_events_are_followed_without_end(url: str, store: Store) -> None:
    with Client(url) as client:
        first = store.events.append("job.waiting", "a", {}, 1.0)
        received = client.events.follow(0, ("job",))
        assert next(received).id == first
        later = threading.Timer(0.2, lambda: store.events.append("job.ended", "a", {"why": "0"}, 2.0))
        later.start()
        assert next(received).detail == {"why": "0"}
        later.join()
