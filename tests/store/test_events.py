"""Notes: the last one under a name is there."""

import threading

import pytest

from trimtab.core import BadInputError
from trimtab.store import Event, Store


def test_events_come_back_in_the_order_they_were_added(store: Store) -> None:
    first = store.events.append("started", "run-1", {"nodes": 2, "tags": ["a", None]}, 5.0)
    second = store.events.append("ended", "run-1", {}, 4.0)
    assert first < second
    assert store.events.since(0) == (
        Event(first, 5.0, "started", "run-1", {"nodes": 2, "tags": ["a", None]}),
        Event(second, 4.0, "ended", "run-1", {}),
    )


def test_a_reader_goes_on_from_the_last_event_it_saw(store: Store) -> None:
    ids = [store.events.append("tick", "clock", {"n": n}, float(n)) for n in range(5)]
    page = store.events.since(ids[1], limit=2)
    assert [event.id for event in page] == ids[2:4]
    assert [event.id for event in store.events.since(page[-1].id)] == ids[4:]
    assert store.events.since(ids[-1]) == ()


def test_an_event_without_a_time_or_with_unstorable_text_is_refused(store: Store) -> None:
    with pytest.raises(BadInputError, match="time is NaN"):
        store.events.append("tick", "clock", {}, float("nan"))
    with pytest.raises(BadInputError, match="the event's subject"):
        store.events.append("tick", "\0", {}, 1.0)
    with pytest.raises(BadInputError, match="NaN"):
        store.events.append("tick", "clock", {"n": float("nan")}, 1.0)
    assert store.events.since(0) == ()


def test_a_follower_misses_no_event_of_concurrent_writers(store: Store) -> None:
    def write(name: str) -> None:
        for n in range(50):
            store.events.append("tick", name, {"n": n}, 1.0)

    writers = [threading.Thread(target=write, args=(f"writer-{n}",)) for n in range(4)]
    for writer in writers:
        writer.start()
    observed: list[Event] = []
    while any(writer.is_alive() for writer in writers):
        observed += store.events.since(observed[-1].id if observed else 0)
    observed += store.events.since(observed[-1].id if observed else 0)
    for name in ("writer-0", "writer-1", "writer-2", "writer-3"):
        assert [event.detail["n"] for event in observed if event.subject == name] == list(range(50))


def test_a_note_takes_the_place_of_the_one_before(store: Store) -> None:
    assert store.notes.get("scheduler") is None
    store.notes.put("scheduler", {"engine": "local://"}, 1.0)
    store.notes.put("scheduler", {"engine": "ray://", "groups": [1.5, None]}, 2.0)
    note = store.notes.get("scheduler")
    assert note is not None
    assert (note.time, note.body) == (2.0, {"engine": "ray://", "groups": [1.5, None]})
