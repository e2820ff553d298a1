"""Which nodes a shape becomes: workers on as few nodes as hold them, and left where they are if possible."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.schedule.allocation import WAITING, Allocation
from trimtab.schedule.cluster import Cluster, Floats, Group, Ints
from trimtab.schedule.jobs import Jobs

_SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class Placement:
    """Workers on nodes of one group: (node, workers) in order of rank, and what each worker takes."""

    group: int
    parts: tuple[tuple[int, int], ...]
    demand: tuple[float, float, float]

    @property
    def workers(self) -> int:
        """How many there are."""
        return sum(count for _, count in self.parts)

    @property
    def form(self) -> tuple[int, ...]:
        """The group and the workers on each node: what two placements that run alike have in common."""
        return (self.group, *(count for _, count in self.parts))


@dataclass(frozen=True, slots=True)
class Settled:
    """What changed: rows with new nodes, rows that have none any more, rows for which no nodes were found."""

    placed: Mapping[int, Placement]
    released: tuple[int, ...]
    unplaced: tuple[int, ...]


class Floor:
    """What is free on every node, and who is where. `moving` lets jobs change nodes to make room for others.

    Jobs go by a key of the caller's. A share of an accelerator is on one of them; a worker is on one node.
    """

    def __init__(self, groups: Sequence[Group], moving: bool = False) -> None:
        self._moving = moving
        self._up = [np.ones(group.nodes, dtype=bool) for group in groups]
        self._full = groups
        self._gpus = [np.ones((group.nodes, group.gpus)) for group in groups]
        self._rest = [np.tile((group.cpus, group.memory), (group.nodes, 1)) for group in groups]
        self._where: dict[Hashable, Placement] = {}
        self._gpus_of: dict[Hashable, list[Ints]] = {}

    def where(self, key: Hashable) -> Placement | None:
        """The nodes a job is on."""
        return self._where.get(key)

    def usable(self, group: int) -> int:
        """How many nodes of a group are up."""
        return int(self._up[group].sum())

    def up(self, group: int) -> Ints:
        """The nodes of a group that are up."""
        return np.flatnonzero(self._up[group])

    def on(self, group: int, node: int) -> list[Hashable]:
        """The jobs that have workers on a node."""
        return [
            key
            for key, placement in self._where.items()
            if placement.group == group and any(n == node for n, _ in placement.parts)
        ]

    def fail(self, group: int, node: int) -> list[Hashable]:
        """A node is gone; the jobs that were on it, which now are nowhere."""
        hit = self.on(group, node)
        for key in hit:
            self.release(key)
        self._up[group][node] = False
        return hit

    def restore(self, group: int, node: int) -> None:
        """A node is back, empty."""
        self._up[group][node] = True

    def release(self, key: Hashable) -> None:
        """Free what a job has; one that has nothing stays so."""
        placement = self._where.pop(key, None)
        if placement is None:
            return
        share = placement.demand[0]
        for (node, count), taken in zip(placement.parts, self._gpus_of.pop(key), strict=True):
            np.add.at(self._gpus[placement.group][node], taken, share if share < 1 else 1.0)
            self._rest[placement.group][node] += np.multiply(count, placement.demand[1:])

    def hold(self, key: Hashable, placement: Placement) -> None:
        """Take these nodes for a job, as when a scheduler starts again and finds it running."""
        taken = []
        for node, count in placement.parts:
            taken.append(self._take_gpus(placement.group, node, count, placement.demand[0]))
            self._rest[placement.group][node] -= np.multiply(count, placement.demand[1:])
        self._where[key] = placement
        self._gpus_of[key] = taken

    def settle(
        self,
        keys: Sequence[Hashable],
        jobs: Jobs,
        cluster: Cluster,
        previous: Allocation,
        allocation: Allocation,
    ) -> Settled:
        """Release what changes, then find nodes in the allocation's order. `keys` name the rows of `jobs`."""
        demand = jobs.demand
        shape = allocation.shape
        different = np.flatnonzero(shape != previous.shape)
        for each in different:
            self.release(keys[int(each)])
        released = different[(shape[different] == WAITING) & (previous.shape[different] != WAITING)]
        changed = different[shape[different] != WAITING]
        placed: dict[int, Placement] = {}
        unplaced: list[int] = []
        for row in _in_order(changed, allocation.order):
            wanted = cluster.shapes[shape[row]]
            if self._put(keys[row], wanted.group, wanted.workers, demand[row]):
                placed[row] = self._where[keys[row]]
            else:
                unplaced.append(row)
        if unplaced and self._moving:
            crowded = {cluster.shapes[shape[row]].group for row in unplaced}
            unplaced = self._repack(crowded, keys, cluster, shape, demand, placed)
        return Settled(placed, tuple(released.tolist()), tuple(unplaced))

    def _repack(
        self,
        groups: Iterable[int],
        keys: Sequence[Hashable],
        cluster: Cluster,
        shape: Ints,
        demand: Floats,
        placed: dict[int, Placement],
    ) -> list[int]:
        """Put everyone of these groups down anew, the largest first."""
        failed = []
        for group in groups:
            chosen = np.flatnonzero(shape != WAITING)
            rows = [int(row) for row in chosen[cluster.shape_group[shape[chosen]] == group]]
            before = {row: self._where.get(keys[row]) for row in rows}
            for row in rows:
                self.release(keys[row])
            rows.sort(key=lambda row: -cluster.shapes[shape[row]].workers * demand[row, 0])
            for row in rows:
                if not self._put(keys[row], group, cluster.shapes[shape[row]].workers, demand[row]):
                    failed.append(row)
                    placed.pop(row, None)
                elif before[row] != self._where[keys[row]]:
                    placed[row] = self._where[keys[row]]
        return failed

    def _put(self, key: Hashable, group: int, workers: int, demand: Floats) -> bool:
        parts = self._find(group, workers, demand)
        if parts is None:
            return False
        self.hold(key, Placement(group, parts, (float(demand[0]), float(demand[1]), float(demand[2]))))
        return True

    def _find(self, group: int, workers: int, demand: Floats) -> tuple[tuple[int, int], ...] | None:
        """The fewest nodes that hold the workers; among single nodes, the one that is fullest already."""
        room = self._room(group, demand)
        enough = np.flatnonzero(room >= workers)
        if len(enough):
            left = self._gpus[group][enough].sum(axis=1) if demand[0] > 0 else self._rest[group][enough, 0]
            return ((int(enough[np.argmin(left)]), workers),)
        parts = []
        for node in np.argsort(-room, kind="stable"):
            if room[node] < 1:
                return None
            count = min(int(room[node]), workers)
            parts.append((int(node), count))
            workers -= count
            if workers == 0:
                return tuple(parts)
        return None

    def _room(self, group: int, demand: Floats) -> Ints:
        """How many such workers each node could take."""
        gpus, (cpus, memory) = float(demand[0]), demand[1:]
        room = np.where(self._up[group], np.iinfo(np.int64).max, 0)
        if gpus >= 1:
            whole = (self._gpus[group] >= 1 - _SLACK).sum(axis=1)
            room = np.minimum(room, np.floor(whole / gpus + _SLACK).astype(np.int64))
        elif gpus > 0:
            room = np.minimum(room, np.floor(self._gpus[group] / gpus + _SLACK).sum(axis=1).astype(np.int64))
        for column, need in enumerate((cpus, memory)):
            if need > 0:
                fits = np.floor(self._rest[group][:, column] / need + _SLACK).astype(np.int64)
                room = np.minimum(room, np.maximum(fits, 0))
        return room

    def _take_gpus(self, group: int, node: int, workers: int, gpus: float) -> Ints:
        """Mark accelerators of a node as taken; shares go to the fullest accelerator that holds them."""
        free = self._gpus[group][node]
        if gpus == 0:
            return np.empty(0, dtype=np.int64)
        if gpus >= 1:
            taken = np.flatnonzero(free >= 1 - _SLACK)[: round(workers * gpus)]
            free[taken] -= 1.0
            return taken
        shares = []
        for _ in range(workers):
            fitting = np.flatnonzero(free >= gpus - _SLACK)
            best = fitting[np.argmin(free[fitting])]
            free[best] -= gpus
            shares.append(best)
        return np.array(shares, dtype=np.int64)


def _in_order(rows: Ints, order: Ints) -> list[int]:
    """Those rows as they come in `order`."""
    if len(rows) < 2:
        return [int(row) for row in rows]
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return [int(row) for row in rows[np.argsort(rank[rows])]]
