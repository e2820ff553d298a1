"""Trials: short real runs of a configuration, on this machine or on any engine.

Multi-fidelity: every trial first runs for a third of the window. The caller then decides whether the rest is
worth its price; the workers run on meanwhile, so that nothing starts twice.
"""

import contextlib
import math
import shlex
import statistics
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from trimtab.collect import (
    DIVERGED,
    FAILED,
    NO_STEPS,
    OK,
    OUT_OF_MEMORY,
    TIMED_OUT,
    Shape,
    StepLines,
    Summary,
    TrainingGang,
    TrainingJob,
    TrainingWorkers,
    Turn,
    WorkerEndedError,
    look,
    started,
    steps_within,
)
from trimtab.core import BadInputError, Engine, EngineEvent, Launch, Node, Workload
from trimtab.engines import engine
from trimtab.kernel import NoGroupError, sweep_groups
from trimtab.observe import Interrupts
from trimtab.tune.job_space import Setup

SHORT = 1 / 3
"""The part of the window that a short trial looks at."""

_WARM_UP = 3  # steps before any counts
_BLOCKS = 8  # of steps, by whose means one sees how far the mean of all may be off


@dataclass(frozen=True, slots=True)
class TrialWindow:
    """Seconds to measure a configuration, and seconds to wait for its first steps."""

    seconds: float
    patience: float


@dataclass(frozen=True, slots=True)
class Trial:
    """A measured run of a configuration; where `status` is not ok, `reason` says why.

    `fidelity` is the part of the window that was run. `seconds` are those of the trial, its start included,
    and `price` is the cost of its machines for them, in dollars.
    """

    setup: str
    status: str
    fidelity: float
    seconds: float
    price: float
    measured_at: float
    steps: int = 0
    step_seconds: float | None = None
    off: float | None = None  # standard error of the mean step, over it
    memory_peak_bytes: float | None = None
    reason: str = ""
    decision: str = ""

    @property
    def ok(self) -> bool:
        return self.status == OK and self.step_seconds is not None

    @property
    def is_partial(self) -> bool:
        """Whether it ran some steps of a job rather than the whole workload."""
        return self.steps > 1 or self.fidelity < 1

    @property
    def extent(self) -> str:
        """Extent of the run, in words."""
        if not self.is_partial:
            return "a whole run"
        return f"{self.steps} steps in {'all of the window' if self.fidelity == 1 else 'a short trial'}"


class ThisMachine:
    """Trials in control groups that stand for machines. Workers start without a CPU limit, to start fast."""

    name = "this machine"

    @contextlib.contextmanager
    def started(self, job: TrainingJob, setup: Setup, window: TrialWindow) -> Iterator[TrainingWorkers]:
        with started(TrainingGang(job, setup.batch, setup.workers), setup.shape.memory) as workers:
            yield workers

    def clear(self) -> None:
        """End what a killed session has left running."""
        sweep_groups()


_PAUSE = 0.2  # s between two looks at a log
_GRACE = 2.0  # s that workers have to end; there is nothing to save
_LONGEST_RUN = 40.0  # windows, after which a run ends itself where nobody is left to stop it
_MARGIN = 120.0  # s on top of that
_FINAL = ("ended", "failed", "lost")
_LAST_WORDS = 200  # characters


