"""A step played through: which stage computes which micro-batch when, and when links are busy."""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Literal

Phase = Literal["forward", "backward"]


@dataclass(frozen=True, slots=True)
class Slot:
    """A stage at work on one micro-batch, from `start` to `end` seconds; both are numbered from 0."""

    stage: int
    microbatch: int
    phase: Phase
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Seconds per micro-batch: `forward` and `backward` of every stage, and `transfers` to the next one.

    `device[s]` says who runs stage s: stages of one device wait for each other.
    """

    forward: Sequence[float]
    backward: Sequence[float]
    transfers: Sequence[float]
    device: Sequence[int]


def timeline(times: StageTimes, microbatches: int, schedule: str, training: bool = True) -> tuple[Slot, ...]:
    """All work of a step in the order in which it starts.

    `gpipe` runs all micro-batches forward, then all backward; `1f1b` lets stage s of S run S - s - 1 ahead,
    then one forward and one backward by turns. A link carries one message at a time in each direction while
    its ends compute on.
    """
    stages = len(times.forward)
    ahead = [_order(s, stages, microbatches, schedule, training) for s in range(stages)]
    return tuple(_Play(times, ahead).run())


def _order(stage: int, stages: int, count: int, schedule: str, training: bool) -> list[tuple[Phase, int]]:
    """What a stage does, in its order."""
    forward: list[tuple[Phase, int]] = [("forward", m) for m in range(count)]
    backward: list[tuple[Phase, int]] = [("backward", m) for m in range(count)]
    if not training:
        return forward
    if schedule == "gpipe":
        return forward + backward
    first = min(count, stages - stage - 1)
    by_turns = [step for pair in zip(forward[first:], backward, strict=False) for step in pair]
    return forward[:first] + by_turns + backward[count - first :]


class _Play:
    """The state of the step while it is played."""

    def __init__(self, times: StageTimes, order: list[list[tuple[Phase, int]]]) -> None:
        self.times, self.order = times, order
        self.next = [0] * len(order)
        self.arrived: dict[tuple[int, Phase, int], float] = {
            (0, "forward", m): 0.0 for phase, m in order[0] if phase == "forward"
        }
        self.free = dict.fromkeys(times.device, 0.0)
        self.link: dict[tuple[int, Phase], float] = {}
        self.waiting: list[tuple[float, int, int]] = []

    def run(self) -> list[Slot]:
        done: list[Slot] = []
        self._offer(0)
        while self.waiting:
            ready, _, stage = heappop(self.waiting)
            device = self.times.device[stage]
            if self.free[device] > ready:
                heappush(self.waiting, (self.free[device], self.next[stage], stage))
                continue
            done.append(self._work(stage, ready))
        return done

    def _work(self, stage: int, start: float) -> Slot:
        phase, microbatch = self.order[stage][self.next[stage]]
        takes = self.times.forward if phase == "forward" else self.times.backward
        end = start + takes[stage]
        self.free[self.times.device[stage]] = end
        self.next[stage] += 1
        self._hand_on(stage, phase, microbatch, end)
        self._offer(stage)
        return Slot(stage, microbatch, phase, start, end)

    def _hand_on(self, stage: int, phase: Phase, microbatch: int, end: float) -> None:
        last = len(self.order) - 1
        if phase == "forward" and stage == last:
            self.arrived[stage, "backward", microbatch] = end
            return
        if phase == "backward" and stage == 0:
            return
        to, boundary = (stage + 1, stage) if phase == "forward" else (stage - 1, stage - 1)
        sent = max(end, self.link.get((boundary, phase), 0.0)) + self.times.transfers[boundary]
        self.link[boundary, phase] = sent
        self.arrived[to, phase, microbatch] = sent
        if self.next[to] < len(self.order[to]) and self.order[to][self.next[to]] == (phase, microbatch):
            self._offer(to)

    def _offer(self, stage: int) -> None:
        """Let the stage's next work wait for its device, if what it needs is known to arrive."""
        if self.next[stage] < len(self.order[stage]):
            phase, microbatch = self.order[stage][self.next[stage]]
            when = self.arrived.get((stage, phase, microbatch))
            if when is not None:
                heappush(self.waiting, (when, self.next[stage], stage))
