"""The cut problem as columns: the cost of every node on every row of devices, and the cost of a cut.

For stages s = 1..S, each with its nodes and a row of devices (`Row`):

    load_s     = forward_s + backward_s              seconds per micro-batch
    hand_s     = latency + bytes over boundary s / bandwidth, nothing where nothing crosses
    Lat        = sum of load_s + 2 × sum of hand_s   one micro-batch alone, there and back
    step       = Lat + max over stages and boundaries of
                     (M - 1) × load_s + once_s,  (M - 1) × hand_s

with M micro-batches, and `once` the work per step: update the weights, add up gradients over replicas. In
inference, nothing comes back: Lat has 1 × the sum of hand_s. Where sending and computing do not overlap,
load_s includes 2 × hand_s. A boundary carries every tensor made before it and needed after it, once.

    memory_s   = resident_s + in flight × (kept_s + received_s + sent_s) + alive × largest tensor_s + base

or with recomputation, in flight × received_s + kept_s + sent_s in the middle. Stages of one row add up (of
their largest tensors, the largest counts).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.catalog import stage_constants
from trimtab.partition.devices import Device, Devices
from trimtab.partition.graph import Floats, Graph, Ints
from trimtab.partition.node_times import WEIGHT_BYTES, CostAssumptions, NodeTimes, links, row_times
from trimtab.partition.plan import STATE_NUMBERS, Layout, Recipe, Row
from trimtab.predict import USABLE_DEVICE_MEMORY, USABLE_HOST_MEMORY, is_half, kept_shares


@dataclass(frozen=True, slots=True, eq=False)
class CutProblem:
    """Columns over rows and nodes; seconds per micro-batch, bytes of a device. See the module's formulas.

    `forward`, `backward` and `once` have a line per row; `resident` (weights, gradients, optimizer state) and
    `kept` are of one device of a row; `tensor_bytes` are those of one replica. `hand_latency` and `hand_rate`
    (B/s, zero for no link) are between rows.
    """

    graph: Graph
    layout: Layout
    rows: tuple[Row, ...]
    training: bool
    overlapped: bool
    forward: Floats
    backward: Floats
    once: Floats
    row_once: Floats
    resident: Floats
    kept: Floats
    tensor_bytes: Floats
    hand_latency: Floats
    hand_rate: Floats
    capacity: Floats
    base: float
    alive: float

    @property
    def trips(self) -> float:
        """Crossings of a boundary per micro-batch: forward, and backward in training."""
        return 2.0 if self.training else 1.0

    def hand_seconds(self, row: int, to: int, crossing: Floats | float) -> Floats:
        """Seconds of handing `crossing` bytes from one row to another."""
        size, rate = np.asarray(crossing, dtype=float), self.hand_rate[row, to]
        seconds = self.hand_latency[row, to] + size / rate if rate > 0.0 else np.inf
        return np.where(size > 0.0, seconds, 0.0)

    def signature(self, row: int) -> tuple[float, ...]:
        """Equal for rows that are alike in speed and memory."""
        columns = self.forward[row], self.backward[row], self.once[row]
        sums = (float(column.sum()) for column in columns)
        return (*sums, float(columns[0].max()), float(self.row_once[row]), float(self.capacity[row]))

    def crossing(self, stage_of: Ints, stages: int) -> Floats:
        """Bytes over each of the boundaries between stages."""
        first = stage_of[self.graph.producer]
        last = first.copy()
        np.maximum.at(last, self.graph.used, stage_of[self.graph.user])
        change = np.zeros(stages + 1)
        np.add.at(change, first, self.tensor_bytes)
        np.add.at(change, last, -self.tensor_bytes)
        over = np.cumsum(change)[: stages - 1]
        return np.where(over < 0.5, 0.0, over)

    def cost(self, stage_of: Ints, row_of: Sequence[int]) -> "Cost":
        """Cost of a cut, given the stage of every node and the row of every stage."""
        stages, rows = len(row_of), np.asarray(row_of, dtype=np.int64)
        nodes, on = np.arange(len(self.graph)), rows[stage_of]
        forward = _summed(stage_of, self.forward[on, nodes], stages)
        backward = _summed(stage_of, self.backward[on, nodes], stages)
        once = _summed(stage_of, self.once[on, nodes], stages) + self.row_once[rows]
        crossing = self.crossing(stage_of, stages)
        hand = np.array(
            [float(self.hand_seconds(rows[s], rows[s + 1], crossing[s])) for s in range(stages - 1)]
        )
        memory = self._memory(stage_of, stages, crossing)
        return Cost(self, rows, forward, backward, once, hand, crossing, memory)

    def seconds(self, stage_of: Ints, row_of: Sequence[int]) -> float:
        """Seconds of a step, infinite where it does not fit or a link is missing."""
        cost = self.cost(stage_of, row_of)
        return cost.seconds if cost.short <= 0.0 else np.inf

    def _memory(self, stage_of: Ints, stages: int, crossing: Floats) -> "StageMemory":
        layout = self.layout
        received = np.concatenate([[0.0], crossing])
        sent = np.concatenate([crossing, [0.0]])
        kept = _summed(stage_of, self.kept, stages)
        largest = np.zeros(stages)
        np.maximum.at(largest, stage_of[self.graph.producer], self.tensor_bytes)
        flight = np.array([layout.in_flight(stages - s) for s in range(stages)])
        if not self.training:
            held = received + sent
        elif layout.recompute:
            held = flight * received + kept + sent
        else:
            held = flight * (kept + received + sent)
        resident = _summed(stage_of, self.resident, stages)  # counts a weight per node that uses it
        per_weight = self.resident.sum() / max(float(self.graph.parameters.sum()), 1.0)
        for tie in self.graph.ties:
            for stage, count in zip(*np.unique(stage_of[list(tie.nodes)], return_counts=True), strict=True):
                resident[stage] -= (count - 1) * tie.parameters * per_weight
        return StageMemory(resident, held, self.alive * largest)


def _summed(where: Ints, column: Floats, count: int) -> Floats:
    """The column's sums by group, given each value's group."""
    return np.bincount(where, column, count).astype(np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class StageMemory:
    """Bytes per stage on one of its devices: resident, of micro-batches in flight, and short-lived."""

    resident: Floats
    held: Floats
    passing: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Cost:
    """Columns over stages of one cut."""

    problem: CutProblem
    rows: NDArray[np.int64]
    forward: Floats
    backward: Floats
    once: Floats
    hand: Floats
    crossing: Floats
    memory: StageMemory

    @property
    def load(self) -> Floats:
        """Seconds per micro-batch and stage."""
        load = self.forward + self.backward
        if not self.problem.overlapped:
            load[:-1] += self.problem.trips * self.hand
        return load

    @property
    def latency(self) -> float:
        """Seconds of one micro-batch alone."""
        return float(np.sum(self.forward + self.backward) + self.problem.trips * np.sum(self.hand))

    @property
    def row_loads(self) -> Floats:
        """Seconds of every stage's row after its first micro-batch, over all stages of the row."""
        loads = (self.problem.layout.microbatches - 1) * self.load + self.once
        return _summed(self.rows, loads, len(self.problem.rows))[self.rows]

    @property
    def seconds(self) -> float:
        """Seconds of a step."""
        more = self.problem.layout.microbatches - 1
        slowest = max(float(self.row_loads.max()), more * float(self.hand.max(initial=0.0)))
        return self.latency + slowest

    @property
    def row_memory(self) -> Floats:
        """Bytes of every stage's row, its other stages included."""
        passing = np.zeros(len(self.problem.rows))
        np.maximum.at(passing, self.rows, self.memory.passing)
        staying = _summed(self.rows, self.memory.resident + self.memory.held, len(passing))
        return (staying + passing + self.problem.base)[self.rows]

    @property
    def short(self) -> float:
        """Bytes missing on the worst device; at most zero where all fits."""
        return float((self.row_memory - self.problem.capacity[self.rows]).max())


