"""Which nodes a shape becomes: workers on as few nodes as hold them, and left where they are if possible."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.schedule.allocation import WAITING, Allocation
from trimtab.schedule.cluster import Cluster, Floats, Group, Ints
from trimtab.schedule.jobs import Jobs
from trimtab.schedule.nodes import Demand, Nodes, Parts


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
class Settled:
    """What changed: rows with new nodes, rows that have none any more, rows for which no nodes were found."""

    placed: Mapping[int, Placement]
    released: tuple[int, ...]
    unplaced: tuple[int, ...]


class Floor:
    """Who is on which nodes, and what is free there. `moving` lets jobs change nodes to make room for others.

    Jobs go by a key of the caller's.
    """

    def __init__(self, groups: Sequence[Group], moving: bool = False) -> None:
        self._moving = moving
        self._nodes = [Nodes(group) for group in groups]
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
    ) -> Settled:
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
        return Settled(placed, tuple(released.tolist()), tuple(unplaced))

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
    """Those rows as they come in the allocation's order; last those that it does not name."""
    rank = np.full(len(allocation.shape), len(allocation.shape))
    rank[allocation.order] = np.arange(len(allocation.order))
    in_order: list[int] = rows[np.argsort(rank[rows], kind="stable")].tolist()
    return in_order
