"""A model as a graph of operations in topological order, and a coarser graph with fewer nodes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.core import BadInputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

KINDS = (
    *("input", "conv", "matmul", "attention", "rnn", "norm", "pool", "softmax", "embedding"),
    *("elementwise", "view", "copy", "output"),
)
"""Kinds of nodes: those of `core.Operators`, and the two ends."""

NODE_COLUMNS = (
    *("calls", "flop", "traffic", "parameters", "buffers", "saved"),
    *("split", "reduced_forward", "reduced_backward"),
)
"""Fields of `Graph` that hold a number for every node."""


@dataclass(frozen=True, slots=True)
class Tie:
    """Nodes that share `parameters` weights: one copy per device, with their gradients added up."""

    nodes: tuple[int, ...]
    parameters: float


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Nodes as columns in topological order; bytes and FLOP of a forward pass, per sample.

    `flop` is arithmetic; `traffic` bytes read and written (without weights); `parameters` the number of
    trained weights and `buffers` bytes of other state; `saved` bytes kept for the backward pass. Node
    `producer[t]` makes tensor t of `size[t]` bytes, and use u says that node `user[u]` reads tensor
    `used[u]`. `split` is the share of a node's work and weights that tensor parallelism can divide;
    `reduced_forward` and `reduced_backward` are bytes that its devices then add up. Bytes are for numbers of
    `element` bytes. `calls` counts kernels. `blocks` names the module of each node.
    """

    name: str
    names: tuple[str, ...]
    blocks: tuple[str, ...]
    kinds: tuple[str, ...]
    calls: Floats
    flop: Floats
    traffic: Floats
    parameters: Floats
    buffers: Floats
    saved: Floats
    split: Floats
    reduced_forward: Floats
    reduced_backward: Floats
    producer: Ints
    size: Floats
    used: Ints
    user: Ints
    ties: tuple[Tie, ...] = ()
    element: float = 4.0

    def __post_init__(self) -> None:
        if not self.names:
            raise BadInputError(f"the graph {self.name} has no nodes; there is nothing to split")
        if len(self.used) and not (self.producer[self.used] < self.user).all():
            raise ValueError("nodes must come after what they need; see graph.in_order")

    def __len__(self) -> int:
        return len(self.names)

    @property
    def edges(self) -> tuple[Ints, Ints, Floats]:
        """Sources, targets and bytes per sample of every use of a tensor."""
        return self.producer[self.used], self.user, self.size[self.used]

    @property
    def total_parameters(self) -> float:
        """Number of weights, shared ones counted once."""
        twice = sum((len(tie.nodes) - 1) * tie.parameters for tie in self.ties)
        return float(self.parameters.sum()) - twice

    def cut_bytes(self, size: Floats | None = None) -> Floats:
        """Bytes that pass each of the n + 1 places between nodes, per sample or for given tensor sizes."""
        size = self.size if size is None else size
        last = np.array(self.producer)
        np.maximum.at(last, self.used, self.user)
        change = np.zeros(len(self) + 2)
        np.add.at(change, self.producer + 1, size)
        np.add.at(change, last + 1, -size)
        return np.maximum(np.cumsum(change)[: len(self) + 1], 0.0)

    def columns_of(self, nodes: Sequence[int] | Ints) -> dict[str, Any]:
        """Names, blocks, kinds and numbers of some nodes, by field."""
        texts = {name: tuple(getattr(self, name)[i] for i in nodes) for name in ("names", "blocks", "kinds")}
        return texts | {name: getattr(self, name)[nodes] for name in NODE_COLUMNS}

    def reordered(self, order: Ints) -> "Graph":
        """Graph with node `order[i]` at place i; the order must be topological."""
        place = np.empty(len(self), dtype=np.int64)
        place[order] = np.arange(len(self))
        return replace(
            self,
            **self.columns_of(order),
            producer=place[self.producer],
            user=place[self.user],
            ties=tuple(Tie(tuple(sorted(int(place[n]) for n in t.nodes)), t.parameters) for t in self.ties),
        )


