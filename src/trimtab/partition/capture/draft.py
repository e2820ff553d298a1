"""A graph in the making: the parts of a model in running order, and which of them devices can share."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trimtab.partition.graph import Floats, Graph, Ints, Tie


@dataclass(frozen=True, slots=True)
class Held:
    """A weight or a buffer of the model: how many numbers, bytes, and whether it is trained."""

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
        """One more kernel."""
        before = self.by_kind.get(kind, (0.0, 0.0))
        self.by_kind[kind] = (before[0] + flop, before[1] + traffic)
        self.calls += 1
        self.flop += flop
        self.traffic += traffic

    def join(self, other: "NodeWork") -> None:
        """Take over what another part does."""
        self.calls += other.calls
        self.flop += other.flop
        self.traffic += other.traffic
        self.held |= other.held
        for kind, (flop, traffic) in other.by_kind.items():
            before = self.by_kind.get(kind, (0.0, 0.0))
            self.by_kind[kind] = (before[0] + flop, before[1] + traffic)

    @property
    def kind(self) -> str:
        """Kind with the most FLOP, or with the most bytes where there is no FLOP."""
        return max(self.by_kind, key=lambda kind: self.by_kind[kind], default="view")


_PASSES_ON = ("elementwise", "view", "copy", "softmax")


@dataclass(frozen=True, slots=True)
class SplitColumns:
    """`Graph.split`, and the bytes added up in the forward and in the backward pass."""

    split: Floats
    forward: Floats
    backward: Floats


def split_columns(
    kinds: Sequence[str], parameters: Floats, producer: Ints, size: Floats, used: Ints, user: Ints
) -> SplitColumns:
    """Shares that tensor parallelism can divide; nodes are in running order."""
    count = len(kinds)
    result = SplitColumns(np.zeros(count), np.zeros(count), np.zeros(count))
    written = np.bincount(producer, weights=size, minlength=count)
    read: list[list[int]] = [[] for _ in range(count)]
    readers: list[list[int]] = [[] for _ in range(count)]
    for tensor, node in zip(used.tolist(), user.tolist(), strict=True):
        read[node].append(tensor)
        readers[int(producer[tensor])].append(node)
    weighted = [kind == "matmul" and parameters[node] > 0 for node, kind in enumerate(kinds)]
    mixes = _goes_into_attention(kinds, weighted, readers)
    widening: defaultdict[int, list[int]] = defaultdict(list)
    divided = [False] * count
    for node, kind in enumerate(kinds):
        sources = [int(producer[tensor]) for tensor in read[node]]
        if kind == "embedding" and parameters[node] > 0:
            result.split[node], result.forward[node] = 1.0, written[node]
        elif weighted[node]:
            result.split[node] = 1.0
            divided[node] = written[node] > size[read[node]].sum() or mixes[node]
            if divided[node]:
                widening[read[node][0] if read[node] else -1].append(node)
            else:
                result.forward[node] = written[node]
        else:
            inside = kind in _PASSES_ON and bool(sources) and all(divided[source] for source in sources)
            divided[node] = inside or kind in ("matmul", "attention")
            result.split[node] = float(divided[node])
    for tensor, nodes in widening.items():
        # Products that read the same tensor (queries, keys, values) share one sum of its gradient.
        result.backward[nodes] = size[tensor] / len(nodes) if tensor >= 0 else 0.0
    return result


def _goes_into_attention(
    kinds: Sequence[str], weighted: Sequence[bool], readers: Sequence[Sequence[int]]
) -> list[bool]:
    """Whether a node's result reaches attention, or a product without weights, before any other product."""
    reaches = [False] * len(kinds)
    for node in reversed(range(len(kinds))):
        for reader in readers[node]:
            mixes = kinds[reader] in ("attention", "matmul") and not weighted[reader]
            reaches[node] |= mixes or (kinds[reader] in _PASSES_ON and reaches[reader])
    return reaches


@dataclass(slots=True)
class DraftNode:
    """One node to be. `saved` bytes, like everything here, are those of the whole example batch."""

    name: str
    block: str
    kind: str
    work: NodeWork
    saved: float = 0.0


@dataclass(slots=True)
class Draft:
    """Parts, tensors (their maker and bytes) and uses (a tensor and its user), for a batch of examples."""

    batch: int
    held: Mapping[int, Held]
    parts: list[DraftNode] = field(default_factory=list)
    tensors: list[tuple[int, float]] = field(default_factory=list)
    uses: list[tuple[int, int]] = field(default_factory=list)

    def graph(self, name: str) -> Graph:
        """Columns per sample; parts that read the same weight are tied."""
        works = [part.work for part in self.parts]
        producer = np.array([maker for maker, _ in self.tensors], dtype=np.int64)
        size = np.array([size for _, size in self.tensors], dtype=np.float64) / self.batch
        used = np.array([tensor for tensor, _ in self.uses], dtype=np.int64)
        user = np.array([user for _, user in self.uses], dtype=np.int64)
        parameters, buffers = self._weights(works)
        kinds = tuple(part.kind for part in self.parts)
        columns = split_columns(kinds, parameters, producer, size, used, user)
        return Graph(
            name=name,
            names=_distinct([part.name for part in self.parts]),
            blocks=tuple(part.block for part in self.parts),
            kinds=kinds,
            calls=np.array([work.calls for work in works]),
            flop=np.array([work.flop for work in works]) / self.batch,
            traffic=np.array([work.traffic for work in works]) / self.batch,
            parameters=parameters,
            buffers=buffers,
            saved=np.array([part.saved for part in self.parts]) / self.batch,
            split=columns.split,
            reduced_forward=columns.forward,
            reduced_backward=columns.backward,
            producer=producer,
            size=size,
            used=used,
            user=user,
            ties=self._ties(works),
        )

    def _weights(self, works: list[NodeWork]) -> tuple[np.ndarray, np.ndarray]:
        """Trained numbers of each part, and bytes of what is not, the latter with their first reader."""
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


def _distinct(names: list[str]) -> tuple[str, ...]:
    """Names made distinct: repeated ones get a number from the second on."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return tuple(result)
