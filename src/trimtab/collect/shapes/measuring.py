"""Measuring training jobs: a lane starts a job once, and looks at it in turns under every shape."""

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
from trimtab.collect.shapes.spec import Lane, Shape, Spec
from trimtab.collect.shapes.workers import Watched, WorkerEndedError, Workers, started, steps_within
from trimtab.kernel import NoGroupError, check_writable, sweep_groups
from trimtab.observe import HostSpeed, sweep_folders

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


log = logging.getLogger(__name__)

_TURNS = 3
_MOST_TURNS = 6
_AGREE = 1.07  # turns agree whose steps are within this factor of the median turn's
_EARLY = 1 / 3  # of the window: what a short trial sees
_WARM_UP = 3  # steps without a limit of CPU before anything counts


@dataclass(slots=True)
class _Contestant:
    """A shape, what it has shown so far, and what it has cost."""

    shape: Shape
    turns: list[Turn] = field(default_factory=list)
    verdict: str | None = None
    memory: float = 0.0  # bytes of the largest worker that were seen
    spent: float = 0.0  # s

    @property
    def done(self) -> bool:
        """Whether it needs no more turns."""
        return self.verdict is not None or len(self.turns) >= _MOST_TURNS or len(self.agreeing()) >= _TURNS

    def agreeing(self) -> list[Turn]:
        """The turns that lie around the median one."""
        middle = median(turn.step_seconds for turn in self.turns) if self.turns else 0.0
        return [turn for turn in self.turns if middle / _AGREE <= turn.step_seconds <= middle * _AGREE]


def measure(lane: Lane, shapes: Sequence[Shape], spec: Spec, speed: HostSpeed) -> list[Point]:
    """A point for every shape. Large memories come first: what does not fit ends the workers."""
    contestants = [_Contestant(shape) for shape in sorted(shapes, key=lambda s: (-s.memory, -s.cpus))]
    while waiting := [each for each in contestants if not each.done]:
        begun = time.monotonic()
        try:
            with started(lane, max(each.shape.memory for each in waiting)) as workers:
                _take_turns(workers, waiting, spec, speed, begun)
        except WorkerEndedError as error:
            log.warning(f"{_called(lane)}: {error}")
            for each in waiting:
                each.verdict = each.verdict or FAILED
    found = {each.shape.name: _point(lane, each, spec) for each in contestants}
    return [found[shape.name] for shape in shapes]


def _take_turns(
    workers: Workers, waiting: list[_Contestant], spec: Spec, speed: HostSpeed, begun: float
) -> None:
    """Until all are done or a worker has ended."""
    try:
        ready = steps_within(workers, 1 + _WARM_UP, spec.patience)
    except WorkerEndedError:
        if not workers.out_of_memory():
            raise
        for each in waiting:  # none has more memory than was tried
            each.verdict = OUT_OF_MEMORY
        return
    for each in waiting:
        each.spent += (time.monotonic() - begun) / len(waiting)
        each.verdict = None if ready else NO_STEPS
    while going := [each for each in waiting if not each.done]:
        now = min(going, key=lambda each: len(each.turns))
        if not _turn(workers, now, spec, speed):
            return


def _turn(workers: Workers, contestant: _Contestant, spec: Spec, speed: HostSpeed) -> bool:
    """One turn; whether the workers can go on to the next."""
    begun = time.monotonic()
    try:
        workers.shape(contestant.shape)
        turn = look(workers, spec.window / _TURNS, speed.probe())
    except NoGroupError:  # there is more in use than the shape has, and the kernel cannot make it less
        contestant.verdict, contestant.memory = OUT_OF_MEMORY, workers.memory()
        return True
    except WorkerEndedError as error:
        contestant.verdict = OUT_OF_MEMORY if workers.out_of_memory() else FAILED
        if contestant.verdict == FAILED:
            log.warning(f"{contestant.shape.name}: {error}")
        contestant.memory = contestant.shape.memory
        return False
    finally:
        contestant.spent += time.monotonic() - begun
    contestant.memory = max(contestant.memory, turn.memory)
    if turn.status == OK:
        contestant.turns.append(turn)
    else:
        contestant.verdict = turn.status
    return True


