"""From shapes to nodes: workers on as few nodes as hold them, unmoved if possible."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.schedule.allocation import WAITING, Allocation, Bools, JobColumns
from trimtab.schedule.cluster import Cluster, Floats, GangShape, Ints, NodeGroup

_SLACK = 1e-9

Demand = tuple[float, float, float]
"""Accelerators, CPUs and bytes of one worker."""

Parts = tuple[tuple[int, int], ...]
"""Nodes, with how many workers each has."""


class GroupNodes:
    """Equal nodes. A share of an accelerator is on one of them; a worker is on one node."""

    def __init__(self, group: NodeGroup) -> None:
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
        """The number of empty nodes that hold the workers."""
        size = (self._size.gpus, self._size.cpus, self._size.memory)
        per_node = min(
            (has / need for has, need in zip(size, demand, strict=True) if need > 0), default=math.inf
        )
        if 0 < demand[0] < 1:
            per_node = min(per_node, self._size.gpus * math.floor(1 / demand[0] + _SLACK))
        return 1 if per_node >= workers else math.ceil(workers / max(1, math.floor(per_node + _SLACK)))

    def find(self, workers: int, demand: Demand) -> Parts | None:
        """The fewest nodes that hold the workers; the last of them is the fullest that suffices."""
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
            needed = round(workers * gpus)
            chosen = np.flatnonzero(self._wholly_free(node))[:needed]
        else:
            needed = workers
            chosen = _shares(self._gpus[node].copy(), workers, gpus)
        if len(chosen) < needed:
            raise ValueError(f"{workers} workers with {gpus:g} accelerators each do not fit on node {node}")
        return chosen

    def take(self, node: int, workers: int, demand: Demand, chosen: Ints) -> None:
        """Put workers on a node, on the chosen accelerators."""
        np.subtract.at(self._gpus[node], chosen, min(demand[0], 1.0))
        self._changed(node, -workers, demand)

    def give_back(self, node: int, workers: int, demand: Demand, chosen: Ints) -> None:
        """Take workers off a node."""
        np.add.at(self._gpus[node], chosen, min(demand[0], 1.0))
        self._changed(node, workers, demand)

    def empty(self, node: int) -> None:
        """Reset a node without workers to exact amounts, which sums of shares are not."""
        self._gpus[node] = 1.0
        self._whole[node] = self._size.gpus
        self._cpus[node], self._memory[node] = self._size.cpus, self._size.memory

    def _changed(self, node: int, workers: int, demand: Demand) -> None:
        self._whole[node] = self._wholly_free(node).sum()
        self._cpus[node] += workers * demand[1]
        self._memory[node] += workers * demand[2]

    def _room(self, demand: Demand) -> Floats:
        """The number of such workers that each node has room for."""
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
        counts: Floats = np.floor(np.maximum(room, 0.0) + _SLACK)
        return counts

    def _wholly_free(self, node: int) -> Bools:
        """Which accelerators of a node are free entirely."""
        return np.asarray(self._gpus[node] >= 1.0 - _SLACK)


def _shares(free: Floats, workers: int, share: float) -> Ints:
    """An accelerator for each worker's share, the fullest that holds it; fewer where room is short."""
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
    """Workers on nodes of one group: (node, workers) in order of rank, and the demand of each worker."""

    group: int
    parts: Parts
    demand: Demand

    @property
    def workers(self) -> int:
        return sum(count for _, count in self.parts)

    @property
    def form(self) -> tuple[int, ...]:
        """The group and the workers on each node: equal for placements that run alike."""
        return (self.group, *(count for _, count in self.parts))


@dataclass(frozen=True, slots=True)
class PlacementChanges:
    """Rows with new nodes, rows that lost theirs, and rows for which there are none."""

    placed: Mapping[int, Placement]
    released: tuple[int, ...]
    unplaced: tuple[int, ...]