def problem_of(
    graph: Graph,
    devices: Devices,
    recipe: Recipe,
    layout: Layout,
    rows: tuple[Row, ...],
    assume: CostAssumptions | None = None,
    times: NodeTimes | None = None,
) -> CutProblem:
    """The cut problem of a graph on rows of devices."""
    assume = assume or CostAssumptions()
    times = times or NodeTimes(graph, recipe, assume)
    half = is_half(recipe.precision)
    largest_share = max(layout.shares)
    forward, backward, once, row_once = row_times(graph, devices, recipe, layout, rows, assume, times)
    part = 1.0 - graph.split + graph.split / layout.tensor
    constants, saved = stage_constants(), np.ones(len(graph))
    if half:
        saved = np.where(np.array(graph.kinds) == "conv", constants.half_conv_saved, constants.half_saved)
    scale = 4.0 / graph.element
    hand_latency, hand_rate = links(devices, rows, assume)
    return CutProblem(
        graph=graph,
        layout=layout,
        rows=rows,
        training=recipe.training,
        overlapped=assume.overlapped,
        forward=forward,
        backward=backward,
        once=once,
        row_once=row_once,
        resident=graph.parameters * sum(bytes_per_weight(recipe, layout)) * part + graph.buffers,
        kept=graph.saved * part * saved * scale * largest_share if recipe.training else np.zeros(len(graph)),
        tensor_bytes=graph.size * scale * largest_share * (0.5 if half else 1.0),
        hand_latency=hand_latency,
        hand_rate=hand_rate,
        capacity=np.array([min(usable_memory(devices[d]) for rank in row for d in rank) for row in rows]),
        base=constants.base_memory,
        alive=constants.results_alive,
    )


def usable_memory(device: Device) -> float:
    """Bytes of a device that a plan may use, without those of drivers and fragmentation."""
    return device.memory * (USABLE_HOST_MEMORY if device.cores else USABLE_DEVICE_MEMORY)


def bytes_per_weight(recipe: Recipe, layout: Layout) -> tuple[float, float, float]:
    """Bytes of a weight itself, of its gradient and of the optimizer's state, on one device of a replica."""
    if not recipe.training:
        return WEIGHT_BYTES, 0.0, 0.0
    state = WEIGHT_BYTES * STATE_NUMBERS[recipe.optimizer]
    of_weights, of_gradients, of_state = kept_shares(layout.sharding, layout.replicas)
    return WEIGHT_BYTES * of_weights, WEIGHT_BYTES * of_gradients, state * of_state
