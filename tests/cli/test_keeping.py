"""What is kept at a server that goes away and comes back, or does not."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs the serve extra")


from trimtab.cli import place
from trimtab.cli.place import LedgerQueue, Server, use_server
from trimtab.core import Answer, Decision, Estimate, StorageError, TrimtabError
from trimtab.serve.http import HttpApplication
from trimtab.serve.processes.server import listening
from trimtab.serve.settings import Settings
from trimtab.store import Role, Store, open_store

Serve = Callable[[], AbstractContextManager[int]]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path}/there.sqlite") as made:
        yield made


@pytest.fixture
def serve(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Serve, and ask, for as long as the block takes; each time at the same port."""
    monkeypatch.setattr(place, "_PAUSE", 0.0)
    _, token = store.tokens.make("cli", "team", Role.USER)
    ports = [0]

    @contextmanager
    def serving() -> Iterator[int]:
        settings = Settings(listen=f"127.0.0.1:{ports[-1]}", dashboard=False, rate_limit=0.0)
        with listening(HttpApplication(store, settings), settings) as server:
            ports.append(server.port)
            use_server(Server(f"http://127.0.0.1:{server.port}", token))
            yield server.port

    try:
        yield serving
    finally:
        use_server(None)


def decided(id: str) -> Decision:
    said = {"time": Estimate(10.0, 8.0, 12.0, 0.9, "s")}
    rule = Answer("rule:x", {"nodes": 1}, said)
    return Decision(id, 1.0, "trial", "resnet", {"nodes": 1}, said, "rule:x", rule, None, (), "why")


def test_what_a_server_missed_is_offered_again_when_it_is_back(serve: Serve, store: Store) -> None:
    ledger = LedgerQueue(first=True)
    with serve():
        first = ledger.record(decided("one"))
        assert ledger.id_of("one") == first.id == store.ledger.list()[0].id != "one"
    ledger.record_outcome(first.id, {"time": 9.0}, "while it was away")
    second = ledger.record(decided("two"))
    assert (second.id, ledger.id_of("two")) == ("two", "")
    with pytest.raises(TrimtabError, match="1 decision and 1 outcome"):
        ledger.require()
    with serve():
        ledger.record_outcome(second.id, {"time": 11.0})
        ledger.require()
    kept = ledger.id_of("two")
    assert {each.id for each in store.ledger.list()} == {first.id, kept}
    assert [each.measured for each in store.ledger.outcomes(first.id)] == [{"time": 9.0}]
    assert [each.measured for each in store.ledger.outcomes(kept)] == [{"time": 11.0}]


def test_a_first_decision_that_is_refused_ends_it_before_anything_is_measured(serve: Serve) -> None:
    with serve() as port:
        use_server(Server(f"http://127.0.0.1:{port}", "tt_000000000000_x"))
        ledger = LedgerQueue(first=True)
        with pytest.raises(TrimtabError, match="token"):
            ledger.record(decided("one"))
        assert ledger.unsent == ""


def test_a_store_here_that_fails_ends_it_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "no-folder").touch()
    monkeypatch.setenv("TRIMTAB_STORE", f"sqlite:///{tmp_path}/no-folder/trimtab.sqlite")
    with pytest.raises(StorageError):
        LedgerQueue().record(decided("one"))
