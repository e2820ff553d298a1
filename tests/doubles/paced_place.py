"""A place for trials where every configuration takes the steps that a test says, on its own clock."""

import contextlib
import time
from collections.abc import Callable, Iterator

from trimtab.collect import Shape, StepLines, TrainingJob, WorkerEndedError
from trimtab.tune.job_space import Setup
from trimtab.tune.trials import TrialWindow

Pace = Callable[[Setup], float | str]
"""Seconds of a step, or how it fails: dies, oom, nan, silent."""


class PacedPlace:
    """Trials there take as long as those looked at; what was begun and ended is kept."""

    name = "a paced place"

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self.begun: list[str] = []
        self.ended: list[str] = []

    @contextlib.contextmanager
    def started(self, job: TrainingJob, setup: Setup, window: TrialWindow) -> Iterator["PacedWorkers"]:
        self.begun.append(setup.name)
        try:
            yield PacedWorkers(self._pace(setup))
        finally:
            self.ended.append(setup.name)

    def clear(self) -> None:
        pass


class PacedWorkers:
    """Print a step whenever one listens; the times they print are their own."""

    def __init__(self, pace: float | str) -> None:
        self.lines = StepLines()
        self._pace = pace
        self._number = 0
        self._now = time.time() + 1.0  # later than anybody waits for steps to settle

    def __len__(self) -> int:
        return 1

    def listen(self, seconds: float) -> None:
        time.sleep(0.005)
        if self._pace in ("dies", "oom"):
            raise WorkerEndedError("worker 0 was killed by SIGKILL")
        if self._pace == "silent":
            return
        self._number += 1
        self._now += self._pace if isinstance(self._pace, float) else 0.01
        loss = "nan" if self._pace == "nan" else "0.5"
        self.lines.feed(f"step {self._number} loss {loss} time {self._now:.6f}\n".encode())

    def out_of_memory(self) -> bool:
        return self._pace == "oom"

    def shape(self, shape: Shape) -> None:
        pass

    def cpu_seconds(self) -> float:
        return 0.0

    throttled_seconds = memory = bytes_sent = cpu_seconds
