"""Step time, memory and limits of a plan, and the latency of a placement."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Literal

import numpy as np

from trimtab.core import BadInputError
from trimtab.partition.devices import Devices
from trimtab.partition.graph import Floats, Graph, Ints
from trimtab.partition.node_times import CostAssumptions, NodeTimes
from trimtab.partition.plan import DeviceUse, Layout, Plan, PlanForecast, Recipe
from trimtab.partition.problem import Cost, CutProblem, bytes_per_weight, problem_of, usable_memory

Phase = Literal["forward", "backward"]


@dataclass(frozen=True, slots=True)
class Slot:
    """One pass of a stage over one micro-batch, from `start` to `end` seconds; numbered from 0."""

    stage: int
    microbatch: int
    phase: Phase
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Seconds per micro-batch: `forward` and `backward` of every stage, and `transfers` to the next one.

    `device[s]` runs stage s; stages of one device wait for each other.
    """

    forward: Sequence[float]
    backward: Sequence[float]
    transfers: Sequence[float]
    device: Sequence[int]


def timeline(times: StageTimes, microbatches: int, schedule: str, training: bool = True) -> tuple[Slot, ...]:
    """All passes of a step in the order in which they start.

    `gpipe` runs all micro-batches forward, then all backward; `1f1b` lets stage s of S run S - s - 1 ahead,
    then one forward and one backward by turns. A link carries one message at a time in each direction while
    its ends compute.
    """
    stages = len(times.forward)
    order = [_order(s, stages, microbatches, schedule, training) for s in range(stages)]
    return tuple(_simulated(times, order))


def _order(stage: int, stages: int, count: int, schedule: str, training: bool) -> list[tuple[Phase, int]]:
    """Passes of a stage, in their order."""
    forward: list[tuple[Phase, int]] = [("forward", m) for m in range(count)]
    backward: list[tuple[Phase, int]] = [("backward", m) for m in range(count)]
    if not training:
        return forward
    if schedule == "gpipe":
        return forward + backward
    first = min(count, stages - stage - 1)
    by_turns = [step for pair in zip(forward[first:], backward, strict=False) for step in pair]
    return forward[:first] + by_turns + backward[count - first :]


def _simulated(times: StageTimes, order: list[list[tuple[Phase, int]]]) -> Iterator[Slot]:
    """The slots of a step, given the order of each stage's passes."""
    following = [0] * len(order)  # the next pass of each stage
    arrived: dict[tuple[int, Phase, int], float] = {
        (0, "forward", m): 0.0 for phase, m in order[0] if phase == "forward"
    }
    free = dict.fromkeys(times.device, 0.0)
    link: dict[tuple[int, Phase], float] = {}
    waiting: list[tuple[float, int, int]] = []

    def offer(stage: int) -> None:
        """Queue the stage's next pass for its device, if the arrival of its input is known."""
        if following[stage] < len(order[stage]):
            when = arrived.get((stage, *order[stage][following[stage]]))
            if when is not None:
                heappush(waiting, (when, following[stage], stage))

    def send(stage: int, phase: Phase, microbatch: int, end: float) -> None:
        if phase == "forward" and stage == len(order) - 1:
            arrived[stage, "backward", microbatch] = end
            return
        if phase == "backward" and stage == 0:
            return
        to, boundary = (stage + 1, stage) if phase == "forward" else (stage - 1, stage - 1)
        sent = max(end, link.get((boundary, phase), 0.0)) + times.transfers[boundary]
        link[boundary, phase] = arrived[to, phase, microbatch] = sent
        if following[to] < len(order[to]) and order[to][following[to]] == (phase, microbatch):
            offer(to)

    offer(0)
    while waiting:
        start, _, stage = heappop(waiting)
        device = times.device[stage]
        if free[device] > start:
            heappush(waiting, (free[device], following[stage], stage))
            continue
        phase, microbatch = order[stage][following[stage]]
        end = free[device] = start + (times.forward if phase == "forward" else times.backward)[stage]
        following[stage] += 1
        send(stage, phase, microbatch, end)
        offer(stage)
        yield Slot(stage, microbatch, phase, start, end)


def evaluate(
    graph: Graph,
    devices: Devices,
    recipe: Recipe,
    plan: Plan,
    assume: CostAssumptions | None = None,
    times: NodeTimes | None = None,
) -> PlanForecast:
    """Step time by simulating the schedule, and time and memory of every stage and device."""
    assume = assume or CostAssumptions()
    times = times or NodeTimes(graph, recipe, assume)
    cost = cost_of(graph, devices, recipe, plan, assume, times)
    slots = timeline(stage_times(cost), plan.microbatches, plan.schedule, recipe.training)
    end = np.zeros(len(cost.rows))
    for slot in slots:
        end[slot.stage] = max(end[slot.stage], slot.end)
    seconds = float((end + np.bincount(cost.rows, cost.once)[cost.rows]).max())  # with the last update
    uses = _uses(cost, plan, recipe)
    short = max(use.memory - usable_memory(devices[use.device]) for use in uses)
    errors = [times.on(devices[use.device], max(plan.shares), plan.tensor) for use in uses]
    busy = float(np.sum(cost.forward + cost.backward)) * plan.microbatches
    return PlanForecast(
        seconds=seconds,
        low=seconds * min(error.low for error in errors),
        high=seconds * max(error.high for error in errors),
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
        price=devices.price(use.device for use in uses),
    )


