"""A loop with events all the time, on a simulated clock."""

import threading
import time
from collections.abc import Callable

import pytest

from trimtab.core import Engine
from trimtab.schedule.loop.runs import LoopSettings
from trimtab.schedule.loop.scheduler import Scheduler
from trimtab.schedule.policies import policy
from trimtab.store import Store

COMPUTED = 0.02  # s that a round computes, at least


class Time(threading.Event):
    """A clock that waiting moves on; the end is after ten seconds."""

    passed = 0.0

    def now(self) -> float:
        return self.passed

    def monotonic(self) -> float:
        return self.passed

    def sleep(self, seconds: float) -> None:
        self.passed += seconds

    def is_set(self) -> bool:
        return self.passed >= 10.0

    def wait(self, timeout: float | None = None) -> bool:
        self.sleep(timeout or 0.0)
        return self.is_set()


@pytest.mark.parametrize(
    ("rest", "computes", "most"), [(0.0, True, 200), (50.0, True, 10), (50.0, False, 200)]
)
def test_a_long_computed_round_is_followed_by_a_pause_and_a_long_wait_is_not(
    store: Store,
    memory_engine: Callable[[], Engine],
    monkeypatch: pytest.MonkeyPatch,
    rest: float,
    computes: bool,
    most: int,
) -> None:
    clock, rounds = Time(), list[float]()
    settings = LoopSettings(round=60.0, look=0.1, rest=rest)
    loop = Scheduler(store, memory_engine(), policy("fifo"), "fifo", settings, clock=clock)

    def step() -> None:
        rounds.append(clock.passed)
        until = time.thread_time() + COMPUTED
        while computes and time.thread_time() < until:
            pass
        if not computes:
            time.sleep(COMPUTED)

    monkeypatch.setattr(loop, "step", step)
    monkeypatch.setattr(loop, "_has_news", lambda: True)
    loop.run(clock)
    assert len(rounds) <= most
    assert len(rounds) >= (50 if most == 200 else 2)
