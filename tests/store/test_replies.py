"""A request with a key does its work once, however often and by however many it is sent."""

import threading
from collections.abc import Callable

import pytest

from trimtab.core import BadInputError, Decision, SimulatedClock
from trimtab.store import Reply, ReusedKeyError, Store
from trimtab.store.replies import KEPT, Replies


def keep(store: Store, decision: Decision) -> Callable[[], Reply]:
    def effect() -> Reply:
        store.ledger.record(decision)
        return Reply(201, f'{{"id": "{decision.id}"}}')

    return effect


def test_a_repeated_request_gets_the_first_reply_and_does_nothing(
    store: Store, make_decision: Callable[..., Decision]
) -> None:
    first = store.replies.once("k", "ann", "POST /x", keep(store, make_decision("d1")))
    again = store.replies.once("k", "ann", "POST /x", keep(store, make_decision("d2")))
    assert first == Reply(201, '{"id": "d1"}')
    assert again == Reply(201, '{"id": "d1"}', repeated=True)
    assert store.replies.find("k", "ann", "POST /x") == again
    assert [decision.id for decision in store.ledger.list()] == ["d1"]


def test_a_key_is_its_owners_alone(store: Store, make_decision: Callable[..., Decision]) -> None:
    store.replies.once("k", "ann", "POST /x", keep(store, make_decision("d1")))
    other = store.replies.once("k", "bob", "POST /x", keep(store, make_decision("d2")))
    assert not other.repeated


def test_a_key_with_another_request_is_refused(store: Store, make_decision: Callable[..., Decision]) -> None:
    store.replies.once("k", "ann", "POST /x", keep(store, make_decision("d1")))
    with pytest.raises(ReusedKeyError, match='"k"'):
        store.replies.once("k", "ann", "POST /y", keep(store, make_decision("d2")))
    with pytest.raises(ReusedKeyError):
        store.replies.find("k", "ann", "POST /y")


def test_a_request_that_fails_leaves_nothing_and_may_be_sent_again(
    store: Store, make_decision: Callable[..., Decision]
) -> None:
    def half() -> Reply:
        store.ledger.record(make_decision("d1"))
        raise BadInputError("not so")

    with pytest.raises(BadInputError, match="not so"):
        store.replies.once("k", "ann", "POST /x", half)
    assert store.ledger.list() == ()
    assert not store.replies.once("k", "ann", "POST /x", keep(store, make_decision("d1"))).repeated


def test_of_many_who_send_the_same_one_does_it_and_all_get_its_reply(
    store: Store, make_decision: Callable[..., Decision]
) -> None:
    start, got = threading.Barrier(8), list[Reply]()

    def send(number: int) -> None:
        start.wait()
        got.append(store.replies.once("k", "ann", "POST /x", keep(store, make_decision(f"d{number}"))))

    threads = [threading.Thread(target=send, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = [decision.id for decision in store.ledger.list()]
    assert len(kept) == 1
    assert {reply.body for reply in got} == {f'{{"id": "{kept[0]}"}}'}
    assert sum(not reply.repeated for reply in got) == 1


def test_replies_are_forgotten_after_a_day(store: Store, make_decision: Callable[..., Decision]) -> None:
    clock = SimulatedClock(0.0)
    replies = Replies(store._database, clock)
    replies.once("k", "ann", "POST /x", keep(store, make_decision("d1")))
    clock.advance(KEPT + 1)
    assert replies.find("k", "ann", "POST /x") is None
    assert not replies.once("k", "ann", "POST /y", keep(store, make_decision("d2"))).repeated
    clock.advance(KEPT + 1)
    assert replies.prune() == 1
    assert replies.prune() == 0


def test_a_key_that_cannot_be_kept_is_refused(store: Store) -> None:
    for key in ("", "x" * 201, "a\nb", "\0"):
        with pytest.raises(BadInputError, match="key"):
            store.replies.once(key, "ann", "POST /x", lambda: Reply(200, "{}"))
