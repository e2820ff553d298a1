"""The loop with an engine in memory: who starts, follows, waits, is tried again or refused."""

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from driven_loop import in_thread, states, until
from job_texts import parse_jobs

from trimtab.core import BadInputError, Launch, Node
from trimtab.schedule import Scheduler, Submission, policy
from trimtab.store import JobState, Store, Tenant

Submit = Callable[..., Submission]
MakeEngine = Callable[..., Any]
MakeScheduler = Callable[..., Scheduler]


def test_jobs_start_where_there_is_room_and_others_follow(
    store: Store, submit: Submit, memory_engine: MakeEngine, scheduler: MakeScheduler
) -> None:
    engine = memory_engine()
    loop = scheduler(engine)
    submit("a", "resources: {gpus: 2, cpus: 2, memory: 1GiB}\nenvironment: {A: b}")
    submit("b", "resources: {gpus: 2}")
    submit("c", "resources: {gpus: 1}")
    loop.step()
    loop.step()
    assert states(store) == {"a": "running", "b": "running", "c": "waiting"}
    first = engine.launches[0]
    assert (first.key, first.workers, first.gpus, first.cpus, first.memory) == ("a-1", 2, 1.0, 2.0, 2.0**30)
    assert {"A": "b", "TRIMTAB_JOB": "a", "TRIMTAB_ATTEMPT": "1"}.items() <= first.environment.items()
    assert {len(launch.parts) for launch in engine.launches} == {1}
    assert engine.launches[0].parts != engine.launches[1].parts
    assert store.jobs.get("c").outlook.why
    engine.end("run-a-1")
    loop.step()
    loop.step()
    assert states(store) == {"a": "ended", "b": "running", "c": "running"}
    (start,) = [d for d in store.ledger.list(kind="schedule") if d.subject == "a (a)"]
    assert start.action["do"] == "start"
    assert start.action["workers"] == 2
    assert [o.note for o in store.ledger.outcomes(start.id)] == ["status 0"]


def test_an_end_while_no_scheduler_ran_is_recorded_by_the_next_one(
    store: Store, submit: Submit, memory_engine: MakeEngine, scheduler: MakeScheduler
) -> None:
    engine = memory_engine()
    submit("a", "resources: {gpus: 1}")
    loop = scheduler(engine)
    until(lambda: states(store) == {"a": "running"}, loop.step)
    engine.end("run-a-1")
    with in_thread(scheduler(engine)):
        until(lambda: states(store)["a"] != "running")
    assert states(store) == {"a": "ended"}
    assert len(engine.launches) == 1


def test_a_failed_job_is_tried_again_as_often_as_requested_and_a_lost_one_too(
    store: Store, submit: Submit, memory_engine: MakeEngine, scheduler: MakeScheduler
) -> None:
    engine = memory_engine()
    loop = scheduler(engine)
    submit("a", "retries: 1")
    submit("b")
    for attempt, what in ((1, "lost"), (2, "failed"), (3, "lost"), (4, "failed")):
        loop.step()
        engine.end(f"run-a-{attempt}", what, "status 3")
        if attempt == 1:
            engine.end("run-b-1", "failed", "status 7")
        loop.step()
    assert states(store) == {"a": "failed", "b": "failed"}
    assert store.jobs.get("a").run.reason == "status 3"
    assert engine.keys() == ["a-1", "b-1", "a-2", "a-3", "a-4"]


def test_what_cannot_be_started_fails_with_the_engines_sentence_and_no_node_is_no_failure(
    store: Store, submit: Submit, memory_engine: MakeEngine, scheduler: MakeScheduler
) -> None:
    engine = memory_engine()
    submit("a", "pass: [PATH]")  # which the scheduler has, and nobody allowed
    scheduler(engine).step()
    assert store.jobs.get("a").state is JobState.FAILED
    assert "PATH" in store.jobs.get("a").run.reason

    def refuse(launch: Launch) -> str:
        raise BadInputError("there is no command")

    submit("b")
    engine.launch = refuse
    scheduler(engine).step()
    assert store.jobs.get("b").run.reason == "it cannot be started: there is no command"


