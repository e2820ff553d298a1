"""Where a graph may be cut, as columns: places of an order, or all sets of nodes that can come first."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.partition.graph import Floats, Ints
from trimtab.partition.problem import Problem

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Cuts that can be made, the empty one first and the whole graph last; columns have a line per place.

    `crossing` bytes pass a place; `after[i, j]` says that a stage may reach from i to j, and `largest[i, j]`
    is its largest tensor. Which nodes come before each place is told by `ends` (so many of the order) or by
    `first`.
    """

    problem: Problem
    first: Bools | None
    ends: Ints | None
    crossing: Floats
    after: Bools
    largest: Floats

    def __len__(self) -> int:
        return len(self.crossing)

    def before(self, column: Floats) -> Floats:
        """For each place, the column's values over the nodes before it, added up."""
        if self.ends is not None:
            return np.concatenate([[0.0], np.cumsum(column)])[self.ends]
        assert self.first is not None
        return self.first @ column

    def stages(self, chosen: Sequence[int]) -> Ints:
        """The stage of every node when cut at the chosen places (the ends included)."""
        count = len(self.problem.graph)
        if self.ends is not None:
            return np.searchsorted(self.ends[list(chosen[1:])], np.arange(count), side="right").astype(
                np.int64
            )
        assert self.first is not None
        behind: Ints = (~self.first[list(chosen[1:])]).sum(axis=0)
        return behind


def places_of_order(problem: Problem, ends: Ints | None = None) -> Places:
    """The places between nodes in the graph's own order: all of them, or those after `ends` nodes."""
    graph, count = problem.graph, len(problem.graph)
    ends = np.arange(count + 1) if ends is None else ends
    crossing = graph.cut_bytes(problem.tensor_bytes)[ends]
    made = np.zeros(count)
    np.maximum.at(made, graph.producer, problem.tensor_bytes)
    between = np.maximum.reduceat(np.append(made, 0.0), ends[:-1]) if len(ends) > 1 else made[:0]
    index = np.arange(len(ends))
    return Places(
        problem=problem,
        first=None,
        ends=ends,
        crossing=np.where(crossing < 0.5, 0.0, crossing),
        after=index[None, :] > index[:, None],
        largest=_range_maximum(between),
    )


def _range_maximum(steps: Floats) -> Floats:
    """[i, j]: the largest of steps i to j - 1."""
    count = len(steps) + 1
    wide = np.where(np.arange(count - 1)[None, :] >= np.arange(count)[:, None], steps[None, :], 0.0)
    return np.concatenate([np.zeros((count, 1)), np.maximum.accumulate(wide, axis=1)], axis=1)


def places_of_sets(problem: Problem, limit: int) -> tuple[Places, bool]:
    """Sets of nodes that hold what they need: all of them, or about `limit` that few bytes leave.

    Also says whether those are all.
    """
    found, whole = _closed_sets(problem, limit)
    graph = problem.graph
    first = _as_bools(found, len(graph))
    outside = ~first
    size = len(first)
    needed = np.zeros((size, len(graph.producer)), dtype=bool)
    for use, node in zip(graph.used.tolist(), graph.user.tolist(), strict=True):
        needed[:, use] |= outside[:, node]
    crossing = (needed & first[:, graph.producer]) @ problem.tensor_bytes
    made = np.zeros(len(graph))
    np.maximum.at(made, graph.producer, problem.tensor_bytes)
    largest = np.zeros((size, size))
    for node in np.argsort(made, kind="stable").tolist():
        if made[node] > 0.0:
            largest[np.ix_(outside[:, node], first[:, node])] = made[node]
    counts = first.sum(axis=1)
    inside = (first.astype(np.float32) @ first.T.astype(np.float32)) >= counts[:, None] - 0.5
    after = inside & (counts[None, :] > counts[:, None])
    return Places(problem, first, None, crossing, after, largest), whole


def _closed_sets(problem: Problem, limit: int) -> tuple[list[int], bool]:
    """As bits of an integer, smaller ones first; too many of one size are cut to those few bytes leave."""
    leaving = _Leaving(problem)
    every = _layers(leaving, limit, None)
    if every is not None:
        return every, True
    return _layers(leaving, limit, max(1, limit // len(problem.graph))) or [], False


def _layers(leaving: "_Leaving", limit: int, width: int | None) -> list[int] | None:
    """Sets by size, `width` of each at most; without a width, None where there are more than the limit."""
    found, layer = [0], {0: 0.0}
    while layer:
        following: dict[int, float] = {}
        for inside, bytes_out in layer.items():
            for node in leaving.next_nodes(inside):
                following[inside | 1 << node] = bytes_out + leaving.change(inside, node)
        if width is None and len(found) + len(following) > limit:
            return None
        chosen = sorted(following, key=following.__getitem__)[:width]
        layer = {each: following[each] for each in chosen}
        found.extend(layer)
    return found


class _Leaving:
    """Bytes that leave a set of nodes, kept as bits, and how one node more changes them."""

    def __init__(self, problem: Problem) -> None:
        graph = problem.graph
        self.needs = [0] * len(graph)
        self.uses: list[list[int]] = [[] for _ in range(len(graph))]
        self.users = [0] * len(graph.producer)
        self.made = [0.0] * len(graph)
        self.size = problem.tensor_bytes.tolist()
        for tensor, node in zip(graph.used.tolist(), graph.user.tolist(), strict=True):
            self.needs[node] |= 1 << int(graph.producer[tensor])
            self.users[tensor] |= 1 << node
            if tensor not in self.uses[node]:
                self.uses[node].append(tensor)
        for tensor, node in enumerate(graph.producer.tolist()):
            self.made[node] += self.size[tensor] if self.users[tensor] else 0.0

    def next_nodes(self, inside: int) -> list[int]:
        """Nodes outside whose needs are inside."""
        return [
            node for node, need in enumerate(self.needs) if not inside >> node & 1 and need & inside == need
        ]

    def change(self, inside: int, node: int) -> float:
        """Bytes that leave the set with the node, less those that leave it without."""
        with_it = inside | 1 << node
        done: float = sum(self.size[t] for t in self.uses[node] if not self.users[t] & ~with_it)
        return self.made[node] - done


def _as_bools(sets: Sequence[int], count: int) -> Bools:
    width = (count + 7) // 8
    packed = np.frombuffer(b"".join(each.to_bytes(width, "little") for each in sets), dtype=np.uint8)
    return np.unpackbits(packed.reshape(len(sets), width), axis=1, bitorder="little")[:, :count].astype(bool)
