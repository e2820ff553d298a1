"""A job's workers, started once and measured under every shape: the shapes take turns.

Hosts are faster at one time than at another. So every shape gets several short turns some time apart, and
more where they do not agree.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from trimtab.collect.shapes.point import FAILED, NO_STEPS, OK, OUT_OF_MEMORY, Point
from trimtab.collect.shapes.spec import Lane, Shape, Spec
from trimtab.collect.shapes.turn import Summary, Turn, look
from trimtab.collect.shapes.watched import steps_within
from trimtab.collect.shapes.workers import WorkerEndedError, Workers, started
from trimtab.kernel import NoGroupError
from trimtab.observe import HostSpeed

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
