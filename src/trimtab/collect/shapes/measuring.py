"""Measuring training jobs: a gang starts once, and shapes take turns to limit it."""

import logging
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median

from trimtab.collect.shapes.local_run import run_locally
from trimtab.collect.shapes.points import (
    DIVERGED,
    FAILED,
    NO_STEPS,
    OK,
    OUT_OF_MEMORY,
    TIMED_OUT,
    Key,
    Point,
    PointFile,
    keys_of,
)
from trimtab.collect.shapes.spec import Shape, Spec, TrainingGang
from trimtab.collect.shapes.workers import (
    MeasuredWorkers,
    TrainingWorkers,
    WorkerEndedError,
    started,
    steps_within,
)
from trimtab.core import HOUR
from trimtab.kernel import NoGroupError, check_writable, sweep_groups
from trimtab.observe import HostSpeed, sweep_folders

_SETTLE = 0.15  # s after new limits before steps count, when the old quota is used up
_LEAST_STEPS = 3
_LONGEST = 8.0  # times the window, after which fewer steps have to do
_BARELY = 1  # step, below which nothing is measured


@dataclass(frozen=True, slots=True)
class Turn:
    """Steps in a row; CPU and bytes of all workers over all of them."""

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
        """OK, or why the turn does not count."""
        if any(not math.isfinite(loss) for loss in self.losses):
            return DIVERGED
        return OK if len(self.durations) >= _BARELY else TIMED_OUT

    @property
    def step_seconds(self) -> float:
        """Seconds per step."""
        return sum(self.durations) / len(self.durations)

    def early(self, seconds: float) -> float:
        """Mean duration of the first steps that fit into `seconds`, at least one."""
        count, total = 0, 0.0
        for duration in self.durations:
            if count and total + duration > seconds:
                break
            count, total = count + 1, total + duration
        return total / count


def look(workers: MeasuredWorkers, window: float, probe: float) -> Turn:
    """Let a step or two pass under the present limits, then watch for `window` seconds."""
    longest = time.monotonic() + _LONGEST * window
    settled = time.time() + _SETTLE
    known = len(workers.lines.steps)
    while not any(step.time >= settled for step in workers.lines.steps[known:]):
        if time.monotonic() > longest:
            return Turn((), (), 0.0, 0.0, 0.0, workers.memory(), 0.0, probe)
        workers.listen(0.1)
    begin = time.monotonic()
    first = len(workers.lines.steps) - 1
    before, memory = _counters(workers), workers.memory()
    while (passed := time.monotonic() - begin) < _LONGEST * window and (
        passed < window or len(workers.lines.steps) - 1 - first < _LEAST_STEPS
    ):
        steps_within(workers, 1, window / 4)
        memory = max(memory, workers.memory())
    cpu, throttled, sent = (now - then for then, now in zip(before, _counters(workers), strict=True))
    seconds = time.monotonic() - begin
    steps = workers.lines.steps[first:]
    durations = tuple(later.time - earlier.time for earlier, later in pairwise(steps))
    losses = tuple(step.loss for step in steps)
    return Turn(durations, losses, cpu, throttled, sent, memory, seconds, probe)


def _counters(workers: MeasuredWorkers) -> tuple[float, float, float]:
    return workers.cpu_seconds(), workers.throttled_seconds(), workers.bytes_sent()


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
        """The summary of turns that count."""
        durations = [duration for turn in turns for duration in turn.durations]
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


log = logging.getLogger(__name__)

_TURNS = 3
_MOST_TURNS = 6
_AGREE = 1.07  # turns agree whose steps are within this factor of the median turn's
_EARLY = 1 / 3  # of the window: what a short trial sees
_WARM_UP = 3  # steps without a limit of CPU before anything counts


@dataclass(slots=True)
class _ShapeTurns:
    """A shape, its turns so far, and the seconds they took."""

    shape: Shape
    turns: list[Turn] = field(default_factory=list)
    verdict: str | None = None
    memory: float = 0.0  # bytes of the largest worker so far
    spent: float = 0.0  # s

    @property
    def done(self) -> bool:
        """Whether it needs no more turns."""
        return self.verdict is not None or len(self.turns) >= _MOST_TURNS or len(self.agreeing()) >= _TURNS

    def agreeing(self) -> list[Turn]:
        """The turns that lie around the median one."""
        middle = median(turn.step_seconds for turn in self.turns) if self.turns else 0.0
        return [turn for turn in self.turns if middle / _AGREE <= turn.step_seconds <= middle * _AGREE]


def measure(gang: TrainingGang, shapes: Sequence[Shape], spec: Spec, speed: HostSpeed) -> list[Point]:
    """A point for every shape. Large memories come first: a shape that is too small ends the workers."""
    measured = [_ShapeTurns(shape) for shape in sorted(shapes, key=lambda s: (-s.memory, -s.cpus))]
    while waiting := [turns for turns in measured if not turns.done]:
        begin = time.monotonic()
        try:
            with started(gang, max(turns.shape.memory for turns in waiting)) as workers:
                _take_turns(workers, waiting, spec, speed, begin)
        except WorkerEndedError as error:
            log.warning(f"{gang.job.name} with {gang.workers} of batch {gang.batch}: {error}")
            for turns in waiting:
                turns.verdict = turns.verdict or FAILED
    points = {turns.shape.name: _point(gang, turns, spec) for turns in measured}
    return [points[shape.name] for shape in shapes]