class EngineTrials:
    """Launches trials on the engine that a URL names; `folder` keeps its runs apart from other runs."""

    def __init__(self, url: str, folder: Path) -> None:
        self.name = url
        self._engine = engine(url, folder)
        self._nodes = tuple(self._engine.nodes())

    def has_room(self, setup: Setup) -> bool:
        """Whether the nodes could ever run it."""
        return spread(setup, self._nodes) is not None

    @contextlib.contextmanager
    def started(self, job: TrainingJob, setup: Setup, window: TrialWindow) -> Iterator["EngineRun"]:
        """The job's workers in that configuration; none is left when the context ends, however it does."""
        run_id = None
        try:
            with _uninterrupted():
                try:
                    run_id = self._engine.launch(_launch(job, setup, window, self._nodes))
                except BadInputError as error:  # this configuration; another may do
                    raise WorkerEndedError(f"it cannot be launched: {error}") from None
            run = EngineRun(self._engine, run_id, setup.workers)
            run.wait_for_start()
            yield run
        finally:
            if run_id is not None:
                self._stop(run_id)

    def clear(self) -> None:
        """End what a killed session has left running."""
        for run_id in self._engine.running():
            self._stop(run_id)

    def _stop(self, run_id: str) -> None:
        with _uninterrupted():
            self._engine.stop(run_id, _GRACE)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay an interrupt until the block has ended."""
    with Interrupts() as interrupts:
        yield
    if interrupts.received is not None:
        raise KeyboardInterrupt


class EngineRun:
    """Workers on an engine, as far as visible from here: their output, and how they end."""

    def __init__(self, engine: Engine, run_id: str, workers: int) -> None:
        self.lines = StepLines()
        self._engine, self._run_id, self._workers = engine, run_id, workers
        self._read = 0  # bytes of the log so far
        self._started = False
        self._end: EngineEvent | None = None

    def __len__(self) -> int:
        return self._workers

    def wait_for_start(self) -> None:
        """Wait until they have started, however long the engine's queue is."""
        while not self._started:
            self._look()
            time.sleep(_PAUSE)

    def listen(self, seconds: float) -> None:
        """Read output for at most `seconds`; raises when the workers have ended."""
        until = time.monotonic() + seconds
        while not self._look() and time.monotonic() < until:
            time.sleep(_PAUSE)

    def _look(self) -> bool:
        """Read events and output; whether there were new steps."""
        for event in self._engine.watch():
            if event.run_id == self._run_id:
                self._started = True  # also where the first event is the end
                self._end = event if event.what in _FINAL else self._end
        known = len(self.lines.steps)
        with self._engine.log(self._run_id).open("rb") as log:
            log.seek(self._read)
            output = log.read()
        self._read += len(output)
        self.lines.feed(output)
        if self._end is None:
            return len(self.lines.steps) > known
        if self._end.what == "ended":
            raise WorkerEndedError(f"it ended after {len(self.lines.steps)} steps; give it more epochs")
        last = f": {self.lines.last_words:.{_LAST_WORDS}}" if self.lines.last_words else ""
        raise WorkerEndedError(f"it {self._end.what}, {self._end.detail}{last}")

    def out_of_memory(self) -> bool:
        """Whether the engine reports that a worker lacked memory."""
        return self._end is not None and "out of memory" in self._end.detail

    def shape(self, shape: Shape) -> None:
        """Nothing to do: the run was launched with these limits."""

    def cpu_seconds(self) -> float:
        """Unknown on an engine."""
        return 0.0

    throttled_seconds = memory = bytes_sent = cpu_seconds


