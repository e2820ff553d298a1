"""Outcomes of predictions reach the models a moment after they are recorded, in the tenant they belong to."""

import time
from collections.abc import Callable, Iterator

import pytest

from trimtab.core import Answer, Decision, Estimate, Outcome
from trimtab.serve.access import LOCAL, Principal
from trimtab.serve.operations import Backend, OutcomeLearner, Service
from trimtab.store import Event, EventFilter, Role, Store, Token


@pytest.fixture
def service(store: Store) -> Iterator[Service]:
    token, learner = Token("t1", "test", "team", Role.USER, frozenset({"*"}), 0.0), OutcomeLearner()
    yield Service(Backend(store, learner=learner), Principal(token))
    learner.close()


def predicted(id: str, application: str = "join", kind: str = "predict") -> Decision:
    estimates = {"time": Estimate(10.0, 8.0, 12.0, 0.9, "s")}
    rule = Answer("rule:x", {"memory": "512MB"}, estimates)
    action: dict[str, str | int | float | bool | None] = {"memory": "512MB"}
    return Decision(id, time.time(), kind, application, action, estimates, "rule:x", rule, None, (), "why")


def noted(store: Store, kind: str = "outcome") -> tuple[Event, ...]:
    return store.events.page(500, EventFilter(kind)).items


def until(holds: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_an_outcome_is_noted_for_its_tenant_and_only_of_predictions(service: Service, store: Store) -> None:
    for made in (predicted("p1"), predicted("r1", kind="recommend")):
        store.ledger.record(made, "team")
    happened = [service.decisions.record_outcome(id, {"time": 11.0}) for id in ("r1", "p1")]
    until(lambda: noted(store))
    (event,) = noted(store)
    assert (event.tenant, event.subject, event.time) == ("team", "join", happened[1].recorded)
    assert event.detail["seconds"] == 11.0


def test_an_outcome_that_was_taken_back_is_not_noted(service: Service, store: Store) -> None:
    for id in ("p1", "p2"):
        store.ledger.record(predicted(id), "team")

    def fails() -> None:
        service.decisions.record_outcome("p1", {"time": 11.0})
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.write(fails)
    service.decisions.record_outcome("p2", {"time": 12.0})
    until(lambda: noted(store))
    assert [event.detail["decision"] for event in noted(store)] == ["p2"]


def test_outcomes_that_show_drift_say_so_to_their_tenant(service: Service, store: Store) -> None:
    for number in range(40):
        made = predicted(f"p{number:02}", f"application-{number}")
        store.ledger.record(made, "team")
        service.decisions.record_outcome(made.id, {"time": 40.0})
    until(lambda: noted(store, "drift") and len(noted(store)) == 40)
    assert {event.tenant for event in noted(store, "drift")} == {"team"}


def test_who_waits_for_it_is_told_what_it_shows(store: Store) -> None:
    service = Service(Backend(store), LOCAL)
    found = []
    for number in range(40):
        made = service.decisions.record(predicted(f"p{number:02}", f"application-{number}"))
        found += service.decisions.note_outcome(Outcome(made.id, time.time(), {"time": 40.0}))
    assert {item.name for item in found} >= {"accuracy"}
    assert len(noted(store)) == 40
