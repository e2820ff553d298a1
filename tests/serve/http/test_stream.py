"""Events as they happen: live, from where one left off, one's own alone, and not for who cannot keep up."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from httpx import Client, Response

from trimtab.serve.access import LOCAL, Principal
from trimtab.serve.http import stream as hub_module
from trimtab.serve.http.stream import Batch, Hub
from trimtab.store import Event, Role, Store, Token


@contextmanager
def stream(client: Client, **result: object) -> Iterator[Iterator[tuple[str, dict[str, object]]]]:
    """Kinds and data of events as they arrive; begins when the server listens."""
    with client.stream("GET", "/v1/events/stream", timeout=20, **result) as answer:  # type: ignore[arg-type]
        assert answer.status_code == 200
        yield _told(answer)


def _told(answer: Response) -> Iterator[tuple[str, dict[str, object]]]:
    kind = ""
    for line in answer.iter_lines():
        name, _, value = line.partition(": ")
        if line == ": listening":
            yield "listening", {}
        elif name == "event":
            kind = value
        elif name == "data":
            yield kind, json.loads(value)


def test_events_are_told_as_they_happen_and_only_ones_own(caller, store: Store) -> None:  # type: ignore[no-untyped-def]
    client = caller("a", "viewer")
    with stream(client) as received:
        assert next(received)[0] == "listening"
        store.events.append("job.waiting", "theirs", {}, 1.0, "b")
        store.events.append("audit", "mine", {}, 1.0, "a")
        store.events.append("job.waiting", "mine", {"why": "<b>"}, 1.0, "a")
        kind, event = next(received)
        assert (kind, event["subject"], event["tenant"]) == ("job.waiting", "mine", "a")


def test_a_listener_goes_on_after_the_last_event_it_has_seen(caller, store: Store) -> None:  # type: ignore[no-untyped-def]
    client = caller()
    ids = [store.events.append("job.waiting", f"j{number}", {}, 1.0, "a") for number in range(5)]
    with stream(client, headers={"Last-Event-ID": str(ids[2])}) as received:
        store.events.append("job.ended", "j5", {}, 1.0, "a")
        result = [next(received) for _ in range(4)]
        assert [event["subject"] for kind, event in result if kind != "listening"] == ["j3", "j4", "j5"]


def test_kinds_may_be_asked_for_by_name_or_by_family(caller, store: Store) -> None:  # type: ignore[no-untyped-def]
    client = caller()
    with stream(client, params={"kind": ["job", "alert.raised"], "since": 0}) as received:
        for kind in ("drift", "job.ended", "alert.cleared", "alert.raised"):
            store.events.append(kind, "x", {}, 1.0)
        kinds = [kind for kind, _ in (next(received) for _ in range(3))]
        assert sorted(kinds) == ["alert.raised", "job.ended", "listening"]


def test_a_stream_ends_with_its_token(caller, store: Store) -> None:  # type: ignore[no-untyped-def]
    client = caller("a", "viewer")
    token = store.tokens.page().items[0]
    with stream(client) as received:
        assert next(received)[0] == "listening"
        store.tokens.revoke(token.id)
        kind = ""
        while kind != "dropped":
            store.events.append("job.ended", "x", {}, 1.0, "a")
            kind, result = next(received)
        assert (kind, result) == ("dropped", "the token has expired or was revoked")


@pytest.mark.parametrize("headers", [{"Last-Event-ID": "x"}, {"Last-Event-ID": "-1"}])
def test_an_id_that_is_none_is_a_problem(caller, headers: dict[str, str]) -> None:  # type: ignore[no-untyped-def]
    assert caller().get("/v1/events/stream", headers=headers).status_code == 400


def test_five_hundred_listeners_cost_one_look_and_one_text(store: Store) -> None:
    looks = 0

    async def ask(question):  # type: ignore[no-untyped-def]
        nonlocal looks
        looks += 1
        return question()

    async def listen() -> None:
        hub = Hub(store, ask)
        task = asyncio.create_task(hub.run())
        while not looks:
            await asyncio.sleep(0.01)
        viewer = Principal(Token("v", "v", "a", Role.VIEWER, frozenset({"*"}), 0.0))
        listeners = [hub.listen(viewer) for _ in range(500)]
        before = looks
        store.events.append("job.ended", "x", {}, 1.0, "a")
        batches = await asyncio.gather(*(listener.next() for listener in listeners))
        assert looks - before < len(listeners) / 10  # however long the machine takes to wake them
        texts = {id(batch.text(viewer, ())) for batch in batches if batch is not None}
        assert len(texts) == 1
        task.cancel()

    asyncio.run(listen())


def test_a_slow_listener_sees_which_events_its_bounded_queue_lacks(store: Store) -> None:
    async def listen() -> None:
        async def ask(question):  # type: ignore[no-untyped-def]
            return question()

        hub = Hub(store, ask)
        slow, quick = hub.listen(LOCAL), hub.listen(LOCAL)
        for number in range(1000):
            event = Event(number + 1, 1.0, "job.ended", "x", {})
            await hub._pass_on(Batch(number, (event,)))
            assert await quick.next() is not None
        batch = await slow.next()
        assert batch is not None
        assert 0 < batch.after < 1000
        following = [await slow.next() for _ in range(1000 - batch.last)]
        assert [one.after for one in following if one is not None] == list(range(batch.last, 1000))

    asyncio.run(listen())


def test_silence_is_broken_by_a_heartbeat(
    caller,
    monkeypatch: pytest.MonkeyPatch,  # type: ignore[no-untyped-def]
) -> None:
    monkeypatch.setattr(hub_module, "HEARTBEAT", 0.5)
    with caller().stream("GET", "/v1/events/stream", timeout=20) as answer:
        lines = answer.iter_lines()
        assert any(line == ": still here" for line in lines)
