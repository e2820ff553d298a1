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
    """Assumptions of the cost of a plan."""

    links: ScaleOutAssumptions = field(default_factory=ScaleOutAssumptions)
    """Efficiency of links, and the share of a collective that overlaps with computation."""
    correction: tuple[tuple[str, float, float], ...] = ()
    """By kind of device: measured forward and backward times relative to the formulas."""
    overlapped: bool = True
    """Whether a stage computes while it sends and receives; otherwise it waits until it has sent."""

    def corrected(self, kind: str) -> tuple[float, float]:
        """Factors on forward and backward times of a kind of device."""
        return next(((ahead, back) for name, ahead, back in self.correction if name == kind), (1.0, 1.0))


@dataclass(slots=True)
class NodeTimes:
    """Cached times by kind of device, samples, and number of devices that share a product.

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
            self._known[key] = self._compute(device, samples, tensor)
        return self._known[key]

    def _compute(self, device: Device, samples: int, tensor: int) -> OperationTimes:
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
"""Weights, gradients and optimizer state are fp32, even where products are in 16 bit."""


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
    scale = (4.0 / graph.element) * (0.5 if is_half(recipe.precision) else 1.0)

    def replica(rank: tuple[int, ...], share: int, ring: float) -> tuple[Floats, Floats, Floats, float]:
        """Forward, backward and once per node, and once per row, of one replica."""
        took = times.on(devices[rank[0]], share, layout.tensor)
        ahead, back = took.forward, took.backward
        if len(rank) > 1:
            ahead = ahead + reduction(graph.reduced_forward, rank, share)
            back = back + reduction(graph.reduced_backward, rank, share) if recipe.training else back
        if layout.recompute and recipe.training:
            back = back + ahead
        gather = reduce = np.zeros(len(graph))
        if layout.replicas > 1 and recipe.training:
            moved = WEIGHT_BYTES * graph.parameters / layout.tensor * (layout.replicas - 1) / layout.replicas
            around = moved / ring if ring > 0.0 else np.where(moved > 0, np.inf, 0.0)
            if layout.sharding == "full":
                gather = (
                    1.5 * around
                )  # gathered forward, gathered and scattered backward: three in two passes
            else:
                reduce = 2.0 * around
        ahead = ahead + exposed_seconds(gather, ahead, assume.links)
        back = back + exposed_seconds(gather, back, assume.links)
        update = took.once + took.update / (1 if layout.sharding == "none" else layout.replicas)
        return ahead, back, update + exposed_seconds(reduce, back, assume.links), took.step

    def reduction(reduced: Floats, rank: tuple[int, ...], samples: int) -> Floats:
        """Seconds per node in which devices that share products add up `reduced` bytes per sample."""
        count, rate = len(rank), inside_rate(devices, rank, assume)
        latency = 2 * (count - 1) * max(devices.latency[i, j] for i in rank for j in rank if i != j)
        moved = 2 * (count - 1) / count * reduced * (scale * samples) / rate if rate > 0.0 else np.inf
        return np.where(reduced > 0, moved + latency, 0.0)

    known: dict[tuple[object, ...], tuple[Floats, Floats, Floats, float]] = {}
    columns = []
    for row in rows:
        ring = ring_rate(devices, row, assume)
        kinds = {
            (devices[rank[0]].kind, share, inside_rate(devices, rank, assume)): (rank, share)
            for rank, share in zip(row, layout.shares, strict=True)
        }
        key = (ring, *kinds)
        if key not in known:
            *per_node, per_row = zip(*(replica(*sort, ring) for sort in kinds.values()), strict=True)
            ahead, back, once = (np.max(column, axis=0) for column in per_node)
            known[key] = ahead, back, once, max(per_row)
        columns.append(known[key])
    forward, backward, once, row_once = zip(*columns, strict=True)
    return np.stack(forward), np.stack(backward), np.stack(once), np.array(row_once)


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
    """Latency and B/s between rows: each replica sends to its counterpart, and the slowest counts."""
    heads = np.array([[rank[0] for rank in row] for row in rows])
    rate = devices.bandwidth[heads[:, None, :], heads[None, :, :]].min(axis=2) * assume.links.link_efficiency
    latency = devices.latency[heads[:, None, :], heads[None, :, :]].max(axis=2)
    return latency, rate
