"""Seconds of every node on a device, and on a row of devices with its collectives."""

from dataclasses import dataclass, field, replace

import numpy as np

from trimtab.partition.devices import Device, Devices
from trimtab.partition.graph import Coarse, Floats, Graph
from trimtab.partition.plan import Layout, Recipe, Row
from trimtab.predict import (
    Hardware,
    Operations,
    OperationTimes,
    ScaleOutAssumptions,
    exposed_seconds,
    is_half,
    operation_times,
)


@dataclass(frozen=True, slots=True)
class CostAssumptions:
    """Ratios, unless a field says otherwise."""

    links: ScaleOutAssumptions = field(default_factory=ScaleOutAssumptions)
    """What large messages get of a link, and what of a collective hides behind the work beside it."""
    results_alive: float = 2.0
    """Largest results of a stage that are alive at once beside what is kept: it, and its gradient."""
    correction: tuple[tuple[str, float, float], ...] = ()
    """What runs showed, by kind of device: forward and backward times relative to the formulas."""
    overlapped: bool = True
    """Whether a stage computes while it sends and receives; otherwise it waits for what it sends."""

    def corrected(self, kind: str) -> tuple[float, float]:
        """Factors on forward and backward times of a kind of device."""
        return next(((ahead, back) for name, ahead, back in self.correction if name == kind), (1.0, 1.0))


@dataclass(slots=True)
class NodeTimes:
    """Times by kind of device, samples and devices that share a product; each is worked out once.

    With `coarse`, the times of its fine nodes are added up.
    """

    graph: Graph
    recipe: Recipe
    assume: CostAssumptions = field(default_factory=CostAssumptions)
    coarse: Coarse | None = None
    _known: dict[tuple[object, ...], OperationTimes] = field(default_factory=dict)

    def on(self, device: Device, samples: int, tensor: int = 1) -> OperationTimes:
        """Times of all nodes on one of `tensor` devices like this one."""
        key = (device.kind, device.memory_bandwidth, device.cores, *device.peak.items(), samples, tensor)
        if key not in self._known:
            self._known[key] = self._work_out(device, samples, tensor)
        return self._known[key]

    def _work_out(self, device: Device, samples: int, tensor: int) -> OperationTimes:
        graph = self.graph
        share = 1.0 - graph.split + graph.split / tensor
        operations = Operations(
            kinds=np.array(graph.kinds),
            calls=graph.calls,
            flop=graph.flop * samples * share,
            traffic=graph.traffic * samples * share * (4.0 / graph.element),
            weight_bytes=graph.parameters * share * 4.0,
        )
        hardware = Hardware(device.kind, device.peak, device.memory_bandwidth, device.cores)
        times = operation_times(operations, hardware, self.recipe.precision, self.recipe.training)
        ahead, back = self.assume.corrected(device.kind)
        columns = [times.forward * ahead, times.backward * back, times.once, times.update]
        if self.coarse is not None:
            columns = [self.coarse.summed(column) for column in columns]
        forward, backward, once, update = columns
        return replace(times, forward=forward, backward=backward, once=once, update=update)


WEIGHT_BYTES = 4.0
"""Weights, gradients and optimizer state are fp32, also where products are in 16 bit."""