def in_order(sources: Ints, targets: Ints, count: int, names: Sequence[str], where: str) -> Ints:
    """A topological order of `count` nodes, ties in the given order; refuses a cycle."""
    from heapq import heapify, heappop, heappush

    waiting = np.bincount(targets, minlength=count)
    following: list[list[int]] = [[] for _ in range(count)]
    for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
        following[source].append(target)
    ready = [node for node in range(count) if waiting[node] == 0]
    heapify(ready)
    order: list[int] = []
    while ready:
        node = heappop(ready)
        order.append(node)
        for target in following[node]:
            waiting[target] -= 1
            if waiting[target] == 0:
                heappush(ready, target)
    if len(order) < count:
        stuck = {node for node in range(count) if waiting[node] > 0}
        before = {target: node for node in stuck for target in following[node] if target in stuck}
        path = [next(iter(before))]
        while (node := before[path[-1]]) not in path:
            path.append(node)
        ring = path[path.index(node) :][::-1]
        shown = [names[n] for n in ring[:6]]
        cycle = " → ".join([*shown, "…" if len(ring) > 6 else shown[0]])
        raise BadInputError(f"{where}: there is a cycle: {cycle}")
    return np.array(order, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Coarse:
    """The coarse graph, and the first fine node of each of its nodes."""

    fine: Graph
    graph: Graph
    starts: Ints

    def spread(self, column: Ints) -> Ints:
        """A value per fine node, given one per coarse node."""
        return np.repeat(column, np.diff(np.append(self.starts, len(self.fine))))

    def summed(self, column: Floats) -> Floats:
        """Sums per coarse node, given a value per fine node."""
        return np.asarray(np.add.reduceat(column, self.starts))


def coarsened(graph: Graph, most: int) -> Coarse:
    """A graph of about `most` nodes: spans of equal work, cut where few bytes cross."""
    work = graph.flop / max(graph.flop.sum(), 1e-30) + graph.traffic / max(graph.traffic.sum(), 1e-30)
    starts = quiet_places(graph, work + 1.0 / len(graph), most)[:-1]
    lengths = np.diff(np.append(starts, len(graph)))
    group = np.repeat(np.arange(len(starts)), lengths)
    heaviest = [
        int(start + np.argmax((graph.flop + graph.traffic)[start : start + length]))
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
    ]

    def summed(column: Floats) -> Floats:
        return np.asarray(np.add.reduceat(column, starts))

    ties, parameters = [], summed(graph.parameters)
    for tie in graph.ties:
        nodes, counts = np.unique(group[list(tie.nodes)], return_counts=True)
        parameters[nodes] -= (counts - 1) * tie.parameters  # a coarse node holds a shared weight once
        if len(nodes) > 1:
            ties.append(Tie(tuple(nodes.tolist()), tie.parameters))
    weight = graph.parameters + graph.flop * 1e-3 + 1e-9
    leaves = np.zeros(len(graph.producer), dtype=bool)
    crosses = group[graph.user] != group[graph.producer[graph.used]]
    np.logical_or.at(leaves, graph.used, crosses)
    number = np.cumsum(leaves) - 1
    uses = np.unique(np.stack([number[graph.used], group[graph.user]])[:, crosses], axis=1)
    columns = graph.columns_of(heaviest) | {name: summed(getattr(graph, name)) for name in NODE_COLUMNS}
    columns |= {"parameters": parameters, "split": summed(graph.split * weight) / summed(weight)}
    coarse = replace(
        graph,
        **columns,
        producer=group[graph.producer[leaves]],
        size=graph.size[leaves],
        used=uses[0],
        user=uses[1],
        ties=tuple(ties),
    )
    return Coarse(graph, coarse, starts)


def quiet_places(graph: Graph, weight: Floats, count: int) -> Ints:
    """Ends of about `count` spans of equal weight, each where the fewest bytes cross nearby; includes 0."""
    done = np.concatenate([[0.0], np.cumsum(weight)])
    crossing = graph.cut_bytes()
    marks = np.searchsorted(done, np.linspace(0.0, done[-1], count + 1))
    places = {0, len(graph)}
    for low, high in zip(marks[:-1].tolist(), marks[1:].tolist(), strict=True):
        if high > low:
            places.add(low + 1 + int(np.argmin(crossing[low + 1 : high + 1])))
    return np.array(sorted(places), dtype=np.int64)
