"""Step time, memory and limits of a plan, and the latency of a placement."""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Literal

import numpy as np

from trimtab.core import BadInputError
from trimtab.partition.devices import Devices
from trimtab.partition.graph import Floats, Graph, Ints
from trimtab.partition.node_times import CostAssumptions, NodeTimes
from trimtab.partition.plan import DeviceUse, Forecast, Layout, Plan, Recipe
from trimtab.partition.problem import Cost, CutProblem, bytes_per_weight, problem_of, usable_memory

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
    """Forward and backward passes of a stage, in their order."""
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


def evaluate(
    graph: Graph,
    devices: Devices,
    recipe: Recipe,
    plan: Plan,
    assume: CostAssumptions | None = None,
    times: NodeTimes | None = None,
) -> Forecast:
    """Step time by playing the schedule through, memory of every device, and what limits the plan."""
    assume = assume or CostAssumptions()
    times = times or NodeTimes(graph, recipe, assume)
    cost = cost_of(graph, devices, recipe, plan, assume, times)
    slots = timeline(stage_times(cost), plan.microbatches, plan.schedule, recipe.training)
    seconds = _seconds(slots, cost)
    uses = _uses(cost, plan, recipe)
    short = max(use.memory - usable_memory(devices[use.device]) for use in uses)
    error = [times.on(devices[use.device], max(plan.shares), plan.tensor) for use in uses]
    prices = [devices[use.device].price for use in uses]
    known = [price for price in prices if price is not None]
    busy = float(np.sum(cost.forward + cost.backward)) * plan.microbatches
    return Forecast(
        seconds=seconds,
        low=seconds * min(each.low for each in error),
        high=seconds * max(each.high for each in error),
        latency=cost.latency,
        bottleneck=max(float(cost.load.max()), float(cost.hand.max(initial=0.0))),
        synchronisation=float(cost.once.max()),
        bubble=max(0.0, 1.0 - busy / (len(set(cost.rows.tolist())) * seconds)),
        stage_forward=tuple(cost.forward.tolist()),
        stage_backward=tuple(cost.backward.tolist()),
        transfers=tuple(cost.hand.tolist()),
        uses=uses,
        fits=short <= 0.0 and bool(np.isfinite(seconds)),
        short=max(0.0, short),
        idle=float(sum(max(0.0, devices[use.device].memory - use.memory) for use in uses)),
        batch=plan.batch,
        price=sum(known) if len(known) == len(prices) else None,
    )


def cost_of(
    graph: Graph,
    devices: Devices,
    recipe: Recipe,
    plan: Plan,
    assume: CostAssumptions | None = None,
    times: NodeTimes | None = None,
) -> Cost:
    """The plan's columns over its stages."""
    rows = tuple(dict.fromkeys(stage.ranks for stage in plan.stages))
    problem = problem_of(graph, devices, recipe, Layout.of(plan), rows, assume, times)
    return problem.cost(_stage_of(graph, plan), [rows.index(stage.ranks) for stage in plan.stages])


def _stage_of(graph: Graph, plan: Plan) -> Ints:
    where = np.array(plan.stage_of(len(graph)), dtype=np.int64)
    if (where < 0).any():
        raise BadInputError(f"the plan leaves out {graph.names[int(np.argmin(where))]}")
    back = where[graph.producer[graph.used]] > where[graph.user]
    if back.any():
        use = int(np.argmax(back))
        source = graph.names[graph.producer[graph.used[use]]]
        target = graph.names[graph.user[use]]
        raise BadInputError(f"the plan runs {target} in a stage before that of what it needs, {source}")
    return where


def stage_times(cost: Cost) -> StageTimes:
    """Times of a cut that a schedule is simulated with."""
    forward, hand = cost.forward.copy(), cost.hand
    if not cost.problem.overlapped:
        forward[:-1] += cost.problem.trips * hand
    return StageTimes(forward.tolist(), cost.backward.tolist(), hand.tolist(), cost.rows.tolist())


def _seconds(slots: tuple[Slot, ...], cost: Cost) -> float:
    """When the last stage has updated its weights."""
    end = np.zeros(len(cost.rows))
    for slot in slots:
        end[slot.stage] = max(end[slot.stage], slot.end)
    return float((end + np.bincount(cost.rows, cost.once)[cost.rows]).max())