def row_times(
    graph: Graph,
    devices: Devices,
    recipe: Recipe,
    layout: Layout,
    rows: tuple[Row, ...],
    assume: CostAssumptions,
    times: NodeTimes,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Forward, backward and once, per row and node, and once per row; a row waits for its slowest replica."""
    columns: dict[tuple[object, ...], tuple[Floats, Floats, Floats, float]] = {}
    found = []
    for row in rows:
        ring = ring_rate(devices, row, assume)
        kinds = {
            (devices[rank[0]].kind, share, inside_rate(devices, rank, assume)): (rank, share)
            for rank, share in zip(row, layout.shares, strict=True)
        }
        key = (ring, *kinds)
        if key not in columns:
            each = [
                _rank_times(graph, devices, recipe, layout, rank, share, ring, assume, times)
                for rank, share in kinds.values()
            ]
            ahead, back, once = (np.max([one[0][i] for one in each], axis=0) for i in range(3))
            columns[key] = ahead, back, once, max(one[1] for one in each)
        found.append(columns[key])
    forward, backward = np.stack([each[0] for each in found]), np.stack([each[1] for each in found])
    return forward, backward, np.stack([each[2] for each in found]), np.array([each[3] for each in found])


def _rank_times(
    graph: Graph,
    devices: Devices,
    recipe: Recipe,
    layout: Layout,
    rank: tuple[int, ...],
    share: int,
    ring: float,
    assume: CostAssumptions,
    times: NodeTimes,
) -> tuple[tuple[Floats, Floats, Floats], float]:
    """Forward, backward and once per node, and once, of one replica of a row."""
    took = times.on(devices[rank[0]], share, layout.tensor)
    ahead, back = _with_reductions(graph, took.forward, took.backward, devices, rank, share, recipe, assume)
    if layout.recompute and recipe.training:
        back = back + ahead
    gather, reduce = _sharding_seconds(graph, layout, ring, recipe)
    ahead, back = (
        ahead + exposed_seconds(gather, ahead, assume.links),
        back + exposed_seconds(gather, back, assume.links),
    )
    update = took.once + took.update / (1 if layout.sharding == "none" else layout.replicas)
    return (ahead, back, update + exposed_seconds(reduce, back, assume.links)), took.step


def _with_reductions(
    graph: Graph,
    forward: Floats,
    backward: Floats,
    devices: Devices,
    rank: tuple[int, ...],
    samples: int,
    recipe: Recipe,
    assume: CostAssumptions,
) -> tuple[Floats, Floats]:
    """With what devices that share products spend on adding up their parts."""
    count = len(rank)
    if count == 1:
        return forward, backward
    rate = inside_rate(devices, rank, assume)
    latency = 2 * (count - 1) * max(devices.latency[i, j] for i in rank for j in rank if i != j)
    scale = (4.0 / graph.element) * (0.5 if is_half(recipe.precision) else 1.0) * samples

    def seconds(reduced: Floats) -> Floats:
        if rate <= 0.0:
            return np.where(reduced > 0, np.inf, 0.0)
        moved = 2 * (count - 1) / count * reduced * scale / rate
        return np.where(reduced > 0, moved + latency, 0.0)

    back = seconds(graph.reduced_backward) if recipe.training else 0.0
    return forward + seconds(graph.reduced_forward), backward + back


def _sharding_seconds(graph: Graph, layout: Layout, ring: float, recipe: Recipe) -> tuple[Floats, Floats]:
    """Seconds of gathering weights in each pass, and of adding up gradients once per step, per node."""
    none = np.zeros(len(graph))
    if layout.replicas == 1 or not recipe.training:
        return none, none
    moved = WEIGHT_BYTES * graph.parameters / layout.tensor * (layout.replicas - 1) / layout.replicas
    around = moved / ring if ring > 0.0 else np.where(moved > 0, np.inf, 0.0)
    if layout.sharding == "full":
        return 1.5 * around, none  # gathered forward, gathered and scattered backward: three in two passes
    return none, 2.0 * around


def ring_rate(devices: Devices, row: Row, assume: CostAssumptions) -> float:
    """B/s of the slowest link in the ring of a row's replicas; infinite for one replica."""
    heads = [rank[0] for rank in row]
    if len(heads) == 1:
        return float("inf")
    pairs = zip(heads, [*heads[1:], heads[0]], strict=True)
    return assume.links.link_efficiency * min(float(devices.bandwidth[i, j]) for i, j in pairs)


def inside_rate(devices: Devices, rank: tuple[int, ...], assume: CostAssumptions) -> float:
    """B/s of the slowest link between devices that share products."""
    if len(rank) == 1:
        return float("inf")
    return assume.links.link_efficiency * min(
        float(devices.bandwidth[i, j]) for i in rank for j in rank if i != j
    )


def links(devices: Devices, rows: tuple[Row, ...], assume: CostAssumptions) -> tuple[Floats, Floats]:
    """Latency and B/s between rows: each replica hands on to its own, and the slowest counts."""
    heads = np.array([[rank[0] for rank in row] for row in rows])
    rate = devices.bandwidth[heads[:, None, :], heads[None, :, :]].min(axis=2) * assume.links.link_efficiency
    latency = devices.latency[heads[:, None, :], heads[None, :, :]].max(axis=2)
    return latency, rate
