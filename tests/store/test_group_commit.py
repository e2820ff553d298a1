"""Writes that belong together, and writers at the same moment who share a commit."""

import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from trimtab.core import BadInputError, Decision, Outcome, StorageError
from trimtab.store import JobRecord, JobState, Store, open_store

THREADS = 12


def ids(store: Store) -> list[str]:
    return sorted(decision.id for decision in store.ledger.list(1000))


def at_once(work: Callable[[int], object], threads: int = THREADS) -> list[Exception]:
    """Run `work` in many threads that start together; what it raised."""
    start, raised = threading.Barrier(threads), list[Exception]()

    def run(number: int) -> None:
        start.wait()
        try:
            work(number)
        except Exception as error:
            raised.append(error)

    running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return raised


def test_what_is_written_together_is_kept_together(
    store: Store, make_decision: Callable[..., Decision]
) -> None:
    with store.together():
        store.ledger.record(make_decision("d1"))
        store.ledger.record_outcome(Outcome("d1", 2.0, {"time": 3.0}))
        assert len(store.ledger.outcomes("d1")) == 1
        with open_store_beside(store) as other:
            assert other.ledger.list() == ()
    assert len(store.ledger.outcomes("d1")) == 1


def open_store_beside(store: Store) -> Store:
    address = store._database.address
    return open_store(address.url.render_as_string(hide_password=False))


def test_what_fails_together_is_not_kept_at_all(store: Store, make_decision: Callable[..., Decision]) -> None:
    job = JobRecord("j1", 1.0, "job", "t", "app", JobState.WAITING, {})

    def fail() -> None:
        with store.together():
            store.ledger.record(make_decision("d1"))
            with store.together():
                store.jobs.submit([job])
            raise BadInputError("no")

    with pytest.raises(BadInputError, match="no"):
        fail()
    assert ids(store) == []
    assert store.jobs.list() == ()


def test_a_write_within_that_fails_fails_alone(store: Store, make_decision: Callable[..., Decision]) -> None:
    with store.together():
        store.ledger.record(make_decision("d1"))
        with pytest.raises(BadInputError, match="decision d1"):
            store.ledger.record(make_decision("d1", reason="another"))
        store.ledger.record(make_decision("d2"))
    assert ids(store) == ["d1", "d2"]


def test_who_reads_and_writes_alone_loses_no_count(store: Store) -> None:
    def count(number: int) -> None:
        with store.together(alone="count"):
            note = store.notes.get("count")
            store.notes.put("count", {"n": note.body["n"] + 1 if note else 1}, 1.0)

    assert at_once(count) == []
    note = store.notes.get("count")
    assert note is not None
    assert note.body == {"n": THREADS}


def test_many_writers_at_once_keep_all_and_each_hears_of_its_own_failure(
    store: Store, make_decision: Callable[..., Decision]
) -> None:
    def write(number: int) -> None:
        for n in range(10):
            store.ledger.record(make_decision(f"{number:02}-{n}"))
            store.events.append("wrote", f"{number:02}", {}, 1.0)
        with store.together():
            store.ledger.record(make_decision(f"{number:02}-last"))
        if number % 2:
            with store.together():
                store.ledger.record(make_decision(f"{number:02}-never"))
                raise BadInputError(f"{number}")

    raised = at_once(write)
    assert sorted(int(str(error)) for error in raised) == list(range(1, THREADS, 2))
    assert ids(store) == sorted(
        f"{number:02}-{n}" for number in range(THREADS) for n in [*map(str, range(10)), "last"]
    )


def test_writers_at_the_same_moment_share_a_commit(
    tmp_path: Path, make_decision: Callable[..., Decision]
) -> None:
    with open_store(f"sqlite:///{tmp_path}/s.sqlite") as store:
        other = sqlite3.connect(tmp_path / "s.sqlite", isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        group_commit = store._database._commits
        assert group_commit is not None
        commits = []
        commit = group_commit._commit
        group_commit._commit = lambda group: (  # type: ignore[method-assign]
            commits.append(len(group.members)),
            commit(group),
        )[-1]

        def release_when_all_wait() -> None:
            while len(group_commit._queue) < THREADS - 1:
                time.sleep(0.01)
            other.execute("ROLLBACK")

        # All writers queue behind the first, which waits for the other program.
        release = threading.Thread(target=release_when_all_wait)
        release.start()
        assert at_once(lambda number: store.ledger.record(make_decision(f"d{number}"))) == []
        release.join()
        other.close()
        assert sum(commits) == THREADS == len(ids(store))
        assert len(commits) <= 3


def test_all_who_share_a_commit_that_fails_hear_of_it_and_none_is_kept(
    tmp_path: Path, make_decision: Callable[..., Decision], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trimtab.store.database.BUSY_TIMEOUT", 0.3)
    with open_store(f"sqlite:///{tmp_path}/s.sqlite") as store:
        other = sqlite3.connect(tmp_path / "s.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        raised = at_once(lambda number: store.ledger.record(make_decision(f"d{number}")), 4)
        assert len(raised) == 4
        assert all(isinstance(error, StorageError) and "busy" in str(error) for error in raised)
        other.execute("ROLLBACK")
        other.close()
        assert at_once(lambda number: store.ledger.record(make_decision(f"e{number}")), 4) == []
        assert ids(store) == ["e0", "e1", "e2", "e3"]


def test_what_an_effect_returns_comes_back_and_what_it_raises_is_raised(
    store: Store, make_decision: Callable[..., Decision]
) -> None:
    def effect() -> int:
        store.ledger.record(make_decision("d1"))
        return store.events.append("tick", "clock", {}, 1.0)

    def fails() -> None:
        store.ledger.record(make_decision("d2"))
        raise ValueError("not so")

    assert store.write(effect) == 1
    with pytest.raises(ValueError, match="not so"):
        store.write(fails)
    assert ids(store) == ["d1"]


def test_many_are_written_with_one_commit_and_one_that_fails_fails_alone(
    store: Store, make_decision: Callable[..., Decision]
) -> None:
    def fail() -> None:
        store.ledger.record(make_decision("half"))
        raise BadInputError("changed my mind")

    first, failed, third = store.write_all(
        [
            lambda: store.ledger.record(make_decision("d1")),
            fail,
            lambda: [item.id for item in store.ledger.list()],
        ]
    )
    assert first is None
    assert isinstance(failed, BadInputError)
    assert third == ["d1"]
    assert ids(store) == ["d1"]


def test_of_many_writes_none_is_kept_when_the_commit_fails(
    tmp_path: Path, make_decision: Callable[..., Decision]
) -> None:
    with open_store(f"sqlite:///{tmp_path}/s.sqlite") as store:

        def sabotage() -> None:
            store._database._here.connection.connection.execute("ROLLBACK")  # type: ignore[union-attr]

        done = store.write_all(
            [
                lambda: store.ledger.record(make_decision("d1")),
                sabotage,
                lambda: store.ledger.record(make_decision("d2")),
            ]
        )
        assert all(isinstance(item, Exception) for item in done)
        assert ids(store) == []
        store.ledger.record(make_decision("d3"))
        assert ids(store) == ["d3"]
