"""The wall clock is set a day forward or back while a job runs: no bill, budget or deadline follows it."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from driven_loop import states

from trimtab.kernel import SteadyClock
from trimtab.schedule import LoopSettings, Scheduler, Submission, policy
from trimtab.schedule.loop.requests import running_scheduler
from trimtab.store import Store

Submit = Callable[..., Submission]
DAY = 86400.0


@pytest.mark.parametrize("jump", [DAY, -DAY], ids=["forward", "back"])
def test_a_jump_of_the_wall_clock_changes_no_bill_and_ends_nothing(
    store: Store,
    submit: Submit,
    memory_engine: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Any,
    caplog: pytest.LogCaptureFixture,
    jump: float,
) -> None:
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path))
    engine, real = memory_engine(), time.time

    def begin() -> Scheduler:
        prices = {"t4": 0.01}
        return Scheduler(store, engine, policy("edf"), "edf", LoopSettings(), prices=prices)

    loop = begin()
    submit("a", "resources: {gpus: 1}\nbudget: $20\ndeadline: {by: 2h, hard: true}\ncheckpoint: USR1")
    submit("b", "resources: {gpus: 4}\ndeadline: {by: 6h, hard: true}\nwork: 10\nspeeds: {t4: 1}")
    loop.step()
    loop.step()
    assert states(store) == {"a": "running", "b": "waiting"}
    monkeypatch.setattr(time, "time", lambda: real() + jump)
    loop.step()
    loop.step()
    assert [record.args for record in caplog.records if "clock" in record.msg] == [("24h",)]
    loop = begin()  # a scheduler that starts after the jump goes on with the same time
    loop.step()
    assert states(store) == {"a": "running", "b": "waiting"}
    assert running_scheduler(store, SteadyClock()).there
    engine.end("run-a-1")  # with the engine's time of the end, which jumped
    loop.step()
    ended = store.jobs.get("a")
    assert ended.state.value == "ended"
    assert 0.0 <= ended.run.seconds < 600.0
    assert 0.0 <= ended.run.spent < 6.0
    assert states(store)["b"] in ("starting", "running")


def test_all_processes_of_a_boot_have_the_same_time(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first, real = SteadyClock(tmp_path), time.time
    assert abs(first.now() - real()) < 60.0
    monkeypatch.setattr(time, "time", lambda: real() + DAY)
    second = SteadyClock(tmp_path)
    assert second.boot == first.boot
    assert second.moved() == pytest.approx(DAY, abs=60.0)
    elsewhere = SteadyClock(tmp_path / "new")
    assert elsewhere.boot == pytest.approx(first.boot + DAY, abs=60.0)
    (tmp_path / "file").write_text("")
    assert SteadyClock(tmp_path / "file").boot == pytest.approx(first.boot + DAY, abs=60.0)
