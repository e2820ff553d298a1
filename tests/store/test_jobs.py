"""Jobs change state once for each who asks, together with the ledger, or not at all."""

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from trimtab.core import BadInputError, Decision, NotFoundError, Outcome, StorageError
from trimtab.store import JobRecord, JobRun, JobState, OutdatedError, Outlook, Part, Store


def job(id: str, created: float = 1.0, tenant: str = "vision") -> JobRecord:
    spec = {"command": ["true"], "budget": float("inf"), "nested": {"a": [1, None]}}
    return JobRecord(id, created, "resnet", tenant, "resnet50", JobState.WAITING, spec)


def test_jobs_come_back_as_they_were_submitted(store: Store) -> None:
    store.jobs.submit([job("b", 2.0), job("a", 1.0, "language")])
    assert store.jobs.get("b") == job("b", 2.0)
    assert [item.id for item in store.jobs.active()] == ["a", "b"]
    assert [item.id for item in store.jobs.list()] == ["b", "a"]
    assert [item.id for item in store.jobs.list(tenant="language")] == ["a"]
    assert store.jobs.list(states=[JobState.RUNNING]) == ()
    with pytest.raises(NotFoundError, match='no job "c"'):
        store.jobs.get("c")


def test_all_jobs_of_a_submission_are_kept_or_none(store: Store) -> None:
    store.jobs.submit([job("a")])
    with pytest.raises(StorageError):
        store.jobs.submit([job("b"), job("a")])
    with pytest.raises(BadInputError, match="the job's tenant"):
        store.jobs.submit([job("b"), job("c", tenant="\0")])
    assert [item.id for item in store.jobs.active()] == ["a"]


def test_a_change_keeps_the_run_and_the_ledgers_entries_with_it(
    store: Store, make_decision: Callable[..., Decision]
) -> None:
    store.jobs.submit([job("a")])
    run = JobRun(
        attempt=1,
        parts=(Part("node-1", 2), Part("node-2", 1)),
        group="t4",
        run_id="run",
        since=5.0,
        held={"t4": 12.5},
        then=JobState.CANCELLED,
    )
    before = store.jobs.get("a")
    running = store.jobs.change(before, JobState.RUNNING, run, decision=make_decision("d1"))
    assert store.jobs.get("a") == running
    assert running.run == run
    assert running.key == "a-1"
    ended = store.jobs.change(running, JobState.ENDED, outcome=Outcome("d1", 9.0, {"time": 4.0}))
    assert store.ledger.outcomes("d1")[0].measured == {"time": 4.0}
    assert store.jobs.active() == ()
    assert store.jobs.ended() == (ended,)
    assert ended.state.final


def test_whoever_comes_second_changes_nothing_at_all(
    store: Store, make_decision: Callable[..., Decision]
) -> None:
    store.jobs.submit([job("a")])
    before = store.jobs.get("a")
    store.jobs.change(before, JobState.CANCELLED)
    with pytest.raises(OutdatedError, match="job a "):
        store.jobs.change(before, JobState.STARTING, decision=make_decision("d1"))
    assert store.jobs.get("a").state == JobState.CANCELLED
    assert store.ledger.list() == ()


def test_of_many_at_once_one_wins(store: Store) -> None:
    store.jobs.submit([job("a")])
    before, won = store.jobs.get("a"), list[int]()

    def change(number: int) -> None:
        try:
            store.jobs.change(before, JobState.STARTING, replace(before.run, attempt=number))
            won.append(number)
        except OutdatedError:
            pass

    threads = [threading.Thread(target=change, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [store.jobs.get("a").run.attempt] == won


def test_notes_leave_the_version_alone(store: Store) -> None:
    store.jobs.submit([job("a"), job("b")])
    before = store.jobs.get("a")
    store.jobs.note({"a": 7.5}, {"a": Outlook("waits for b", 10.0, 5.0, None)})
    after = store.jobs.get("a")
    assert after == replace(before, done=7.5, outlook=Outlook("waits for b", 10.0, 5.0, None))
    assert store.jobs.get("b") == job("b")
    running = store.jobs.change(before, JobState.RUNNING)
    assert running.outlook == Outlook()


def test_the_pulse_tells_of_submissions_and_wishes_to_end(store: Store) -> None:
    nothing = store.jobs.pulse()
    store.jobs.submit([job("a")])
    submitted = store.jobs.pulse()
    store.jobs.change(store.jobs.get("a"), JobState.STOPPING)
    assert len({nothing, submitted, store.jobs.pulse()}) == 3
