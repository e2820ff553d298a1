"""The loop where engine, policy or store fails, and a crash at every step."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from driven_loop import Chosen, in_thread, states, until

from trimtab.core import Clock, StorageError, TrimtabError
from trimtab.schedule import Allocation, Cluster, JobColumns, LoopSettings, Scheduler, Submission
from trimtab.store import Store

Submit = Callable[..., Submission]
MakeEngine = Callable[..., Any]
MakeScheduler = Callable[..., Scheduler]


@pytest.fixture
def engine(memory_engine: MakeEngine) -> Any:
    return memory_engine()


@pytest.fixture
def loop(scheduler: MakeScheduler, engine: Any) -> Scheduler:
    return scheduler(engine)


def test_an_engine_that_disappears_leaves_everything_as_it_is(
    store: Store, submit: Submit, engine: Any, loop: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    submit("a")
    with in_thread(loop):
        until(lambda: states(store) == {"a": "running"})
        engine.away = True
        submit("b")
        until(lambda: "the engine does not answer" in caplog.text)
        refused = engine.refused
        until(lambda: engine.refused > refused + 2)
        assert states(store) == {"a": "running", "b": "waiting"}
        assert caplog.text.count("does not answer") == 1
        engine.end("run-a-1")
        engine.away = False
        until(lambda: states(store) == {"a": "ended", "b": "running"})
        assert "again" in caplog.text


def test_an_engine_with_a_mistake_in_it_does_not_end_the_loop(
    store: Store, submit: Submit, engine: Any, loop: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    nodes, engine.nodes = engine.nodes, lambda: {}["data"]
    submit("a")
    with in_thread(loop):
        until(lambda: "KeyError: 'data' (line " in caplog.text)
        engine.nodes = nodes
        until(lambda: states(store) == {"a": "running"})


def test_a_run_the_engine_has_forgotten_is_run_again(
    submit: Submit, engine: Any, scheduler: MakeScheduler
) -> None:
    loop = scheduler(engine, absent=0.1)
    submit("a")
    loop.step()
    engine.over.add("run-a-1")
    loop.step()
    assert engine.keys() == ["a-1"]
    until(lambda: engine.keys() == ["a-1", "a-2"], loop.step)


class Failing(Chosen):
    """Raises, or answers what cannot be used, as long as it is told to; `asked` counts."""

    how: ClassVar[str] = ""
    asked: ClassVar[int] = 0

    def allocate(self, jobs: JobColumns, cluster: Cluster, previous: Allocation, clock: Clock) -> Allocation:
        Failing.asked += 1
        if self.how == "raises":
            raise ZeroDivisionError("by nothing\nat all")
        allocation = super().allocate(jobs, cluster, previous, clock)
        return replace(allocation, order=np.arange(9) + 100) if self.how == "nonsense" else allocation


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("raises", "policy chosen:few=1 failed: ZeroDivisionError: by nothing at all (line "),
        ("nonsense", "policy chosen:few=1 failed: IndexError: "),
    ],
    ids=["raises", "nonsense"],
)
def test_a_policy_that_fails_changes_nothing_and_is_asked_again(
    store: Store,
    submit: Submit,
    engine: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    how: str,
    sentence: str,
) -> None:
    loop = Scheduler(store, engine, Failing(), "chosen:few=1", LoopSettings(round=0.1, look=0.02))
    submit("a")
    submit("b")
    with in_thread(loop):
        until(lambda: states(store) == {"a": "running", "b": "waiting"})
        monkeypatch.setattr(Failing, "how", how)
        until(lambda: sentence in caplog.text)
        asked = Failing.asked
        until(lambda: Failing.asked > asked + 2)
        assert states(store) == {"a": "running", "b": "waiting"}
        assert caplog.text.count("policy chosen:few=1") == 1
        assert "Traceback" not in caplog.text
        engine.end("run-a-1")
        until(lambda: states(store)["a"] == "ended")
        assert engine.keys() == ["a-1"]
        monkeypatch.setattr(Failing, "how", "")
        until(lambda: states(store) == {"a": "ended", "b": "running"})
        assert "again" in caplog.text
    assert engine.keys() == ["a-1", "b-1"]


def test_a_policy_that_failed_begins_anew(store: Store, submit: Submit, memory_engine: MakeEngine) -> None:
    class Confused(Chosen):
        def __init__(self) -> None:
            self.seen = 0

        def allocate(
            self, jobs: JobColumns, cluster: Cluster, previous: Allocation, clock: Clock
        ) -> Allocation:
            self.seen += 1
            if self.seen > 1:
                raise KeyError("what it remembers is wrong")
            return super().allocate(jobs, cluster, previous, clock)

    submit("a")
    loop = Scheduler(store, memory_engine(), Confused(), "confused")
    loop.step()
    with pytest.raises(TrimtabError, match=r"policy confused.*KeyError"):
        loop.step()
    loop.step()
    assert states(store) == {"a": "running"}


class Crash(BaseException):
    """The plug is pulled."""


class Crashing:
    """Counts calls of what changes the world or the store, and pulls the plug before or after one of them."""

    def __init__(self, at: int, after: bool) -> None:
        self.left, self.after, self.happened = at, after, False

    def around(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            self.left -= 1
            if self.left == 0 and not self.after:
                self.happened = True
                raise Crash
            answer = act(*given, **named)
            if self.left == 0:
                self.happened = True
                raise Crash
            return answer

        return call


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_any_step_loses_no_job_and_runs_none_twice(
    store: Store,
    submit: Submit,
    memory_engine: MakeEngine,
    scheduler: MakeScheduler,
    monkeypatch: pytest.MonkeyPatch,
    after: bool,
) -> None:
    at, happened = 0, True
    while happened:
        at += 1
        names = [f"{'b' if after else 'a'}{at}x{n}" for n in range(3)]
        for name in names:
            submit(name, "resources: {gpus: 2}\nretries: 1")
        engine, crashing = memory_engine(), Crashing(at, after)
        with monkeypatch.context() as patch:
            patch.setattr(store.jobs, "change", crashing.around(store.jobs.change))
            patch.setattr(engine, "launch", crashing.around(engine.launch))
            patch.setattr(engine, "watch", crashing.around(engine.watch))
            loop = scheduler(engine)
            for _ in range(40):
                try:
                    loop.step()
                except Crash:
                    loop = scheduler(engine)
                for run_id, key in engine.running().items():
                    failed = key == f"{names[0]}-1"
                    engine.end(run_id, "failed" if failed else "ended", "status 1" if failed else "status 0")
                if not store.jobs.active() and not engine.untold:
                    break
        assert {states(store)[name] for name in names} == {"ended"}
        assert sorted(engine.keys()) == sorted([f"{names[0]}-2", *(f"{name}-1" for name in names)])
        happened = crashing.happened
    assert at > 15


def test_a_store_that_fails_in_the_middle_of_a_launch_is_asked_again(
    store: Store, submit: Submit, engine: Any, loop: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit("a")
    change, calls = store.jobs.change, list[int]()

    def fail_once(*given: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise StorageError("the disk is full")
        return change(*given, **named)

    monkeypatch.setattr(store.jobs, "change", fail_once)
    loop.step()
    engine.end("run-a-1")
    assert store.jobs.get("a").run.run_id == ""
    loop.step()
    assert states(store) == {"a": "ended"}
    assert engine.keys() == ["a-1"]