def _uses(cost: Cost, plan: Plan, recipe: Recipe) -> tuple[DeviceUse, ...]:
    """Every device in use, with all of its stages."""
    split = np.array(bytes_per_weight(recipe, cost.problem.layout))
    weights, gradients, state = (split / split.sum()).tolist()
    stages: dict[int, list[int]] = {}
    replica_of: dict[int, int] = {}
    for device, stage, replica in plan.devices():
        stages.setdefault(device, []).append(stage)
        replica_of[device] = replica
    found = []
    for device, mine in stages.items():
        resident = float(cost.memory.resident[mine].sum())
        found.append(
            DeviceUse(
                device=device,
                stages=tuple(mine),
                replica=replica_of[device],
                weights=resident * weights,
                gradients=resident * gradients,
                optimizer=resident * state,
                activations=float(cost.memory.held[mine].sum()),
                workspace=float(cost.memory.passing[mine].max()) + cost.problem.base,
                busy=float((cost.forward + cost.backward)[mine].sum()) * plan.microbatches
                + float(cost.once[mine].sum()),
            )
        )
    return tuple(found)


class PassTimes:
    """The columns of a pass over a graph whose nodes may be anywhere, one row per device."""

    def __init__(self, problem: CutProblem) -> None:
        graph = problem.graph
        self.problem = problem
        self.forward, self.backward = problem.forward.tolist(), problem.backward.tolist()
        self.rate, self.delay = problem.hand_rate.tolist(), problem.hand_latency.tolist()
        self.size, self.producer = problem.tensor_bytes.tolist(), graph.producer.tolist()
        self.needs: list[list[int]] = [[] for _ in range(len(graph))]
        self.feeds: list[list[tuple[int, int]]] = [[] for _ in range(len(graph))]
        for tensor, node in zip(graph.used.tolist(), graph.user.tolist(), strict=True):
            self.needs[node].append(tensor)
            self.feeds[self.producer[tensor]].append((node, tensor))

    def latency(self, device_of: Sequence[int]) -> float:
        """Seconds of a forward pass, and in training of the backward pass after it."""
        there = self._forward(device_of)
        return there + self._backward(device_of) if self.problem.training else there

    def _forward(self, device_of: Sequence[int]) -> float:
        free = [0.0] * len(self.forward)
        done = [0.0] * len(device_of)
        arrived: dict[tuple[int, int], float] = {}
        for node, device in enumerate(device_of):
            start = free[device]
            for tensor in self.needs[node]:
                source = self.producer[tensor]
                start = max(start, self._arrival(arrived, tensor, device_of[source], device, done[source]))
            done[node] = free[device] = start + self.forward[device][node]
        return max(done)

    def _backward(self, device_of: Sequence[int]) -> float:
        free = [0.0] * len(self.forward)
        done = [0.0] * len(device_of)
        arrived: dict[tuple[int, int], float] = {}
        for node in range(len(device_of) - 1, -1, -1):
            device = device_of[node]
            start = free[device]
            for user, tensor in self.feeds[node]:
                start = max(start, self._arrival(arrived, tensor, device_of[user], device, done[user]))
            done[node] = free[device] = start + self.backward[device][node]
        return max(done)

    def _arrival(
        self, arrived: dict[tuple[int, int], float], tensor: int, source: int, target: int, made: float
    ) -> float:
        """When a tensor is on the target; it goes there once, as soon as it is made."""
        if source == target:
            return made
        if self.rate[source][target] <= 0.0:
            return float("inf")
        sent: float = made + self.delay[source][target] + self.size[tensor] / self.rate[source][target]
        return max(arrived.setdefault((tensor, target), sent), sent)

    def memory(self, device_of: Ints) -> Floats:
        """Bytes of every device, zero where it runs nothing."""
        problem, count = self.problem, len(self.forward)
        graph: Graph = problem.graph
        used = np.bincount(device_of, problem.resident + problem.kept, count)
        largest = np.zeros(count)
        np.maximum.at(largest, device_of[graph.producer], problem.tensor_bytes)
        moved = device_of[graph.producer[graph.used]] != device_of[graph.user]
        sent = {(t, d) for t, d in zip(graph.used[moved], device_of[graph.user[moved]], strict=True)}
        for tensor, device in sent:
            used[device] += problem.tensor_bytes[tensor]
        busy = np.bincount(device_of, minlength=count) > 0
        return np.where(busy, used + problem.alive * largest + problem.base, 0.0)
