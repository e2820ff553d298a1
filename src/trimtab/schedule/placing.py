"""From shapes to nodes: workers on as few nodes as hold them, left where they are if possible."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.schedule.allocation import WAITING, Allocation, Bools, Jobs
from trimtab.schedule.cluster import Cluster, Floats, Group, Ints

_SLACK = 1e-9

Demand = tuple[float, float, float]
"""Accelerators, CPUs and bytes of one worker."""

Parts = tuple[tuple[int, int], ...]
"""Nodes, with how many workers each has."""


class GroupNodes:
    """Equal nodes. A share of an accelerator is on one of them; a worker is on one node."""

    def __init__(self, group: Group) -> None:
        self._size = group
        self._gpus = np.ones((group.nodes, group.gpus))
        self._whole = np.full(group.nodes, group.gpus, dtype=np.int64)
        self._cpus = np.full(group.nodes, float(group.cpus))
        self._memory = np.full(group.nodes, float(group.memory))
        self.up = np.ones(group.nodes, dtype=bool)

    def free(self, node: int) -> Demand:
        """Free accelerators, CPUs and bytes of a node."""
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


@dataclass(frozen=True, slots=True)
class Placement:
    """Workers on nodes of one group: (node, workers) in order of rank, and what each worker takes."""

    group: int
    parts: Parts
    demand: Demand

    @property
    def workers(self) -> int:
        """How many there are."""
        return sum(count for _, count in self.parts)

    @property
    def form(self) -> tuple[int, ...]:
        """The group and the workers on each node: what two placements that run alike have in common."""
        return (self.group, *(count for _, count in self.parts))


@dataclass(frozen=True, slots=True)
class PlacementChanges:
    """Changes of placement: rows with new nodes, rows that lost theirs, rows that found none."""

    placed: Mapping[int, Placement]
    released: tuple[int, ...]
    unplaced: tuple[int, ...]


class NodeOccupancy:
    """Placements of jobs on nodes, and free capacity. `moving` lets jobs change nodes to make room.

    Jobs go by a key of the caller's.
    """

    def __init__(self, groups: Sequence[Group], moving: bool = False) -> None:
        self._moving = moving
        self._nodes = [GroupNodes(group) for group in groups]
        self._on: list[list[dict[Hashable, None]]] = [[{} for _ in range(g.nodes)] for g in groups]
        self._where: dict[Hashable, Placement] = {}
        self._gpus_of: dict[Hashable, list[Ints]] = {}

    def where(self, key: Hashable) -> Placement | None:
        """The nodes a job is on."""
        return self._where.get(key)

    def usable(self, group: int) -> int:
        """How many nodes of a group are up."""
        return int(self._nodes[group].up.sum())

    def up(self, group: int) -> Ints:
        """The nodes of a group that are up."""
        return np.flatnonzero(self._nodes[group].up)

    def on(self, group: int, node: int) -> list[Hashable]:
        """The jobs that have workers on a node."""
        return list(self._on[group][node])

    def free(self, group: int, node: int) -> Demand:
        """Accelerators, CPUs and bytes that nobody has taken of a node."""
        return self._nodes[group].free(node)

    def fail(self, group: int, node: int) -> list[Hashable]:
        """A node is gone; the jobs that were on it, which now are nowhere."""
        hit = self.on(group, node)
        for key in hit:
            self.release(key)
        self.close(group, node)
        return hit

    def close(self, group: int, node: int) -> None:
        """Nobody comes to a node any more; who is there stays."""
        self._nodes[group].up[node] = False

    def restore(self, group: int, node: int) -> None:
        """A node is back."""
        self._nodes[group].up[node] = True

    def release(self, key: Hashable) -> None:
        """Free what a job has; one that has nothing stays so."""
        placement = self._where.pop(key, None)
        if placement is None:
            return
        nodes = self._nodes[placement.group]
        for (node, count), chosen in zip(placement.parts, self._gpus_of.pop(key), strict=True):
            there = self._on[placement.group][node]
            del there[key]
            if there:
                nodes.give_back(node, count, placement.demand, chosen)
            else:
                nodes.empty(node)

    def hold(self, key: Hashable, placement: Placement) -> None:
        """Take these nodes for a job, as when a scheduler starts again and finds it running.

        ValueError where a node's accelerators do not suffice; nothing is taken then.
        """
        nodes, share = self._nodes[placement.group], placement.demand[0]
        self._occupy(key, placement, [nodes.choose(node, count, share) for node, count in placement.parts])

    def _occupy(self, key: Hashable, placement: Placement, gpus: list[Ints]) -> None:
        for (node, count), chosen in zip(placement.parts, gpus, strict=True):
            self._nodes[placement.group].take(node, count, placement.demand, chosen)
            self._on[placement.group][node][key] = None
        self._where[key] = placement
        self._gpus_of[key] = gpus

    def settle(
        self,
        keys: Sequence[Hashable],
        jobs: Jobs,
        cluster: Cluster,
        previous: Allocation,
        allocation: Allocation,
    ) -> PlacementChanges:
        """Release what changes, then find nodes in the allocation's order. `keys` name the rows of `jobs`."""
        demand = jobs.demand
        shape = allocation.shape
        different = np.flatnonzero(shape != previous.shape)
        for row in different.tolist():
            self.release(keys[row])
        released = different[(shape[different] == WAITING) & (previous.shape[different] != WAITING)]
        changed = different[shape[different] != WAITING]
        placed: dict[int, Placement] = {}
        unplaced: list[int] = []
        for row in _in_order(changed, allocation):
            wanted = cluster.shapes[shape[row]]
            if self._put(keys[row], wanted.group, wanted.workers, demand[row]):
                placed[row] = self._where[keys[row]]
            else:
                unplaced.append(row)
        if self._moving:
            scattered = [row for row, placement in placed.items() if self._scattered(placement)]
            for group in sorted({cluster.shapes[shape[row]].group for row in (*unplaced, *scattered)}):
                rows = np.flatnonzero((shape != WAITING) & (cluster.shape_group[shape] == group)).tolist()
                self._repack(rows, keys, cluster, shape, demand, placed)
            wanted = np.flatnonzero(shape != WAITING).tolist()
            unplaced = [row for row in wanted if keys[row] not in self._where]
        return PlacementChanges(placed, tuple(released.tolist()), tuple(unplaced))

    def _repack(
        self,
        rows: list[int],
        keys: Sequence[Hashable],
        cluster: Cluster,
        shape: Ints,
        demand: Floats,
        placed: dict[int, Placement],
    ) -> None:
        """Put these, who are all of a group, down anew, the largest first.

        Where that leaves no fewer without nodes or on more of them than needed, all stay where they are.
        """
        before = {row: self._where.get(keys[row]) for row in rows}
        gpus = {row: self._gpus_of.get(keys[row], []) for row in rows}
        disorder = self._disorder(rows, keys)
        wanted = {row: cluster.shapes[shape[row]] for row in rows}
        for row in rows:
            self.release(keys[row])
        for row in sorted(rows, key=lambda row: -wanted[row].workers * demand[row, 0]):
            self._put(keys[row], wanted[row].group, wanted[row].workers, demand[row])
        if self._disorder(rows, keys) >= disorder:
            for row in rows:
                self.release(keys[row])
            for row, there in before.items():
                if there is not None:
                    self._occupy(keys[row], there, gpus[row])
            return
        for row in rows:
            now = self._where.get(keys[row])
            if now is None:
                placed.pop(row, None)
            elif now != before[row]:
                placed[row] = now

    def _disorder(self, rows: Sequence[int], keys: Sequence[Hashable]) -> tuple[int, int]:
        """How many have no nodes, and how many are on more of them than needed."""
        there = [placement for row in rows if (placement := self._where.get(keys[row])) is not None]
        return len(rows) - len(there), sum(map(self._scattered, there))

    def _scattered(self, placement: Placement) -> bool:
        fewest = self._nodes[placement.group].fewest(placement.workers, placement.demand)
        return len(placement.parts) > fewest

    def _put(self, key: Hashable, group: int, workers: int, demand: Floats) -> bool:
        gpus, cpus, memory = demand.tolist()
        parts = self._nodes[group].find(workers, (gpus, cpus, memory))
        if parts is None:
            return False
        self.hold(key, Placement(group, parts, (gpus, cpus, memory)))
        return True


def _in_order(rows: Ints, allocation: Allocation) -> list[int]:
    """Rows in the allocation's order; rows that it does not name come last."""
    rank = np.full(len(allocation.shape), len(allocation.shape))
    rank[allocation.order] = np.arange(len(allocation.order))
    in_order: list[int] = rows[np.argsort(rank[rows], kind="stable")].tolist()
    return in_order
