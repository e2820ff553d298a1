"""The draft of a graph: the parts of a model in running order, and their shares for tensor parallelism."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trimtab.partition.graph import Floats, Graph, Ints, Tie


@dataclass(frozen=True, slots=True)
class Held:
    """A weight or a buffer: numbers, bytes, and whether it is trained."""

    numbers: int
    size: float
    trained: bool


@dataclass(slots=True)
class NodeWork:
    """Work of one node in a forward pass: kernels, FLOP, bytes moved, weights read (by key)."""

    calls: float = 0.0
    flop: float = 0.0
    traffic: float = 0.0
    by_kind: dict[str, tuple[float, float]] = field(default_factory=dict)
    held: set[int] = field(default_factory=set)

    def add(self, kind: str, flop: float, traffic: float) -> None:
        """Add one kernel."""
        self.join(NodeWork(1.0, flop, traffic, {kind: (flop, traffic)}))

    def join(self, other: "NodeWork") -> None:
        """Add the work of another node."""
        self.calls += other.calls
        self.flop += other.flop
        self.traffic += other.traffic
        self.held |= other.held
        for kind, (flop, traffic) in other.by_kind.items():
            before = self.by_kind.get(kind, (0.0, 0.0))
            self.by_kind[kind] = (before[0] + flop, before[1] + traffic)

    @property
    def kind(self) -> str:
        """The kind with the most FLOP, or with the most bytes if there is no FLOP."""
        return max(self.by_kind, key=lambda kind: self.by_kind[kind], default="view")


_PASSES_ON = ("elementwise", "view", "copy", "softmax")


def split_columns(
    kinds: Sequence[str], parameters: Floats, producer: Ints, size: Floats, used: Ints, user: Ints
) -> tuple[Floats, Floats, Floats]:
    """`Graph.split`, and the bytes reduced forward and backward; nodes are in running order."""
    count = len(kinds)
    split, forward, backward = np.zeros(count), np.zeros(count), np.zeros(count)
    written = np.bincount(producer, weights=size, minlength=count)
    read: list[list[int]] = [[] for _ in range(count)]
    readers: list[list[int]] = [[] for _ in range(count)]
    for tensor, node in zip(used.tolist(), user.tolist(), strict=True):
        read[node].append(tensor)
        readers[int(producer[tensor])].append(node)
    weighted = [kind == "matmul" and parameters[node] > 0 for node, kind in enumerate(kinds)]
    # Nodes whose results reach attention, or a product without weights, before any other product.
    mixes = [False] * count
    for node in reversed(range(count)):
        for reader in readers[node]:
            mixing = kinds[reader] in ("attention", "matmul") and not weighted[reader]
            mixes[node] |= mixing or (kinds[reader] in _PASSES_ON and mixes[reader])
    widening: defaultdict[int, list[int]] = defaultdict(list)
    divided = [False] * count
    for node, kind in enumerate(kinds):
        sources = [int(producer[tensor]) for tensor in read[node]]
        if kind == "embedding" and parameters[node] > 0:
            split[node], forward[node] = 1.0, written[node]
        elif weighted[node]:
            split[node] = 1.0
            divided[node] = written[node] > size[read[node]].sum() or mixes[node]
            if divided[node]:
                widening[read[node][0] if read[node] else -1].append(node)
            else:
                forward[node] = written[node]
        else:
            inside = kind in _PASSES_ON and bool(sources) and all(divided[source] for source in sources)
            divided[node] = inside or kind in ("matmul", "attention")
            split[node] = float(divided[node])
    for tensor, nodes in widening.items():
        # Products that read the same tensor (queries, keys, values) share one sum of its gradient.
        backward[nodes] = size[tensor] / len(nodes) if tensor >= 0 else 0.0
    return split, forward, backward


@dataclass(slots=True)
class DraftNode:
    """The draft of one node. Amounts are those of the whole example batch."""

    name: str
    block: str
    kind: str
    work: NodeWork
    saved: float = 0.0


@dataclass(slots=True)
class Draft:
    """Parts, tensors (maker and bytes) and uses (tensor and user), for an example batch."""

    batch: int
    held: Mapping[int, Held]
    parts: list[DraftNode] = field(default_factory=list)
    tensors: list[tuple[int, float]] = field(default_factory=list)
    uses: list[tuple[int, int]] = field(default_factory=list)

    def graph(self, name: str) -> Graph:
        """The graph with amounts per sample; parts that read the same weight are tied."""
        works = [part.work for part in self.parts]
        producer = np.array([maker for maker, _ in self.tensors], dtype=np.int64)
        size = np.array([size for _, size in self.tensors], dtype=np.float64) / self.batch
        used = np.array([tensor for tensor, _ in self.uses], dtype=np.int64)
        user = np.array([user for _, user in self.uses], dtype=np.int64)
        parameters, buffers = self._weights(works)
        kinds = tuple(part.kind for part in self.parts)
        split, forward, backward = split_columns(kinds, parameters, producer, size, used, user)
        names, count = [], Counter[str]()
        for part in self.parts:  # repeated names get a number from the second on
            count[part.name] += 1
            names.append(part.name if count[part.name] == 1 else f"{part.name}#{count[part.name]}")
        return Graph(
            name=name,
            names=tuple(names),
            blocks=tuple(part.block for part in self.parts),
            kinds=kinds,
            calls=np.array([work.calls for work in works]),
            flop=np.array([work.flop for work in works]) / self.batch,
            traffic=np.array([work.traffic for work in works]) / self.batch,
            parameters=parameters,
            buffers=buffers,
            saved=np.array([part.saved for part in self.parts]) / self.batch,
            split=split,
            reduced_forward=forward,
            reduced_backward=backward,
            producer=producer,
            size=size,
            used=used,
            user=user,
            ties=self._ties(works),
        )

    def _weights(self, works: list[NodeWork]) -> tuple[np.ndarray, np.ndarray]:
        """Trained weights of each part, and bytes of other state, which counts for its first reader."""
        parameters, buffers = np.zeros(len(works)), np.zeros(len(works))
        counted: set[int] = set()
        for node, work in enumerate(works):
            for key in work.held:
                held = self.held[key]
                if held.trained:
                    parameters[node] += held.numbers
                elif key not in counted:
                    buffers[node] += held.size
                    counted.add(key)
        return parameters, buffers

    def _ties(self, works: list[NodeWork]) -> tuple[Tie, ...]:
        readers: dict[int, list[int]] = {}
        for node, work in enumerate(works):
            for key in work.held:
                if self.held[key].trained:
                    readers.setdefault(key, []).append(node)
        shared: dict[tuple[int, ...], float] = {}
        for key, nodes in readers.items():
            if len(nodes) > 1:
                shared[tuple(nodes)] = shared.get(tuple(nodes), 0.0) + self.held[key].numbers
        return tuple(Tie(nodes, numbers) for nodes, numbers in sorted(shared.items()))