def cost_of(
    graph: Graph,
    devices: Devices,
    recipe: Recipe,
    plan: Plan,
    assume: CostAssumptions | None = None,
    times: NodeTimes | None = None,
) -> Cost:
    """The cost of a plan's cut; refuses a plan that leaves a node out or runs it before its inputs."""
    rows = tuple(dict.fromkeys(stage.ranks for stage in plan.stages))
    problem = problem_of(graph, devices, recipe, Layout.of(plan), rows, assume, times)
    where = np.array(plan.stage_of(len(graph)), dtype=np.int64)
    if (where < 0).any():
        raise BadInputError(f"the plan leaves out {graph.names[int(np.argmin(where))]}")
    back = where[graph.producer[graph.used]] > where[graph.user]
    if back.any():
        use = int(np.argmax(back))
        source = graph.names[graph.producer[graph.used[use]]]
        target = graph.names[graph.user[use]]
        raise BadInputError(
            f"the plan runs {target} in an earlier stage than {source}, whose result it needs"
        )
    return problem.cost(where, [rows.index(stage.ranks) for stage in plan.stages])


def stage_times(cost: Cost) -> StageTimes:
    """The stage times of a cut, for the simulation."""
    forward, hand = cost.forward.copy(), cost.hand
    if not cost.problem.overlapped:
        forward[:-1] += cost.problem.trips * hand
    return StageTimes(forward.tolist(), cost.backward.tolist(), hand.tolist(), cost.rows.tolist())


def _uses(cost: Cost, plan: Plan, recipe: Recipe) -> tuple[DeviceUse, ...]:
    """The use of every device, over all of its stages."""
    split = np.array(bytes_per_weight(recipe, cost.problem.layout))
    weights, gradients, state = (split / split.sum()).tolist()
    stages: dict[int, list[int]] = {}
    replica_of: dict[int, int] = {}
    for device, stage, replica in plan.devices():
        stages.setdefault(device, []).append(stage)
        replica_of[device] = replica
    uses = []
    for device, mine in stages.items():
        resident = float(cost.memory.resident[mine].sum())
        uses.append(
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
    return tuple(uses)


class PassTimes:
    """Latency and memory of one pass with any placement of nodes; one row per device."""

    def __init__(self, problem: CutProblem) -> None:
        graph = problem.graph
        self.problem = problem
        self.forward, self.backward = problem.forward.tolist(), problem.backward.tolist()
        self.rate, self.delay = problem.hand_rate.tolist(), problem.hand_latency.tolist()
        self.size, producer = problem.tensor_bytes.tolist(), graph.producer.tolist()
        self.needs: list[list[tuple[int, int]]] = [[] for _ in range(len(graph))]
        self.feeds: list[list[tuple[int, int]]] = [[] for _ in range(len(graph))]
        for tensor, node in zip(graph.used.tolist(), graph.user.tolist(), strict=True):
            self.needs[node].append((producer[tensor], tensor))
            self.feeds[producer[tensor]].append((node, tensor))

    def latency(self, device_of: Sequence[int]) -> float:
        """Seconds of a forward pass, and in training of the backward pass after it."""
        ahead = self._pass(device_of, range(len(device_of)), self.needs, self.forward)
        if not self.problem.training:
            return ahead
        return ahead + self._pass(device_of, range(len(device_of) - 1, -1, -1), self.feeds, self.backward)

    def _pass(
        self,
        device_of: Sequence[int],
        order: range,
        inputs: list[list[tuple[int, int]]],
        seconds: list[list[float]],
    ) -> float:
        """Seconds of one pass; `inputs` of a node are other nodes and the tensors that they send it."""
        free = [0.0] * len(seconds)
        done = [0.0] * len(device_of)
        arrived: dict[tuple[int, int], float] = {}
        for node in order:
            device = device_of[node]
            start = free[device]
            for source, tensor in inputs[node]:
                start = max(start, self._arrival(arrived, tensor, device_of[source], device, done[source]))
            done[node] = free[device] = start + seconds[device][node]
        return max(done)

    def _arrival(
        self, arrived: dict[tuple[int, int], float], tensor: int, source: int, target: int, made: float
    ) -> float:
        """The time at which a tensor is on the target; it is sent there once, as soon as it is made."""
        if source == target:
            return made
        if self.rate[source][target] <= 0.0:
            return float("inf")
        sent: float = made + self.delay[source][target] + self.size[tensor] / self.rate[source][target]
        return max(arrived.setdefault((tensor, target), sent), sent)

    def memory(self, device_of: Ints) -> Floats:
        """Bytes of every device, zero for an idle one."""
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