def _take_turns(
    workers: TrainingWorkers, waiting: list[_ShapeTurns], spec: Spec, speed: HostSpeed, begin: float
) -> None:
    """Measure until all are done or a worker has ended."""
    try:
        ready = steps_within(workers, 1 + _WARM_UP, spec.patience)
    except WorkerEndedError:
        if not workers.out_of_memory():
            raise
        for turns in waiting:  # none has more memory than was tried
            turns.verdict = OUT_OF_MEMORY
        return
    for turns in waiting:
        turns.spent += (time.monotonic() - begin) / len(waiting)
        turns.verdict = None if ready else NO_STEPS
    while unfinished := [turns for turns in waiting if not turns.done]:
        if not _turn(workers, min(unfinished, key=lambda turns: len(turns.turns)), spec, speed):
            return


def _turn(workers: TrainingWorkers, measured: _ShapeTurns, spec: Spec, speed: HostSpeed) -> bool:
    """One turn; whether the workers can go on to the next."""
    begin = time.monotonic()
    try:
        workers.shape(measured.shape)
        turn = look(workers, spec.window / _TURNS, speed.probe())
    except NoGroupError:  # more is in use than the shape has, and the kernel cannot make it less
        measured.verdict, measured.memory = OUT_OF_MEMORY, workers.memory()
        return True
    except WorkerEndedError as error:
        measured.verdict = OUT_OF_MEMORY if workers.out_of_memory() else FAILED
        if measured.verdict == FAILED:
            log.warning(f"{measured.shape.name}: {error}")
        measured.memory = measured.shape.memory
        return False
    finally:
        measured.spent += time.monotonic() - begin
    measured.memory = max(measured.memory, turn.memory)
    if turn.status == OK:
        measured.turns.append(turn)
    else:
        measured.verdict = turn.status
    return True


def _point(gang: TrainingGang, measured: _ShapeTurns, spec: Spec) -> Point:
    shape, job = measured.shape, gang.job
    about = (job.name, shape.name, shape.cpus, round(shape.memory), gang.workers, gang.batch)
    if measured.verdict is not None:
        return Point(
            *about,
            measured.verdict,
            memory_peak_bytes=round(measured.memory) or None,
            trial_seconds=measured.spent,
            measured_at=round(time.time()),
        )
    summary = Summary.of(measured.agreeing() or measured.turns, gang.workers)
    seconds = job.steps(gang.batch, gang.workers) * summary.step_seconds
    return Point(
        *about,
        OK,
        summary.steps,
        summary.step_seconds,
        measured.turns[0].early(_EARLY * spec.window),
        summary.step_deviation,
        summary.cpu_seconds_step,
        summary.throttled_share,
        round(measured.memory),
        summary.bytes_step,
        job.length,
        seconds,
        shape.price_per_hour,
        spec.price_date,
        seconds / HOUR * shape.price_per_hour * gang.workers,
        summary.probe,
        measured.spent,
        round(time.time()),
        len(measured.turns),
    )


_START = 5.0  # s until workers have made their first steps
_LOCAL_RUNS = 6
_OVERHEAD = 1.25  # turns that settle, and those that are repeated


def usual_seconds(spec: Spec) -> float:
    """Expected duration of a collection; steps longer than the window take longer."""
    gangs = list(spec.gangs())
    points = sum(len(spec.shapes_of(gang.workers)) for gang in gangs)
    local = len(spec.jobs) * _LOCAL_RUNS * (_START + spec.window)
    return len(gangs) * _START + points * spec.window * _OVERHEAD + local


Progress = Callable[[int, int, str], None]
"""Called with the number of finished points, of all points, and the present activity."""


def collect_shapes(spec: Spec, path: Path, progress: Progress = lambda done, total, now: None) -> int:
    """Measure points that `path` does not have yet, and append them; their number."""
    spec.check_host()
    check_writable(path)
    file = PointFile(path)
    with file.alone():
        finished = file.finished(spec)
        sweep_groups()
        sweep_folders()
        file.begin([line for _, line, _ in file.lines()])  # without a line that a kill cut off
        return _collect(spec, file, finished, progress)


def _collect(spec: Spec, file: PointFile, finished: set[Key], progress: Progress) -> int:
    gangs = [(gang, spec.shapes_of(gang.workers)) for gang in spec.gangs()]
    total = sum(len(shapes) for _, shapes in gangs)
    done = before = sum(len(keys_of(gang, shapes) & finished) for gang, shapes in gangs)
    speed, local = HostSpeed(), set(file.local())
    for gang, shapes in gangs:
        job = gang.job
        if job.name not in local:
            local.add(job.name)
            progress(done, total, f"{job.name}, local run")
            try:
                file.keep_local(job.name, run_locally(job, spec))
            except WorkerEndedError as error:
                log.warning(f"{job.name} has no local run: {error}")
        todo = [shape for shape in shapes if not keys_of(gang, (shape,)) <= finished]
        if todo:
            progress(done, total, f"{job.name}, {gang.workers} of batch {gang.batch}")
            file.append(measure(gang, todo, spec, speed))
            done += len(todo)
    progress(done, total, "done")
    return done - before
