"""A model as a graph: what each operation computes, holds and hands on, in an order that can be run."""

from collections.abc import Sequence
from dataclasses import dataclass

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
"""What a node may be; those of `core.Operators`, and the two ends."""


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

    def reordered(self, order: Ints) -> "Graph":
        """The same graph with node `order[i]` at place i; the order must put needs first."""
        place = np.empty(len(self), dtype=np.int64)
        place[order] = np.arange(len(self))
        return Graph(
            name=self.name,
            names=tuple(self.names[i] for i in order),
            blocks=tuple(self.blocks[i] for i in order),
            kinds=tuple(self.kinds[i] for i in order),
            calls=self.calls[order],
            flop=self.flop[order],
            traffic=self.traffic[order],
            parameters=self.parameters[order],
            buffers=self.buffers[order],
            saved=self.saved[order],
            split=self.split[order],
            reduced_forward=self.reduced_forward[order],
            reduced_backward=self.reduced_backward[order],
            producer=place[self.producer],
            size=self.size,
            used=self.used,
            user=place[self.user],
            ties=tuple(Tie(tuple(sorted(int(place[n]) for n in t.nodes)), t.parameters) for t in self.ties),
            element=self.element,
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