def _point(lane: Lane, contestant: _Contestant, spec: Spec) -> Point:
    shape, job = contestant.shape, lane.job
    about = (job.name, shape.name, shape.cpus, round(shape.memory), lane.workers, lane.batch)
    if contestant.verdict is not None:
        return Point(
            *about,
            contestant.verdict,
            memory_peak_bytes=round(contestant.memory) or None,
            trial_seconds=contestant.spent,
            measured_at=round(time.time()),
        )
    summary = Summary.of(contestant.agreeing() or contestant.turns, lane.workers)
    seconds = job.steps(lane.batch, lane.workers) * summary.step_seconds
    return Point(
        *about,
        OK,
        summary.steps,
        summary.step_seconds,
        contestant.turns[0].early(_EARLY * spec.window),
        summary.step_deviation,
        summary.cpu_seconds_step,
        summary.throttled_share,
        round(contestant.memory),
        summary.bytes_step,
        job.length,
        seconds,
        shape.price_per_hour,
        spec.price_date,
        seconds / 3600.0 * shape.price_per_hour * lane.workers,
        summary.probe,
        contestant.spent,
        round(time.time()),
        len(contestant.turns),
    )


def _called(lane: Lane) -> str:
    return f"{lane.job.name} with {lane.workers} of batch {lane.batch}"


@dataclass(frozen=True, slots=True)
class Collected:
    """How far it is: what is measured now, points that are done, of how many."""

    now: str
    done: int
    of: int


_START = 5.0  # s until workers have made their first steps
_LOCAL_RUNS = 6
_OVERHEAD = 1.25  # turns that settle, and those that are repeated


def usual_seconds(spec: Spec) -> float:
    """About how long all of it takes; steps longer than the window take longer."""
    lanes = list(spec.lanes())
    points = sum(len(spec.shapes_of(lane.workers)) for lane in lanes)
    local = len(spec.jobs) * _LOCAL_RUNS * (_START + spec.window)
    return len(lanes) * _START + points * spec.window * _OVERHEAD + local


Progress = Callable[[Collected], None]


def collect_shapes(spec: Spec, path: Path, progress: Progress = lambda state: None) -> int:
    """Measure what `path` does not have yet, and append it there; how many points that were."""
    spec.check_host()
    check_writable(path)
    file = PointFile(path)
    with file.alone():
        finished = file.finished(spec)
        sweep_groups()
        sweep_folders()
        file.begin()
        return _collect(spec, file, finished, progress)


def _collect(spec: Spec, file: PointFile, finished: set[Key], progress: Progress) -> int:
    lanes = [(lane, spec.shapes_of(lane.workers)) for lane in spec.lanes()]
    total = sum(len(shapes) for _, shapes in lanes)
    done = sum(len(keys_of(lane, shapes) & finished) for lane, shapes in lanes)
    measured, speed = 0, HostSpeed()
    local = set(file.local())
    for lane, shapes in lanes:
        if lane.job.name not in local:
            local.add(lane.job.name)
            progress(Collected(f"{lane.job.name}, local run", done, total))
            try:
                file.keep_local(lane.job.name, run_locally(lane.job, spec))
            except WorkerEndedError as error:
                log.warning(f"{lane.job.name} has no local run: {error}")
        todo = [s for s in shapes if (lane.job.name, s.name, lane.batch, lane.workers) not in finished]
        if not todo:
            continue
        progress(Collected(f"{lane.job.name}, {lane.workers} of batch {lane.batch}", done, total))
        points = measure(lane, todo, spec, speed)
        file.append(points)
        measured, done = measured + len(points), done + len(points)
    progress(Collected("done", done, total))
    return measured
