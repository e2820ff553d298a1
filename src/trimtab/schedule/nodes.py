"""What is free on the nodes of one group, and which of them workers would go to."""

import math

import numpy as np

from trimtab.schedule.cluster import Floats, Group, Ints
from trimtab.schedule.jobs import Bools

_SLACK = 1e-9

Demand = tuple[float, float, float]
"""Accelerators, CPUs and bytes of one worker."""

Parts = tuple[tuple[int, int], ...]
"""Nodes, with how many workers each has."""


class Nodes:
    """Equal nodes. A share of an accelerator is on one of them; a worker is on one node."""

    def __init__(self, group: Group) -> None:
        self._size = group
        self._gpus = np.ones((group.nodes, group.gpus))
        self._whole = np.full(group.nodes, group.gpus, dtype=np.int64)
        self._cpus = np.full(group.nodes, float(group.cpus))
        self._memory = np.full(group.nodes, float(group.memory))
        self.up = np.ones(group.nodes, dtype=bool)

    def free(self, node: int) -> Demand:
        """What nobody has taken of a node."""
        return float(self._gpus[node].sum()), float(self._cpus[node]), float(self._memory[node])

    def fewest(self, workers: int, demand: Demand) -> int:
        """How many nodes would hold the workers if nobody else were there."""
        size = (self._size.gpus, self._size.cpus, self._size.memory)
        each = min((has / need for has, need in zip(size, demand, strict=True) if need > 0), default=math.inf)
        if 0 < demand[0] < 1:
            each = min(each, self._size.gpus * math.floor(1 / demand[0] + _SLACK))
        return 1 if each >= workers else math.ceil(workers / max(1, math.floor(each + _SLACK)))

    def find(self, workers: int, demand: Demand) -> Parts | None:
        """The fewest nodes that hold the workers; the last of them is the one that is fullest already."""
        room = self._room(demand)
        if room.sum() < workers:
            return None
        parts = []
        while not len(enough := np.flatnonzero(room >= workers)):
            largest = int(room.argmax())
            count = int(room[largest])
            parts.append((largest, count))
            workers -= count
            room[largest] = 0.0
        left = self._gpus[enough].sum(axis=1) if demand[0] > 0 else self._cpus[enough]
        return (*parts, (int(enough[left.argmin()]), workers))

    def choose(self, node: int, workers: int, gpus: float) -> Ints:
        """The accelerators of a node for so many workers; ValueError where they do not suffice."""
        if gpus == 0:
            return np.empty(0, dtype=np.int64)
        if gpus >= 1:
            wanted = round(workers * gpus)
            chosen = np.flatnonzero(self._wholly_free(node))[:wanted]
        else:
            wanted = workers
            chosen = _shares(self._gpus[node].copy(), workers, gpus)
        if len(chosen) < wanted:
            raise ValueError(f"{workers} workers with {gpus:g} accelerators each do not fit on node {node}")
        return chosen

    def take(self, node: int, workers: int, demand: Demand, chosen: Ints) -> None:
        """Workers come to a node, on these of its accelerators."""
        np.subtract.at(self._gpus[node], chosen, min(demand[0], 1.0))
        self._changed(node, -workers, demand)

    def give_back(self, node: int, workers: int, demand: Demand, chosen: Ints) -> None:
        """They go again."""
        np.add.at(self._gpus[node], chosen, min(demand[0], 1.0))
        self._changed(node, workers, demand)

    def empty(self, node: int) -> None:
        """Everybody has gone: all is free to the last bit, which sums of shares are not."""
        self._gpus[node] = 1.0
        self._whole[node] = self._size.gpus
        self._cpus[node], self._memory[node] = self._size.cpus, self._size.memory

    def _changed(self, node: int, workers: int, demand: Demand) -> None:
        self._whole[node] = self._wholly_free(node).sum()
        self._cpus[node] += workers * demand[1]
        self._memory[node] += workers * demand[2]

    def _room(self, demand: Demand) -> Floats:
        """How many such workers each node could take."""
        gpus, cpus, memory = demand
        room = np.where(self.up, np.inf, 0.0)
        if gpus >= 1:
            room = np.minimum(room, self._whole / gpus)
        elif gpus > 0:
            room = np.minimum(room, np.floor(self._gpus / gpus + _SLACK).sum(axis=1))
        if cpus > 0:
            room = np.minimum(room, self._cpus / cpus)
        if memory > 0:
            room = np.minimum(room, self._memory / memory)
        whole: Floats = np.floor(np.maximum(room, 0.0) + _SLACK)
        return whole

    def _wholly_free(self, node: int) -> Bools:
        """Which accelerators of a node nobody has a share of."""
        return np.asarray(self._gpus[node] >= 1.0 - _SLACK)


def _shares(free: Floats, workers: int, share: float) -> Ints:
    """An accelerator for each worker's share, the fullest that holds it; fewer where they do not suffice."""
    chosen = []
    for _ in range(workers):
        fitting = np.flatnonzero(free >= share - _SLACK)
        if not len(fitting):
            break
        best = fitting[free[fitting].argmin()]
        free[best] -= share
        chosen.append(best)
    return np.array(chosen, dtype=np.int64)
