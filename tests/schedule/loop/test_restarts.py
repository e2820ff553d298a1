"""Restarts after losses and failures: they wait longer each time, and end."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from trimtab.core import SimulatedClock
from trimtab.schedule import LoopSettings, Scheduler, Submission, policy
from trimtab.schedule.loop.journal import RestartRules
from trimtab.store import JobState, Store

Submit = Callable[..., Submission]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimulatedClock:
    """The time of the scheduler and of the engine in memory."""
    made = SimulatedClock(time.time())
    monkeypatch.setattr(time, "time", made.now)
    return made


@pytest.fixture
def engine(memory_engine: Callable[..., Any]) -> Any:
    return memory_engine()


@pytest.fixture
def loop(store: Store, engine: Any, clock: SimulatedClock) -> Scheduler:
    return Scheduler(store, engine, policy("fifo"), "fifo", LoopSettings(), clock=clock)


def lose(engine: Any, loop: Scheduler, attempt: int, what: str = "lost") -> None:
    engine.end(f"run-a-{attempt}", what, "its supervisor was killed")
    loop.step()


def test_a_job_that_is_lost_again_and_again_backs_off_and_fails_with_the_count(
    store: Store, submit: Submit, engine: Any, loop: Scheduler, clock: SimulatedClock
) -> None:
    submit("a")
    loop.step()
    pauses = []
    for attempt in range(1, 6):
        lose(engine, loop, attempt)
        record = store.jobs.get("a")
        assert record.state is JobState.WAITING
        assert record.run.losses == attempt
        assert record.outlook.start == record.run.not_before
        waited = 0.0
        while engine.keys()[-1] == f"a-{attempt}":
            clock.advance(0.5)
            waited += 0.5
            loop.step()
        pauses.append(waited)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0]
    lose(engine, loop, 6)
    record = store.jobs.get("a")
    assert record.state is JobState.FAILED
    assert "6" in record.run.reason
    assert "its supervisor was killed" in record.run.reason
    assert len(engine.keys()) == 6


def test_a_job_that_ran_for_long_is_not_ended_by_losses_far_apart(
    store: Store, submit: Submit, engine: Any, loop: Scheduler, clock: SimulatedClock
) -> None:
    submit("a")
    for attempt in range(1, 10):
        loop.step()
        loop.step()
        assert engine.keys()[-1] == f"a-{attempt}"
        clock.advance(3600.0)
        lose(engine, loop, attempt)
        assert store.jobs.get("a").run.losses == 1
        clock.advance(2.0)


def test_retries_back_off_too(
    store: Store, submit: Submit, engine: Any, loop: Scheduler, clock: SimulatedClock
) -> None:
    submit("a", "retries: 5")
    loop.step()
    lose(engine, loop, 1, "failed")
    loop.step()
    assert engine.keys() == ["a-1"]
    clock.advance(1.0)
    loop.step()
    assert engine.keys() == ["a-1", "a-2"]


def test_pauses_double_up_to_the_longest() -> None:
    rules = RestartRules()
    assert [rules.pause(number) for number in (1, 2, 3)] == [1.0, 2.0, 4.0]
    assert rules.pause(10**6) == rules.longest
