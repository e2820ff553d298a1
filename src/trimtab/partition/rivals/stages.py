"""From a device for each node to plans: what a device can run in one go is a stage."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

import numpy as np

from trimtab.partition.graph import Graph, Ints
from trimtab.partition.plan import Plan, Recipe, Schedule, Stage

_SCHEDULES: tuple[Schedule, ...] = ("1f1b", "gpipe")
_AT_THE_END = -1  # instead of a device


def stages_of(graph: Graph, device_of: Ints) -> tuple[Stage, ...]:
    """Stages one after the other, as few as a simple look ahead finds; a device may get several.

    As long as the device at hand has nodes whose needs are met, it goes on; then comes the one that can do
    the largest share of what it has left. Inputs go where they are first used, outputs where all ends.
    """
    runs = list(_Progress(graph, _with_ends_moved(graph, device_of)).runs())
    ends = [node for node, kind in enumerate(graph.kinds) if kind == "output"]
    if not runs:
        runs = [(int(device_of[0]), [])]
    runs[-1][1].extend(ends)
    return tuple(Stage(tuple(sorted(nodes)), ((device,),)) for device, nodes in runs)


def plans_of(graph: Graph, device_of: Ints, recipe: Recipe) -> Iterator[Plan]:
    """The stages with every number of micro-batches, both schedules, with and without recomputation."""
    stages = stages_of(graph, device_of)
    for microbatches in microbatch_counts(recipe.batch):
        for schedule in _SCHEDULES if recipe.training else _SCHEDULES[:1]:
            for recompute in (False, True) if recipe.training else (False,):
                shares = (recipe.batch // microbatches,)
                yield Plan(stages, shares, microbatches, schedule, recompute=recompute)


def microbatch_counts(batch: int) -> list[int]:
    """Powers of two that divide the batch."""
    return [2**power for power in range(batch.bit_length()) if batch % 2**power == 0]


def _with_ends_moved(graph: Graph, device_of: Ints) -> list[int]:
    """The same, with each input on the device of the node that needs it first, and no device for outputs."""
    placed: list[int] = device_of.tolist()
    first = np.full(len(graph), len(graph), dtype=np.int64)
    np.minimum.at(first, graph.producer[graph.used], graph.user)
    for node, kind in enumerate(graph.kinds):
        if kind == "output":
            placed[node] = _AT_THE_END
        elif kind == "input" and first[node] < len(graph):
            placed[node] = int(device_of[first[node]])
    return placed


class _Progress:
    """What has run, what could run next on which device, and what each has left."""

    def __init__(self, graph: Graph, device_of: list[int]) -> None:
        self._device_of = device_of
        self._following: list[list[int]] = [[] for _ in device_of]
        self._waiting = [0] * len(device_of)
        sources, targets, _ = graph.edges
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            self._following[source].append(target)
            self._waiting[target] += 1
        self._ready: dict[int, list[int]] = {}
        self._left: dict[int, int] = {}
        for node, device in enumerate(device_of):
            self._left[device] = self._left.get(device, 0) + 1
            if self._waiting[node] == 0:
                self._make_ready(node)

    def runs(self) -> Iterator[tuple[int, list[int]]]:
        """Devices and the nodes they run, one turn after the other."""
        while self._ready:
            possible = {device: self._possible(device) for device in self._ready}
            device = max(possible, key=lambda each: (len(possible[each]) / self._left[each], -each))
            self._run(device, possible[device])
            yield device, possible[device]

    def _possible(self, device: int) -> list[int]:
        """What a device can run now without waiting for another, in order."""
        queue = list(self._ready[device])
        heapify(queue)
        met: dict[int, int] = {}
        run = []
        while queue:
            node = heappop(queue)
            run.append(node)
            for target in self._following[node]:
                met[target] = met.get(target, 0) + 1
                if met[target] == self._waiting[target] and self._device_of[target] == device:
                    heappush(queue, target)
        return run

    def _run(self, device: int, nodes: list[int]) -> None:
        del self._ready[device]
        self._left[device] -= len(nodes)
        for node in nodes:
            for target in self._following[node]:
                self._waiting[target] -= 1
                if self._waiting[target] == 0 and self._device_of[target] != device:
                    self._make_ready(target)

    def _make_ready(self, node: int) -> None:
        if self._device_of[node] != _AT_THE_END:
            self._ready.setdefault(self._device_of[node], []).append(node)
