"""A model as a graph: what each operation computes, holds and hands on, in an order that can be run."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.core import BadInputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

KINDS = (
    "input",
    "conv",
    "matmul",
    "attention",
    "rnn",
    "norm",
    "pool",
    "softmax",
    "embedding",
    "elementwise",
    "view",
    "copy",
    "output",
)
"""Kinds of nodes: those of `core.Operators`, and the two ends."""

NODE_COLUMNS = (
    "calls",
    "flop",
    "traffic",
    "parameters",
    "buffers",
    "saved",
    "split",
    "reduced_forward",
    "reduced_backward",
)
"""Fields of `Graph` that hold a number for every node."""


@dataclass(frozen=True, slots=True)
class Tie:
    """Nodes that use the same `parameters` weights: one copy per device, and gradients that are added up."""

    nodes: tuple[int, ...]
    parameters: float


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Nodes as columns, each after all that it needs; bytes and FLOP of a forward pass, per sample.

    `flop` is arithmetic; `traffic` bytes read and written (without weights); `parameters` how many weights
    are trained and `buffers` bytes of those that are not; `saved` bytes kept for the backward pass. Tensors
    are what edges carry: `producer[t]` hands on `size[t]` bytes, and use u says that node `user[u]` needs
    tensor `used[u]`. `split` is the share of a node's work and weights that tensor parallelism can divide;
    `reduced_forward` and `reduced_backward` are bytes that its devices then add up. Bytes are for numbers of
    `element` bytes. `calls` counts kernels. `blocks` names the module a node belongs to.
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
        """Weights, those that are shared counted once."""
        twice = sum((len(tie.nodes) - 1) * tie.parameters for tie in self.ties)
        return float(self.parameters.sum()) - twice

    def cut_bytes(self, size: Floats | None = None) -> Floats:
        """Bytes that pass each of the n + 1 places between nodes, every tensor counted once.

        Per sample, or with tensors of the given `size`.
        """
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
    """An order of `count` nodes that puts sources before targets, otherwise as they came; refuses a cycle."""
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
        raise BadInputError(f"{where}: there is a cycle: {_cycle(following, waiting, names)}")
    return np.array(order, dtype=np.int64)


def _cycle(following: Sequence[Sequence[int]], waiting: Ints, names: Sequence[str]) -> str:
    """One of the cycles among the nodes that still wait, in words."""
    stuck = {node for node in range(len(names)) if waiting[node] > 0}
    before = {target: node for node in stuck for target in following[node] if target in stuck}
    node = next(iter(before))
    seen: list[int] = []
    while node not in seen:
        seen.append(node)
        node = before[node]
    ring = [*reversed(seen[seen.index(node) :])]
    shown = [names[n] for n in (ring if len(ring) <= 6 else ring[:6])]
    return " → ".join([*shown, "…" if len(ring) > 6 else shown[0]])


@dataclass(frozen=True, slots=True, eq=False)
class Coarse:
    """The smaller graph, and where each of its nodes begins in the order of the `fine` one."""

    fine: Graph
    graph: Graph
    starts: Ints

    def spread(self, column: Ints) -> Ints:
        """A value per coarse node as one per fine node."""
        return np.repeat(column, np.diff(np.append(self.starts, len(self.fine))))

    def summed(self, column: Floats) -> Floats:
        """A value per fine node, added up per coarse node."""
        return np.asarray(np.add.reduceat(column, self.starts))


def coarsened(graph: Graph, most: int) -> Coarse:
    """At most about so many nodes: cut into spans of equal work where the fewest bytes cross."""
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

    ties, twice = _ties(graph, group)
    parameters = summed(graph.parameters)
    np.subtract.at(parameters, [where for where, _ in twice], [count for _, count in twice])
    weight = graph.parameters + graph.flop * 1e-3 + 1e-9
    leaves = np.zeros(len(graph.producer), dtype=bool)
    np.logical_or.at(leaves, graph.used, group[graph.user] != group[graph.producer[graph.used]])
    number = np.cumsum(leaves) - 1
    uses = np.unique(
        np.stack([number[graph.used], group[graph.user]])[
            :, leaves[graph.used] & (group[graph.user] != group[graph.producer[graph.used]])
        ],
        axis=1,
    )
    columns = graph.columns_of(heaviest) | {name: summed(getattr(graph, name)) for name in NODE_COLUMNS}
    columns |= {"parameters": parameters, "split": summed(graph.split * weight) / summed(weight)}
    coarse = replace(
        graph,
        **columns,
        producer=group[graph.producer[leaves]],
        size=graph.size[leaves],
        used=uses[0],
        user=uses[1],
        ties=ties,
    )
    return Coarse(graph, coarse, starts)


def quiet_places(graph: Graph, weight: Floats, count: int) -> Ints:
    """Ends of about so many spans of equal weight, each where the fewest bytes cross nearby; 0 is one too."""
    done = np.concatenate([[0.0], np.cumsum(weight)])
    crossing = graph.cut_bytes()
    marks = np.searchsorted(done, np.linspace(0.0, done[-1], count + 1))
    found = {0, len(graph)}
    for low, high in zip(marks[:-1].tolist(), marks[1:].tolist(), strict=True):
        if high > low:
            found.add(low + 1 + int(np.argmin(crossing[low + 1 : high + 1])))
    return np.array(sorted(found), dtype=np.int64)


def _ties(graph: Graph, group: Ints) -> tuple[tuple[Tie, ...], list[tuple[int, float]]]:
    """Ties between coarse nodes, and weights that one coarse node would hold twice."""
    ties, twice = [], []
    for tie in graph.ties:
        where, counts = np.unique(group[list(tie.nodes)], return_counts=True)
        twice += [(int(w), (int(c) - 1) * tie.parameters) for w, c in zip(where, counts, strict=True)]
        if len(where) > 1:
            ties.append(Tie(tuple(where.tolist()), tie.parameters))
    return tuple(ties), twice
