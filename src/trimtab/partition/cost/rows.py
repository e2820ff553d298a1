"""What nodes cost on rows of devices: seconds with collectives, and the links between rows."""

import numpy as np

from trimtab.partition.cost.assumptions import Assumptions
from trimtab.partition.cost.node_times import NodeTimes
from trimtab.partition.devices import Devices
from trimtab.partition.graph import Floats, Graph
from trimtab.partition.layout import Layout, Row
from trimtab.partition.plan import Recipe

WEIGHT_BYTES = 4.0
"""Weights, gradients and optimizer state are fp32, also where products are in 16 bit."""


def row_times(
    graph: Graph,
    devices: Devices,
    recipe: Recipe,
    layout: Layout,
    rows: tuple[Row, ...],
    assume: Assumptions,
    times: NodeTimes,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Forward, backward and once, per row and node, and once per row; a row waits for its slowest replica."""
    shape = (len(rows), len(graph))
    forward, backward, once, row_once = np.zeros(shape), np.zeros(shape), np.zeros(shape), np.zeros(len(rows))
    known: dict[tuple[object, ...], int] = {}
    for r, row in enumerate(rows):
        ring = _ring_rate(devices, row, assume)
        alike = (
            ring,
            *((devices[rank[0]].kind, _inside_rate(devices, rank, assume)) for rank in row),
            *(devices[rank[0]].peak.get(recipe.precision) for rank in row),
        )
        if alike in known:
            same = known[alike]
            forward[r], backward[r], once[r] = forward[same], backward[same], once[same]
            row_once[r] = row_once[same]
            continue
        known[alike] = r
        for rank, share in zip(row, layout.shares, strict=True):
            device = devices[rank[0]]
            took = times.on(device, share, layout.tensor)
            ahead, back = _with_reductions(
                graph, took.forward, took.backward, devices, rank, share, recipe, assume
            )
            if layout.recompute and recipe.training:
                back = back + ahead
            gather, reduce = _sharding_seconds(graph, layout, ring, recipe)
            ahead, back = ahead + _shown(gather, ahead, assume), back + _shown(gather, back, assume)
            weights = WEIGHT_BYTES * graph.parameters / layout.tensor
            update = took.update * weights / (1 if layout.sharding == "none" else layout.replicas)
            forward[r] = np.maximum(forward[r], ahead)
            backward[r] = np.maximum(backward[r], back)
            once[r] = np.maximum(once[r], update + _shown(reduce, back, assume))
            row_once[r] = max(row_once[r], took.once)
    return forward, backward, once, row_once


def _with_reductions(
    graph: Graph,
    forward: Floats,
    backward: Floats,
    devices: Devices,
    rank: tuple[int, ...],
    samples: int,
    recipe: Recipe,
    assume: Assumptions,
) -> tuple[Floats, Floats]:
    """With what devices that share products spend on adding up their parts."""
    count = len(rank)
    if count == 1:
        return forward, backward
    rate = _inside_rate(devices, rank, assume)
    latency = 2 * (count - 1) * max(devices.latency[i, j] for i in rank for j in rank if i != j)
    scale = (4.0 / graph.element) * (0.5 if recipe.precision in ("bf16", "fp16") else 1.0) * samples

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


def _shown(collective: Floats, behind: Floats, assume: Assumptions) -> Floats:
    """What of a collective does not hide behind the work it runs beside."""
    return np.maximum(collective - assume.overlap * behind, assume.exposed * collective)


def _ring_rate(devices: Devices, row: Row, assume: Assumptions) -> float:
    """B/s of the slowest link in the ring of a row's replicas; infinite for one replica."""
    heads = [rank[0] for rank in row]
    if len(heads) == 1:
        return float("inf")
    pairs = zip(heads, [*heads[1:], heads[0]], strict=True)
    return assume.link_efficiency * min(float(devices.bandwidth[i, j]) for i, j in pairs)


def _inside_rate(devices: Devices, rank: tuple[int, ...], assume: Assumptions) -> float:
    """B/s of the slowest link between devices that share products."""
    if len(rank) == 1:
        return float("inf")
    return assume.link_efficiency * min(float(devices.bandwidth[i, j]) for i in rank for j in rank if i != j)


def links(devices: Devices, rows: tuple[Row, ...], assume: Assumptions) -> tuple[Floats, Floats]:
    """Latency and B/s between rows: each replica hands on to its own, and the slowest counts."""
    heads = np.array([[rank[0] for rank in row] for row in rows])
    rate = devices.bandwidth[heads[:, None, :], heads[None, :, :]].min(axis=2) * assume.link_efficiency
    latency = devices.latency[heads[:, None, :], heads[None, :, :]].max(axis=2)
    return latency, rate
