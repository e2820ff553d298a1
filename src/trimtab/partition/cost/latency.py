"""Lat(G, E): how long one pass takes when the edges E between devices are cut.

A device runs its nodes one after the other, in the graph's order; a node begins when its device is free and
all it needs is there. On a chain that is the sum of all nodes and of all transfers; where branches are on
different devices it is the longest way through the graph, not the sum.
"""

from collections.abc import Sequence

import numpy as np

from trimtab.partition.graph import Floats, Graph, Ints
from trimtab.partition.problem import Problem


class PassTimes:
    """The columns of a pass over a graph whose nodes may be anywhere, one row per device."""

    def __init__(self, problem: Problem) -> None:
        graph = problem.graph
        self.problem = problem
        self.forward, self.backward = problem.forward.tolist(), problem.backward.tolist()
        self.rate, self.delay = problem.hand_rate.tolist(), problem.hand_latency.tolist()
        self.size, self.producer = problem.tensor_bytes.tolist(), graph.producer.tolist()
        self.needs: list[list[int]] = [[] for _ in range(len(graph))]
        self.feeds: list[list[tuple[int, int]]] = [[] for _ in range(len(graph))]
        for tensor, node in zip(graph.used.tolist(), graph.user.tolist(), strict=True):
            self.needs[node].append(tensor)
            self.feeds[self.producer[tensor]].append((node, tensor))

    def latency(self, device_of: Sequence[int]) -> float:
        """Seconds of a forward pass, and in training of the backward pass after it."""
        there = self._forward(device_of)
        return there + self._backward(device_of) if self.problem.training else there

    def _forward(self, device_of: Sequence[int]) -> float:
        free = [0.0] * len(self.forward)
        done = [0.0] * len(device_of)
        arrived: dict[tuple[int, int], float] = {}
        for node, device in enumerate(device_of):
            start = free[device]
            for tensor in self.needs[node]:
                source = self.producer[tensor]
                start = max(start, self._arrival(arrived, tensor, device_of[source], device, done[source]))
            done[node] = free[device] = start + self.forward[device][node]
        return max(done)

    def _backward(self, device_of: Sequence[int]) -> float:
        free = [0.0] * len(self.forward)
        done = [0.0] * len(device_of)
        arrived: dict[tuple[int, int], float] = {}
        for node in range(len(device_of) - 1, -1, -1):
            device = device_of[node]
            start = free[device]
            for user, tensor in self.feeds[node]:
                start = max(start, self._arrival(arrived, tensor, device_of[user], device, done[user]))
            done[node] = free[device] = start + self.backward[device][node]
        return max(done)

    def _arrival(
        self, arrived: dict[tuple[int, int], float], tensor: int, source: int, target: int, made: float
    ) -> float:
        """When a tensor is on the target; it goes there once, as soon as it is made."""
        if source == target:
            return made
        if self.rate[source][target] <= 0.0:
            return float("inf")
        sent: float = made + self.delay[source][target] + self.size[tensor] / self.rate[source][target]
        return max(arrived.setdefault((tensor, target), sent), sent)

    def memory(self, device_of: Ints) -> Floats:
        """Bytes of every device, zero where it runs nothing."""
        problem, count = self.problem, len(self.forward)
        graph: Graph = problem.graph
        used = np.bincount(device_of, problem.resident + problem.kept, count)
        largest = np.zeros(count)
        np.maximum.at(largest, device_of[graph.producer], problem.tensor_bytes)
        moved = device_of[graph.producer[graph.used]] != device_of[graph.user]
        sent = {(t, d) for t, d in zip(graph.used[moved], device_of[graph.user[moved]], strict=True)}
        for tensor, device in sent:
            used[device] += problem.tensor_bytes[tensor]
        busy = np.bincount(device_of, minlength=count) > 0
        return np.where(busy, used + problem.alive * largest + problem.base, 0.0)
