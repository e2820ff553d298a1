"""Notes: the last one under a name is there."""

from trimtab.store import Store


def test_a_note_takes_the_place_of_the_one_before(store: Store) -> None:
    assert store.notes.get("scheduler") is None
    store.notes.put("scheduler", {"engine": "local://"}, 1.0)
    store.notes.put("scheduler", {"engine": "ray://", "groups": [1.5, None]}, 2.0)
    note = store.notes.get("scheduler")
    assert note is not None
    assert (note.time, note.body) == (2.0, {"engine": "ray://", "groups": [1.5, None]})
