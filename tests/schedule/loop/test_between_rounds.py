"""Between rounds: free nodes go to jobs that the last round left ready; reasons are written in turn."""

from collections.abc import Callable
from typing import Any

import pytest
from driven_loop import Chosen, states, until
from job_texts import parse_jobs

from trimtab.core import Node
from trimtab.schedule import LoopSettings, Scheduler, Submission, cancel_job
from trimtab.store import JobState, Store, Tenant

Submit = Callable[..., Submission]
MakeEngine = Callable[..., Any]
MakeScheduler = Callable[..., Scheduler]


@pytest.fixture
def engine(memory_engine: MakeEngine) -> Any:
    return memory_engine(Node("n", 4.0, 2.0**34, "T4", 2))


def end(engine: Any, loop: Scheduler, *names: str) -> None:
    """Runs end, and the loop goes on without a round."""
    for name in names:
        engine.end(f"run-{name}-1")
    loop._has_news()
    loop._go_on()


def four_jobs_on_two_nodes(submit: Submit, engine: Any, scheduler: MakeScheduler) -> Scheduler:
    """A loop after its first round: jobs a and b run, c and d wait."""
    for name in "abcd":
        submit(name, "resources: {gpus: 1}")
    loop = scheduler(engine)
    loop.step()
    return loop


def test_jobs_start_in_order_on_nodes_that_become_free_without_a_round(
    store: Store, submit: Submit, engine: Any, scheduler: MakeScheduler
) -> None:
    loop = four_jobs_on_two_nodes(submit, engine, scheduler)
    assert engine.keys() == ["a-1", "b-1"]
    end(engine, loop, "a")
    assert engine.keys() == ["a-1", "b-1", "c-1"]
    assert states(store) == {"a": "ended", "b": "running", "c": "starting", "d": "waiting"}
    end(engine, loop, "b", "c")
    assert engine.keys() == ["a-1", "b-1", "c-1", "d-1"]


def test_a_small_job_does_not_pass_the_first_in_line(
    submit: Submit, engine: Any, scheduler: MakeScheduler
) -> None:
    submit("a", "resources: {gpus: 1}")
    submit("b", "resources: {gpus: 1}")
    submit("large", "resources: {gpus: 2}")
    submit("small", "resources: {gpus: 1}")
    loop = scheduler(engine)
    loop.step()
    end(engine, loop, "a")
    assert engine.keys() == ["a-1", "b-1"]
    end(engine, loop, "b")
    assert engine.keys() == ["a-1", "b-1", "large-1"]


def test_a_job_that_was_cancelled_meanwhile_is_not_started(
    store: Store, submit: Submit, engine: Any, scheduler: MakeScheduler
) -> None:
    loop = four_jobs_on_two_nodes(submit, engine, scheduler)
    cancel_job(store, "c", loop._clock)
    end(engine, loop, "a")
    assert engine.keys()[:2] == ["a-1", "b-1"]
    until(lambda: states(store)["d"] == "running", loop.step)
    assert engine.keys() == ["a-1", "b-1", "d-1"]


def test_jobs_with_accelerators_wait_for_a_round_where_there_are_quotas(
    store: Store, submit: Submit, engine: Any, scheduler: MakeScheduler
) -> None:
    store.tenants.put(Tenant("guest", limit=1.0))
    for name in "abc":
        submit(name, "tenant: guest\nresources: {gpus: 1}")
    loop = scheduler(engine)
    loop.step()
    assert engine.keys() == ["a-1"]
    end(engine, loop, "a")
    assert engine.keys() == ["a-1"]
    loop.step()
    assert engine.keys() == ["a-1", "b-1"]


def test_a_job_that_the_policy_left_though_there_was_room_waits_for_the_next_round(
    store: Store, submit: Submit, engine: Any
) -> None:
    for name in "abc":
        submit(name, "resources: {gpus: 1}")
    loop = Scheduler(store, engine, Chosen(), "chosen", LoopSettings())
    loop.step()
    end(engine, loop, "a")
    assert engine.keys() == ["a-1"]


def test_every_job_of_a_long_queue_gets_a_reason_a_few_at_a_time(
    store: Store, engine: Any, scheduler: MakeScheduler
) -> None:
    (job,) = parse_jobs("name: a\ncommand: 'true'\nresources: {gpus: 2}", "job.yaml")
    store.jobs.submit([job.named(f"j{number:04}", float(number)).record() for number in range(700)])
    loop = scheduler(engine)
    loop.step()
    waiting = [record for record in store.jobs.active() if record.state is JobState.WAITING]
    reasons = sum(bool(record.outlook.why) for record in waiting)
    assert 0 < reasons < 699
    assert waiting[0].outlook.why
    until(lambda: all(r.outlook.why for r in store.jobs.active() if r.state is JobState.WAITING), loop._go_on)


def test_a_round_reads_only_the_jobs_that_have_changed(
    store: Store, submit: Submit, engine: Any, scheduler: MakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        submit(f"j{number}", "resources: {gpus: 2}")
    loop = scheduler(engine)
    loop.step()
    loop.step()
    submit("late", "resources: {gpus: 2}")
    read, get = list[str](), store.jobs.get
    monkeypatch.setattr(store.jobs, "active", lambda: pytest.fail("all jobs are read"))
    monkeypatch.setattr(store.jobs, "get", lambda id: read.append(id) or get(id))
    loop.step()
    assert read == ["late"]