def test_a_hard_deadline_that_cannot_be_met_is_refused_with_a_reason(
    store: Store, submit: Submit, memory_engine: MakeEngine, scheduler: MakeScheduler
) -> None:
    known = "resources: {gpus: 1}\nwork: 1000\nspeeds: {t4: 1}\n"
    submit("late", f"{known}deadline: {{by: 60s, hard: true}}")
    submit("soft", f"{known}deadline: 60s")
    submit("fine", f"{known}deadline: {{by: 2h, hard: true}}")
    engine = memory_engine()
    scheduler(engine, "edf").step()
    assert states(store)["late"] == "refused"
    assert store.jobs.get("late").run.reason
    assert sorted(engine.keys()) == ["fine-1", "soft-1"]


def test_shares_that_fill_accelerators_to_the_brim_stay_where_they_are(
    store: Store, submit: Submit, memory_engine: MakeEngine, scheduler: MakeScheduler
) -> None:
    engine = memory_engine(Node("n", 8.0, 2.0**34, "T4", 2))
    loop = scheduler(engine)
    shares = (0.5, 0.3, 0.2, 0.4, 0.4, 0.2)  # two full ones, if put together in this order
    for number, share in enumerate(shares):
        submit(f"s{number}", f"resources: {{share: {share}}}")
    loop.step()
    submit("late", "resources: {share: 0.2}")
    for _ in range(3):
        loop.step()
    assert states(store) == {**{f"s{number}": "running" for number in range(6)}, "late": "waiting"}
    for number in range(6):
        engine.end(f"run-s{number}-1")
    until(lambda: states(store)["late"] == "running", loop.step)


def test_a_guaranteed_tenant_gets_back_what_another_has_borrowed(
    store: Store, submit: Submit, memory_engine: MakeEngine, scheduler: MakeScheduler
) -> None:
    engine = memory_engine()
    loop = scheduler(engine)
    store.tenants.put(Tenant("owner", guarantee=2.0))
    for number in range(4):
        submit(f"borrowed{number}", "tenant: guest\nresources: {gpus: 1}\npreemptible: true")
    loop.step()
    loop.step()
    submit("owned", "tenant: owner\nresources: {gpus: 2}")
    until(lambda: store.jobs.get("owned").state is JobState.RUNNING, loop.step)
    assert sorted(states(store).values()) == ["running", "running", "running", "waiting", "waiting"]


def test_a_job_that_runs_on_another_engine_is_left_alone(
    store: Store, submit: Submit, memory_engine: MakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = memory_engine(), memory_engine()
    submit("a")
    loop = Scheduler(store, first, policy("fifo"), "fifo", address="local://?nodes=2")
    loop.step()
    loop.step()
    other = Scheduler(store, second, policy("fifo"), "fifo", address="ray://elsewhere")
    for _ in range(5):
        other.step()
    assert states(store) == {"a": "running"}
    assert second.launches == []
    assert len(re.findall(r"local://,.* ray://elsewhere", caplog.text)) == 1
    first.end("run-a-1")
    Scheduler(store, first, policy("fifo"), "fifo", address="local://").step()
    assert states(store) == {"a": "ended"}


@pytest.mark.benchmark
def test_a_round_with_many_jobs(store: Store, submit: Submit, memory_engine: MakeEngine, capsys: Any) -> None:
    nodes = [Node(f"n{number}", 64.0, 2.0**38, ("T4", "A100")[number % 2], 8) for number in range(250)]
    loop = Scheduler(store, memory_engine(*nodes), policy("fifo"), "fifo")
    (job,) = parse_jobs("name: a\ncommand: 'true'\nresources: {gpus: 4}\ncheckpoint: USR1", "job.yaml")
    store.jobs.submit([job.named(f"j{number}", time.time()).record() for number in range(1000)])
    for round in ("a round that starts 500 jobs", "one that hears of it", "one in which nothing happens"):
        began = time.perf_counter()
        loop.step()
        with capsys.disabled():
            print(f"\n1,000 jobs, 2,000 accelerators, {round}: {time.perf_counter() - began:.2f} s", end="")
