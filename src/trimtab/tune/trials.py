"""Trials: a configuration run for real for a short while, and what that showed.

Multi-fidelity: every trial first looks for a third of the window. Whoever asked for it then says whether
the rest is worth its price; the workers run on meanwhile, so that nothing starts twice.
"""

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from trimtab.collect import (
    DIVERGED,
    FAILED,
    NO_STEPS,
    OK,
    OUT_OF_MEMORY,
    TIMED_OUT,
    Lane,
    Shape,
    Summary,
    TrainingJob,
    Turn,
    Watched,
    WorkerEndedError,
    look,
    started,
    steps_within,
)
from trimtab.kernel import NoGroupError, sweep_groups
from trimtab.tune.job_space import Setup

SHORT = 1 / 3
"""The part of the window that a short trial looks at."""

_WARM_UP = 3  # steps before any counts
_BLOCKS = 8  # of steps, by whose means one sees how far the mean of all may be off


@dataclass(frozen=True, slots=True)
class Effort:
    """Seconds: how long to look at a configuration, and how long to wait for its first steps."""

    window: float
    patience: float


@dataclass(frozen=True, slots=True)
class Trial:
    """What was spent on a configuration and what it showed; where `status` is not ok, `reason` says why.

    `fidelity` is the part of the window that was looked at. `seconds` are those of the trial, its start
    included, and `price` is what its machines cost for them.
    """

    setup: str
    status: str
    fidelity: float
    seconds: float
    price: float
    measured_at: float
    steps: int = 0
    step_seconds: float | None = None
    off: float | None = None  # standard error of that mean, over it
    memory_peak_bytes: float | None = None
    reason: str = ""
    decision: str = ""

    @property
    def ok(self) -> bool:
        """Whether it completed."""
        return self.status == OK and self.step_seconds is not None

    @property
    def is_partial(self) -> bool:
        """Whether it ran some steps of a job, and not all of the workload."""
        return self.steps > 1 or self.fidelity < 1

    @property
    def extent(self) -> str:
        """How much was run."""
        if not self.is_partial:
            return "a whole run"
        return f"{self.steps} steps in {'all of the window' if self.fidelity == 1 else 'a short look'}"


class Running(Watched, Protocol):
    """The workers of a trial."""

    def __len__(self) -> int: ...

    def shape(self, shape: Shape) -> None:
        """Hold every worker to a machine of that shape, if it is not already."""
        ...

    def out_of_memory(self) -> bool:
        """Whether one of them was ended for want of memory."""
        ...


class Place(Protocol):
    """Where trials run."""

    @property
    def name(self) -> str:
        """As it is written down beside them."""
        ...

    def started(
        self, job: TrainingJob, setup: Setup, effort: Effort
    ) -> contextlib.AbstractContextManager[Running]:
        """The job's workers in that configuration; none is left when the context ends, however it does."""
        ...

    def clear(self) -> None:
        """End what a session that was killed has left running."""
        ...


class ThisMachine:
    """Control groups stand for machines. Workers start without a limit of CPU, which spares a long wait."""

    name = "this machine"

    @contextlib.contextmanager
    def started(self, job: TrainingJob, setup: Setup, effort: Effort) -> Iterator[Running]:
        with started(Lane(job, setup.batch, setup.workers), setup.shape.memory) as workers:
            yield workers

    def clear(self) -> None:
        sweep_groups()


def try_out(
    place: Place, job: TrainingJob, setup: Setup, effort: Effort, worth: Callable[[Turn], bool]
) -> Trial:
    """One trial. After its first third, `worth` says whether to look for the rest of the window."""
    look_at, begun = _Look(effort, worth), None
    try:
        with place.started(job, setup, effort) as workers:
            begun = time.monotonic()  # not before: nobody pays for waiting in a queue
            look_at.watch(workers, setup.shape)
    except WorkerEndedError as error:  # before there was anything to look at
        look_at.end(FAILED, str(error))
    return look_at.trial(setup, time.monotonic() - begun if begun else 0.0)


class _Look:
    """What is seen of a trial while it goes on."""

    def __init__(self, effort: Effort, worth: Callable[[Turn], bool]) -> None:
        self._effort, self._worth = effort, worth
        self._turns = list[Turn]()
        self._status, self._reason = OK, ""
        self._fidelity = SHORT
        self._workers = 1

    def end(self, status: str, reason: str) -> None:
        """It cannot be counted."""
        self._status, self._reason = status, reason

    def watch(self, workers: Running, shape: Shape) -> None:
        """From the first step to the end of the window."""
        self._workers = len(workers)
        try:
            self._watch(workers, shape)
        except NoGroupError:  # more is in use than the shape has, and the kernel cannot make it less
            self.end(OUT_OF_MEMORY, "it uses more memory than such a machine has")
        except WorkerEndedError as error:
            short = workers.out_of_memory()
            self.end(OUT_OF_MEMORY if short else FAILED, f"out of memory: {error}" if short else str(error))
        if self._status != OUT_OF_MEMORY and any(step.diverged for step in workers.lines.steps):
            self.end(DIVERGED, "the loss is not a number any more")

    def _watch(self, workers: Running, shape: Shape) -> None:
        patience = self._effort.patience
        if not steps_within(workers, 1 + _WARM_UP, patience):
            count = len(workers.lines.steps)
            self.end(NO_STEPS, f"it printed {count} of {1 + _WARM_UP} steps within {patience:g} s")
            return
        workers.shape(shape)
        if self._turn(workers, SHORT) and self._worth(self._turns[0]):
            self._fidelity = 1.0
            self._turn(workers, 1 - SHORT)

    def _turn(self, workers: Running, part: float) -> bool:
        turn = look(workers, part * self._effort.window, 0.0)
        if turn.status == OK:
            self._turns.append(turn)
        elif turn.status == TIMED_OUT:
            self.end(TIMED_OUT, "a step takes many times the window; a longer one in the SPEC would show it")
        return turn.status == OK

    def trial(self, setup: Setup, seconds: float) -> Trial:
        """All of it, once it is over."""
        ok = self._status == OK and self._turns
        seen = Summary.of(self._turns, self._workers) if ok else None
        return Trial(
            setup=setup.name,
            status=self._status,
            fidelity=self._fidelity,
            seconds=seconds,
            price=seconds * setup.price_per_second,
            measured_at=time.time(),
            steps=seen.steps if seen else 0,
            step_seconds=seen.step_seconds if seen else None,
            off=standard_error(self._turns) if seen else None,
            memory_peak_bytes=(seen.memory or None) if seen else None,
            reason=self._reason,
        )


def standard_error(turns: Sequence[Turn]) -> float:
    """Of the mean step, over it: from the means of blocks, since neighbouring steps share a CPU quota."""
    durations = [each for turn in turns for each in turn.durations]
    count = min(_BLOCKS, len(durations))
    if count < 2:
        return 1.0  # one step says next to nothing
    cuts = [round(number * len(durations) / count) for number in range(count + 1)]
    means = [statistics.fmean(durations[start:end]) for start, end in pairwise(cuts)]
    return statistics.stdev(means) / math.sqrt(count) / statistics.fmean(durations)
