"""The loop with an engine in memory: who starts, ends, waits, is stopped; and a crash at every step."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from trimtab.core import BadInputError, Clock, Launch, Node, StorageError, TrimtabError
from trimtab.schedule import (
    WAITING,
    Allocation,
    Cluster,
    JobFiles,
    Jobs,
    LoopSettings,
    Scheduler,
    Shape,
    Submission,
    parse_jobs,
    policy,
)
from trimtab.store import JobState, Store, Tenant

Submit = Callable[..., Submission]
MakeEngine = Callable[..., Any]
MakeScheduler = Callable[..., Scheduler]


def states(store: Store) -> dict[str, str]:
    return {record.id: record.state.value for record in store.jobs.list()}


def until(holds: Callable[[], object], act: Callable[[], object] = lambda: None) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        act()
        time.sleep(0.01)


@contextmanager
def running(loop: Scheduler) -> Iterator[None]:
    """The loop goes round in a thread."""
    end = threading.Event()
    thread = threading.Thread(target=loop.run, args=(end,))
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


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


def test_a_failed_job_is_tried_again_as_often_as_asked_and_a_lost_one_always(
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
    submit("a", "pass: [NO_SUCH_VARIABLE_HERE]")
    scheduler(engine).step()
    assert store.jobs.get("a").state is JobState.FAILED
    assert "NO_SUCH_VARIABLE_HERE is to be passed on" in store.jobs.get("a").run.reason

    def refuse(launch: Launch) -> str:
        raise BadInputError("there is no command")

    submit("b")
    engine.launch = refuse
    scheduler(engine).step()
    assert store.jobs.get("b").run.reason == "it cannot be started: there is no command"


def test_an_engine_that_disappears_leaves_everything_as_it_is(
    store: Store,
    submit: Submit,
    memory_engine: MakeEngine,
    scheduler: MakeScheduler,
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = memory_engine()
    submit("a")
    with running(scheduler(engine)):
        until(lambda: states(store) == {"a": "running"})
        engine.away = True
        submit("b")
        until(lambda: "nothing is decided for now: the engine does not answer" in caplog.text)
        time.sleep(0.5)
        assert states(store) == {"a": "running", "b": "waiting"}
        assert caplog.text.count("does not answer") == 1
        engine.end("run-a-1")
        engine.away = False
        until(lambda: states(store) == {"a": "ended", "b": "running"})
        assert "decisions go on" in caplog.text


def test_an_engine_with_a_mistake_in_it_does_not_end_the_loop(
    store: Store,
    submit: Submit,
    memory_engine: MakeEngine,
    scheduler: MakeScheduler,
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = memory_engine()
    nodes, engine.nodes = engine.nodes, lambda: {}["data"]
    submit("a")
    with running(scheduler(engine)):
        until(lambda: "nothing is decided for now: KeyError: 'data' (line " in caplog.text)
        engine.nodes = nodes
        until(lambda: states(store) == {"a": "running"})


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


def test_a_run_the_engine_has_forgotten_is_run_again(
    store: Store, submit: Submit, memory_engine: MakeEngine, scheduler: MakeScheduler
) -> None:
    engine = memory_engine()
    loop = scheduler(engine)
    submit("a")
    loop.step()
    engine.over.add("run-a-1")
    for _ in range(5):
        loop.step()
    assert engine.keys() == ["a-1", "a-2"]


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
    store: Store, submit: Submit, memory_engine: MakeEngine, scheduler: MakeScheduler
) -> None:
    engine = memory_engine(Node("n", 8.0, 2.0**34, "T4", 1))
    loop = scheduler(engine, "priority")
    submit("low", "priority: low\nresources: {gpus: 1}\ncheckpoint: {signal: USR2, seconds: 20}")
    loop.step()
    loop.step()
    submit("high", "priority: urgent\nresources: {gpus: 1}")
    until(lambda: engine.signals == [("run-low-1", "USR2")], loop.step)
    assert states(store) == {"low": "stopping", "high": "waiting"}
    assert engine.keys() == ["low-1"]
    JobFiles.of("low").saved.touch()
    until(lambda: states(store) == {"low": "waiting", "high": "running"}, loop.step)
    engine.end("run-high-1")
    until(lambda: states(store) == {"low": "running", "high": "ended"}, loop.step)
    assert engine.keys() == ["low-1", "high-1", "low-2"]
    assert store.jobs.get("low").run.restarts == 1
    assert [d.action["do"] for d in store.ledger.list() if d.subject == "low (low)"] == [
        "start",
        "preempt",
        "start",
    ]


def test_a_job_that_ends_by_itself_while_it_is_to_be_stopped_has_ended(
    store: Store, submit: Submit, memory_engine: MakeEngine, scheduler: MakeScheduler
) -> None:
    engine = memory_engine(Node("n", 8.0, 2.0**34, "T4", 1))
    loop = scheduler(engine, "priority")
    submit("low", "priority: low\nresources: {gpus: 1}\ncheckpoint: {seconds: 20}")
    loop.step()
    loop.step()
    submit("high", "priority: urgent\nresources: {gpus: 1}")
    until(lambda: engine.signals, loop.step)
    engine.end("run-low-1")
    until(lambda: states(store) == {"low": "ended", "high": "running"}, loop.step)


def test_a_job_that_ignores_its_signal_is_stopped_after_the_bound_and_said_so(
    store: Store, submit: Submit, memory_engine: MakeEngine, scheduler: MakeScheduler
) -> None:
    engine = memory_engine(Node("n", 8.0, 2.0**34, "T4", 1))
    loop = scheduler(engine, "priority")
    submit("low", "priority: low\nresources: {gpus: 1}\ncheckpoint: {seconds: 0.1}")
    loop.step()
    loop.step()
    submit("high", "priority: urgent\nresources: {gpus: 1}")
    until(lambda: states(store)["high"] == "running", loop.step)
    assert "did not say within 200 ms of USR1 that it had saved" in store.jobs.get("low").run.reason


class Chosen:
    """Gives the first job as many workers as it is told, and the others nothing."""

    workers = 1

    def allocate(self, jobs: Jobs, cluster: Cluster, previous: Allocation, clock: Clock) -> Allocation:
        shape = np.full(len(jobs), WAITING, dtype=np.int64)
        shape[:1] = [cluster.shapes.index(Shape(0, self.workers))] if self.workers else WAITING
        return Allocation(shape, np.arange(len(jobs)), {0: f"{self.workers} are best"})


class Failing(Chosen):
    """Raises, or answers what cannot be used, as long as it is told to; `asked` counts."""

    how: ClassVar[str] = ""
    asked: ClassVar[int] = 0

    def allocate(self, jobs: Jobs, cluster: Cluster, previous: Allocation, clock: Clock) -> Allocation:
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
    memory_engine: MakeEngine,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    how: str,
    sentence: str,
) -> None:
    engine = memory_engine()
    loop = Scheduler(store, engine, Failing(), "chosen:few=1", LoopSettings(round=0.1, look=0.02))
    submit("a")
    submit("b")
    with running(loop):
        until(lambda: states(store) == {"a": "running", "b": "waiting"})
        monkeypatch.setattr(Failing, "how", how)
        until(lambda: f"nothing is decided for now: {sentence}" in caplog.text)
        asked = Failing.asked
        until(lambda: Failing.asked > asked + 2)
        assert states(store) == {"a": "running", "b": "waiting"}
        assert caplog.text.count("nothing is decided") == 1
        assert "Traceback" not in caplog.text
        engine.end("run-a-1")
        until(lambda: states(store)["a"] == "ended")
        assert engine.keys() == ["a-1"]
        monkeypatch.setattr(Failing, "how", "")
        until(lambda: states(store) == {"a": "ended", "b": "running"})
        assert "decisions go on" in caplog.text
    assert engine.keys() == ["a-1", "b-1"]


def test_a_policy_that_failed_begins_anew(store: Store, submit: Submit, memory_engine: MakeEngine) -> None:
    class Confused(Chosen):
        def __init__(self) -> None:
            self.seen = 0

        def allocate(self, jobs: Jobs, cluster: Cluster, previous: Allocation, clock: Clock) -> Allocation:
            self.seen += 1
            if self.seen > 1:
                raise KeyError("what it remembers is wrong")
            return super().allocate(jobs, cluster, previous, clock)

    submit("a")
    loop = Scheduler(store, memory_engine(), Confused(), "confused")
    loop.step()
    with pytest.raises(TrimtabError, match="policy confused failed"):
        loop.step()
    loop.step()
    assert states(store) == {"a": "running"}


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
        JobFiles.of("wide").make()
        JobFiles.of("wide").saved.touch()
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
    assert "its budget of $0.0100 is spent" in record.run.reason
    assert record.run.spent > 0.01


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
        submit(f"borrowed{number}", "tenant: guest\nresources: {gpus: 1}")
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
    assert caplog.text.count("it runs on local://, and this is ray://elsewhere") == 1
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
    store: Store,
    submit: Submit,
    memory_engine: MakeEngine,
    scheduler: MakeScheduler,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = memory_engine()
    loop = scheduler(engine)
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
