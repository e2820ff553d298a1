"""The loop with an engine in memory: who is stopped, for whom, and how it goes on."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from driven_loop import Chosen, states, until

from trimtab.core import Node
from trimtab.schedule import JobFolder, Scheduler, Submission, policy
from trimtab.store import JobState, Store

Submit = Callable[..., Submission]
MakeEngine = Callable[..., Any]
MakeScheduler = Callable[..., Scheduler]
Contested = Callable[[str], tuple[Any, Scheduler]]


@pytest.fixture
def contested(submit: Submit, memory_engine: MakeEngine, scheduler: MakeScheduler) -> Contested:
    """One accelerator: a job of low class, which saves as told, has it, and an urgent one waits."""

    def begin(checkpoint: str) -> tuple[Any, Scheduler]:
        engine = memory_engine(Node("n", 8.0, 2.0**34, "T4", 1))
        loop = scheduler(engine, "priority")
        submit("low", f"priority: low\nresources: {{gpus: 1}}\ncheckpoint: {{{checkpoint}}}")
        loop.step()
        loop.step()
        submit("high", "priority: urgent\nresources: {gpus: 1}")
        return engine, loop

    return begin


def test_a_run_whose_stop_fails_goes_on_and_is_stopped_again(
    store: Store,
    submit: Submit,
    memory_engine: MakeEngine,
    scheduler: MakeScheduler,
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = memory_engine()
    stop, tries = engine.stop, list[str]()

    def fail_once(run_id: str, grace: float) -> None:
        tries.append(run_id)
        if len(tries) == 1:
            raise KeyError("status")
        stop(run_id, grace)

    engine.stop = fail_once
    loop = scheduler(engine)
    submit("a")
    loop.step()
    loop.step()
    there = store.jobs.get("a")
    store.jobs.change(there, JobState.STOPPING, replace(there.run, then=JobState.WAITING))
    until(lambda: "job a cannot be stopped yet: KeyError: 'status' (line " in caplog.text, loop.step)
    assert engine.keys() == ["a-1"]
    until(lambda: engine.keys() == ["a-1", "a-2"], loop.step)
    assert tries == ["run-a-1", "run-a-1"]


def test_a_cancelled_job_stops_and_is_not_asked_to_save(
    store: Store, submit: Submit, memory_engine: MakeEngine, scheduler: MakeScheduler
) -> None:
    engine = memory_engine()
    loop = scheduler(engine)
    submit("a", "checkpoint: USR1")
    loop.step()
    loop.step()
    there = store.jobs.get("a")
    store.jobs.change(there, JobState.STOPPING, replace(there.run, then=JobState.CANCELLED))
    until(lambda: states(store) == {"a": "cancelled"}, loop.step)
    assert engine.signals == []
    assert engine.running() == {}


def test_a_job_of_higher_class_takes_the_place_of_one_that_saves_and_goes_on_later(
    store: Store, contested: Contested
) -> None:
    engine, loop = contested("signal: USR2, seconds: 20")
    until(lambda: engine.signals == [("run-low-1", "USR2")], loop.step)
    assert states(store) == {"low": "stopping", "high": "waiting"}
    assert engine.keys() == ["low-1"]
    JobFolder.of("low").saved.touch()
    until(lambda: states(store) == {"low": "waiting", "high": "running"}, loop.step)
    until(lambda: store.jobs.get("low").outlook.why, loop.step)
    waits = store.jobs.get("low").outlook.why
    assert all(part in waits for part in ("1 of 1 t4", "needs 1", "restarts so far: 1", "preempted by high"))
    engine.end("run-high-1")
    until(lambda: states(store) == {"low": "running", "high": "ended"}, loop.step)
    assert engine.keys() == ["low-1", "high-1", "low-2"]
    assert store.jobs.get("low").run.restarts == 1
    reason = next(d.reason for d in store.ledger.list() if d.action["do"] == "preempt")
    assert all(part in reason for part in ("high (high, priority urgent)", "its own priority is low"))
    assert [d.action["do"] for d in store.ledger.list() if d.subject == "low (low)"] == [
        "start",
        "preempt",
        "start",
    ]


def test_a_job_without_a_checkpoint_is_preempted_only_if_its_file_allows_it(
    store: Store, submit: Submit, memory_engine: MakeEngine, scheduler: MakeScheduler
) -> None:
    engine = memory_engine(Node("n", 8.0, 2.0**34, "T4", 1))
    loop = scheduler(engine, "priority")
    submit("low", "priority: low\nresources: {gpus: 1}")
    until(lambda: states(store)["low"] == "running", loop.step)
    submit("high", "priority: urgent\nresources: {gpus: 1}")
    for _ in range(3):
        loop.step()
    assert states(store) == {"low": "running", "high": "waiting"}
    engine.end("run-low-1")
    until(lambda: states(store)["high"] == "running", loop.step)
    engine.end("run-high-1")
    submit("free", "priority: low\nresources: {gpus: 1}\npreemptible: true")
    until(lambda: states(store)["free"] == "running", loop.step)
    submit("next", "priority: urgent\nresources: {gpus: 1}")
    until(lambda: states(store)["next"] == "running", loop.step)
    assert "restart 1" in store.jobs.get("free").run.reason


def test_a_hard_deadline_that_cannot_be_met_is_refused_with_its_estimate(
    store: Store, submit: Submit, memory_engine: MakeEngine, scheduler: MakeScheduler
) -> None:
    loop = scheduler(memory_engine(Node("n", 8.0, 2.0**34, "T4", 1)), "trimtab")
    submit("late", "resources: {gpus: 1}\nwork: 720\nspeeds: {t4: 1}\ndeadline: {by: 1m, hard: true}")
    until(lambda: states(store) == {"late": "refused"}, loop.step)
    reason = store.jobs.get("late").run.reason
    assert "deadline" in reason
    assert "12m" in reason
    assert "1m" in reason.replace("12m", "")


def test_a_job_that_ends_by_itself_while_it_is_to_be_stopped_has_ended(
    store: Store, contested: Contested
) -> None:
    engine, loop = contested("seconds: 20")
    until(lambda: engine.signals, loop.step)
    engine.end("run-low-1")
    until(lambda: states(store) == {"low": "ended", "high": "running"}, loop.step)


def test_a_job_that_ignores_its_signal_is_stopped_after_the_bound_and_said_so(
    store: Store, contested: Contested
) -> None:
    _, loop = contested("seconds: 0.1")
    until(lambda: states(store)["high"] == "running", loop.step)
    assert "within 200 ms of USR1" in store.jobs.get("low").run.reason


def test_an_elastic_job_saves_and_goes_on_with_more_or_fewer_workers(
    store: Store, submit: Submit, memory_engine: MakeEngine
) -> None:
    engine, chosen = memory_engine(), Chosen()
    loop = Scheduler(store, engine, chosen, "chosen")
    submit("wide", "resources: {gpus: 1..4}\ncheckpoint: USR1")
    seen = []
    for workers in (1, 4, 2):
        chosen.workers = workers
        until(lambda: store.jobs.get("wide").state is JobState.STOPPING or not engine.runs, loop.step)
        JobFolder.of("wide").make()
        JobFolder.of("wide").saved.touch()
        until(lambda: store.jobs.get("wide").state is JobState.RUNNING, loop.step)
        seen.append([(part.node, part.workers) for part in store.jobs.get("wide").run.parts])
    assert seen == [[("n1", 1)], [("n1", 2), ("n2", 2)], [("n1", 2)]]
    done = [entry.action["do"] for entry in reversed(store.ledger.list())]
    assert done == ["start", "grow", "start", "shrink", "start"]
    assert store.ledger.list(1)[0].reason == "2 are best"


def test_a_budget_that_is_spent_ends_a_job(store: Store, submit: Submit, memory_engine: MakeEngine) -> None:
    engine = memory_engine()
    loop = Scheduler(store, engine, policy("fifo"), "fifo", prices={"t4": 1e6})
    submit("a", "resources: {gpus: 1}\nbudget: $0.01")
    until(lambda: states(store) == {"a": "failed"}, loop.step)
    record = store.jobs.get("a")
    assert "budget" in record.run.reason
    assert "$0.0100" in record.run.reason
    assert record.run.spent > 0.01