def _launch(job: TrainingJob, setup: Setup, window: TrialWindow, nodes: Sequence[Node]) -> Launch:
    """A gang of which only the first worker prints, and that ends by itself even if nobody stops it."""
    longest = math.ceil(window.patience + _LONGEST_RUN * window.seconds + _MARGIN)
    line = (
        f'cd {shlex.quote(str(job.folder))} && {{ [ "${{RANK:-0}}" = 0 ] || exec > /dev/null; }}'
        f" && exec timeout -k 5 {longest} {shlex.join(job.words(setup.batch))}"
    )
    return Launch(
        key=f"tune {job.name}, {setup.name}, {uuid.uuid4().hex[:8]}",
        workload=Workload(f"tune {job.name}", command=("sh", "-c", line)),
        parts=spread(setup, nodes) or (),
        cpus=setup.shape.cpus,
        memory=setup.shape.memory,
        environment={"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
    )


def spread(setup: Setup, nodes: Sequence[Node]) -> tuple[tuple[str, int], ...] | None:
    """One worker to a node while nodes have room, then another to each; None where they do not fit."""
    shape = setup.shape
    room = {
        node.name: int(min((node.cpus + 1e-9) / shape.cpus, node.memory / shape.memory)) for node in nodes
    }
    given = dict.fromkeys(room, 0)
    for _ in range(setup.workers):
        free = [name for name in room if given[name] < room[name]]
        if not free:
            return None
        given[min(free, key=lambda name: given[name])] += 1
    return tuple((name, count) for name, count in given.items() if count)


def try_out(
    place: ThisMachine | EngineTrials,
    job: TrainingJob,
    setup: Setup,
    window: TrialWindow,
    worth: Callable[[Turn], bool],
) -> Trial:
    """One trial. After its first third, `worth` says whether to run for the rest of the window."""
    measuring, begin = _Measuring(window, worth), None
    try:
        with place.started(job, setup, window) as workers:
            begin = time.monotonic()  # not before: waiting in a queue costs nothing
            measuring.watch(workers, setup.shape)
    except WorkerEndedError as error:  # before any measurement
        measuring.status, measuring.reason = FAILED, str(error)
    seconds = time.monotonic() - begin if begin else 0.0
    ok = measuring.status == OK and measuring.turns
    summary = Summary.of(measuring.turns, measuring.workers) if ok else None
    return Trial(
        setup=setup.name,
        status=measuring.status,
        fidelity=measuring.fidelity,
        seconds=seconds,
        price=seconds * setup.price_per_second,
        measured_at=time.time(),
        steps=summary.steps if summary else 0,
        step_seconds=summary.step_seconds if summary else None,
        off=standard_error(measuring.turns) if summary else None,
        memory_peak_bytes=(summary.memory or None) if summary else None,
        reason=measuring.reason,
    )


class _Measuring:
    """The state of a trial while it runs."""

    def __init__(self, window: TrialWindow, worth: Callable[[Turn], bool]) -> None:
        self._window, self._worth = window, worth
        self.turns = list[Turn]()
        self.status, self.reason = OK, ""
        self.fidelity, self.workers = SHORT, 1

    def watch(self, workers: TrainingWorkers | EngineRun, shape: Shape) -> None:
        """Measure from the first step to the end of the window."""
        self.workers = len(workers)
        try:
            self._watch(workers, shape)
        except NoGroupError:  # more is in use than the shape has, and the kernel cannot make it less
            self.status, self.reason = OUT_OF_MEMORY, "it uses more memory than such a machine has"
        except WorkerEndedError as error:
            self.status, self.reason = FAILED, str(error)
            if workers.out_of_memory():
                self.status, self.reason = OUT_OF_MEMORY, f"out of memory: {error}"
        if self.status != OUT_OF_MEMORY and any(step.diverged for step in workers.lines.steps):
            self.status, self.reason = DIVERGED, "the loss is not a number any more"

    def _watch(self, workers: TrainingWorkers | EngineRun, shape: Shape) -> None:
        patience = self._window.patience
        if not steps_within(workers, 1 + _WARM_UP, patience):
            count = len(workers.lines.steps)
            self.status = NO_STEPS
            self.reason = f"it printed {count} of {1 + _WARM_UP} steps within {patience:g} s"
            return
        workers.shape(shape)
        if self._turn(workers, SHORT) and self._worth(self.turns[0]):
            self.fidelity = 1.0
            self._turn(workers, 1 - SHORT)

    def _turn(self, workers: TrainingWorkers | EngineRun, part: float) -> bool:
        turn = look(workers, part * self._window.seconds, 0.0)
        if turn.status == OK:
            self.turns.append(turn)
        elif turn.status == TIMED_OUT:
            self.status = TIMED_OUT
            self.reason = "a step takes many times the window; lengthen the window in the SPEC"
        return turn.status == OK


def standard_error(turns: Sequence[Turn]) -> float:
    """Standard error of the mean step, over it; from block means, since neighbouring steps share a quota."""
    durations = [duration for turn in turns for duration in turn.durations]
    count = min(_BLOCKS, len(durations))
    if count < 2:
        return 1.0  # one step says next to nothing
    cuts = [round(number * len(durations) / count) for number in range(count + 1)]
    means = [statistics.fmean(durations[start:end]) for start, end in pairwise(cuts)]
    return statistics.stdev(means) / math.sqrt(count) / statistics.fmean(durations)