class NodeOccupancy:
    """Placements of jobs, by a key of the caller's, and free capacity of nodes.

    `moving` lets jobs change nodes to make room.
    """

    def __init__(self, groups: Sequence[NodeGroup], moving: bool = False) -> None:
        self._moving = moving
        self._nodes = [GroupNodes(group) for group in groups]
        self._on: list[list[dict[Hashable, None]]] = [[{} for _ in range(g.nodes)] for g in groups]
        self._where: dict[Hashable, Placement] = {}
        self._gpus_of: dict[Hashable, list[Ints]] = {}

    def where(self, key: Hashable) -> Placement | None:
        """The placement of a job."""
        return self._where.get(key)

    def usable(self, group: int) -> int:
        """The number of nodes of a group that are up."""
        return int(self._nodes[group].up.sum())

    def up(self, group: int) -> Ints:
        """The nodes of a group that are up."""
        return np.flatnonzero(self._nodes[group].up)

    def on(self, group: int, node: int) -> list[Hashable]:
        """The jobs that have workers on a node."""
        return list(self._on[group][node])

    def free(self, group: int, node: int) -> Demand:
        """Free accelerators, CPUs and bytes of a node."""
        return self._nodes[group].free(node)

    def fail(self, group: int, node: int) -> list[Hashable]:
        """Take a node down; returns the jobs that were on it, which lose their placement."""
        hit = self.on(group, node)
        for key in hit:
            self.release(key)
        self.close(group, node)
        return hit

    def close(self, group: int, node: int) -> None:
        """Let no more jobs onto a node; those there stay."""
        self._nodes[group].up[node] = False

    def restore(self, group: int, node: int) -> None:
        """Bring a node back."""
        self._nodes[group].up[node] = True

    def release(self, key: Hashable) -> None:
        """Free the nodes of a job, if it has any."""
        placement = self._where.pop(key, None)
        if placement is None:
            return
        nodes = self._nodes[placement.group]
        for (node, count), chosen in zip(placement.parts, self._gpus_of.pop(key), strict=True):
            keys = self._on[placement.group][node]
            del keys[key]
            if keys:
                nodes.give_back(node, count, placement.demand, chosen)
            else:
                nodes.empty(node)

    def hold(self, key: Hashable, placement: Placement) -> None:
        """Place a job on given nodes, as when a restarted scheduler finds it running.

        ValueError where a node's accelerators do not suffice; nothing is changed then.
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
        jobs: JobColumns,
        cluster: Cluster,
        previous: Allocation,
        allocation: Allocation,
    ) -> PlacementChanges:
        """Release changed jobs, then find nodes in the allocation's order. `keys` name the rows of `jobs`."""
        demand = jobs.demand
        shape = allocation.shape
        different = np.flatnonzero(shape != previous.shape)
        for row in different.tolist():
            self.release(keys[row])
        released = different[(shape[different] == WAITING) & (previous.shape[different] != WAITING)]
        changed = different[shape[different] != WAITING]
        placed: dict[int, Placement] = {}
        unplaced: list[int] = []
        rank = np.full(len(shape), len(shape))  # rows that the order does not name come last
        rank[allocation.order] = np.arange(len(allocation.order))
        for row in changed[np.argsort(rank[changed], kind="stable")].tolist():
            placement = self.put(keys[row], cluster.shapes[shape[row]], demand[row])
            if placement is not None:
                placed[row] = placement
            else:
                unplaced.append(row)
        if self._moving:
            scattered = [row for row, placement in placed.items() if self._scattered(placement)]
            for group in sorted({cluster.shapes[shape[row]].group for row in (*unplaced, *scattered)}):
                rows = np.flatnonzero((shape != WAITING) & (cluster.shape_group[shape] == group)).tolist()
                self._repack(rows, keys, cluster, shape, demand, placed)
            running = np.flatnonzero(shape != WAITING).tolist()
            unplaced = [row for row in running if keys[row] not in self._where]
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
        """Place all jobs of a group anew, the largest first.

        Unless fewer are without nodes or on more of them than needed then, all stay where they are.
        """
        before = {row: self._where.get(keys[row]) for row in rows}
        gpus = {row: self._gpus_of.get(keys[row], []) for row in rows}
        disorder = self._disorder(rows, keys)
        shapes = {row: cluster.shapes[shape[row]] for row in rows}
        for row in rows:
            self.release(keys[row])
        for row in sorted(rows, key=lambda row: -shapes[row].workers * demand[row, 0]):
            self.put(keys[row], shapes[row], demand[row])
        if self._disorder(rows, keys) >= disorder:
            for row in rows:
                self.release(keys[row])
            for row, placement in before.items():
                if placement is not None:
                    self._occupy(keys[row], placement, gpus[row])
            return
        for row in rows:
            now = self._where.get(keys[row])
            if now is None:
                placed.pop(row, None)
            elif now != before[row]:
                placed[row] = now

    def _disorder(self, rows: Sequence[int], keys: Sequence[Hashable]) -> tuple[int, int]:
        """The number of jobs without nodes, and of jobs on more nodes than needed."""
        placed = [placement for row in rows if (placement := self._where.get(keys[row])) is not None]
        return len(rows) - len(placed), sum(map(self._scattered, placed))

    def _scattered(self, placement: Placement) -> bool:
        fewest = self._nodes[placement.group].fewest(placement.workers, placement.demand)
        return len(placement.parts) > fewest

    def has_room(self, shape: GangShape, demand: Floats) -> bool:
        """Whether free nodes could hold a job in a shape."""
        gpus, cpus, memory = demand.tolist()
        return self._nodes[shape.group].find(shape.workers, (gpus, cpus, memory)) is not None

    def put(self, key: Hashable, shape: GangShape, demand: Floats) -> Placement | None:
        """Place a job in a shape on free nodes; None where there are too few."""
        gpus, cpus, memory = demand.tolist()
        parts = self._nodes[shape.group].find(shape.workers, (gpus, cpus, memory))
        if parts is None:
            return None
        placement = Placement(shape.group, parts, (gpus, cpus, memory))
        self.hold(key, placement)
        return placement
