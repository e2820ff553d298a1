"""One look at running workers: steps until the window is over, and what they took of the machine."""

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from trimtab.collect.shapes.point import DIVERGED, OK, TIMED_OUT
from trimtab.collect.shapes.watched import Watched, steps_within

_SETTLE = 0.15  # s after new limits before steps count: the rest of the old quota is used up by then
_LEAST_STEPS = 3
_LONGEST = 8.0  # times the window, after which fewer steps have to do
_BARELY = 1  # step, below which there is nothing to tell


@dataclass(frozen=True, slots=True)
class Turn:
    """Whole steps one after the other; seconds and bytes over all of them, CPU and traffic of all workers."""

    durations: tuple[float, ...]
    losses: tuple[float, ...]
    cpu_seconds: float
    throttled_seconds: float
    bytes_sent: float
    memory: float  # of the largest worker
    looked: float  # s between reading the counters
    probe: float  # s, the host's speed

    @property
    def status(self) -> str:
        """Whether it can be counted."""
        if any(not math.isfinite(loss) for loss in self.losses):
            return DIVERGED
        return OK if len(self.durations) >= _BARELY else TIMED_OUT

    @property
    def step_seconds(self) -> float:
        """Seconds per step."""
        return sum(self.durations) / len(self.durations)

    def early(self, seconds: float) -> float:
        """Seconds per step of the first ones, as many as fit into so many seconds, at least one."""
        count, total = 0, 0.0
        for each in self.durations:
            if count and total + each > seconds:
                break
            count, total = count + 1, total + each
        return total / count


def look(workers: Watched, window: float, probe: float) -> Turn:
    """Let a step or two pass under the present limits, then watch for `window` seconds."""
    longest = time.monotonic() + _LONGEST * window
    settled = time.time() + _SETTLE
    known = len(workers.lines.steps)
    while not any(step.time >= settled for step in workers.lines.steps[known:]):
        if time.monotonic() > longest:
            return Turn((), (), 0.0, 0.0, 0.0, workers.memory(), 0.0, probe)
        workers.listen(0.1)
    begun = time.monotonic()
    first = len(workers.lines.steps) - 1
    before = _counters(workers)
    memory = workers.memory()
    while _going_on(len(workers.lines.steps) - 1 - first, time.monotonic() - begun, window):
        steps_within(workers, 1, window / 4)
        memory = max(memory, workers.memory())
    cpu, throttled, sent = (now - then for then, now in zip(before, _counters(workers), strict=True))
    looked = time.monotonic() - begun
    steps = workers.lines.steps[first:]
    return Turn(
        tuple(later.time - earlier.time for earlier, later in pairwise(steps)),
        tuple(step.loss for step in steps),
        cpu,
        throttled,
        sent,
        memory,
        looked,
        probe,
    )


def _counters(workers: Watched) -> tuple[float, float, float]:
    return workers.cpu_seconds(), workers.throttled_seconds(), workers.bytes_sent()


def _going_on(steps: int, seconds: float, window: float) -> bool:
    return (seconds < window or steps < _LEAST_STEPS) and seconds < _LONGEST * window


@dataclass(frozen=True, slots=True)
class Summary:
    """Turns taken together, per step; CPU and bytes per worker."""

    steps: int
    step_seconds: float
    step_deviation: float
    cpu_seconds_step: float
    throttled_share: float
    bytes_step: float
    memory: float
    probe: float

    @classmethod
    def of(cls, turns: Sequence[Turn], workers: int) -> "Summary":
        """Of turns that can be counted."""
        durations = [each for turn in turns for each in turn.durations]
        looked = sum(turn.looked for turn in turns)
        # Counters are read a little before and after the steps that they are divided among.
        parts = sum(sum(turn.durations) for turn in turns) / looked
        per_step = parts / len(durations) / workers
        mean = statistics.fmean(durations)
        return cls(
            len(durations),
            mean,
            statistics.pstdev(durations) / mean,
            sum(turn.cpu_seconds for turn in turns) * per_step,
            sum(turn.throttled_seconds for turn in turns) / looked / workers,
            sum(turn.bytes_sent for turn in turns) * per_step,
            max(turn.memory for turn in turns),
            statistics.fmean(turn.probe for turn in turns),
        )
