"""The placement with the least loss of latency and idle memory.

    loss = Lat(G, E) / Lat(all on the fastest device) + weight × idle memory / all memory

Chains of nodes without branches (units) move together. From several starts (the best chain of devices, and
the fastest devices alone), units move to a device that lowers the loss, until none does.
"""

from collections import Counter
from time import monotonic

import numpy as np

from trimtab.partition.devices import Devices
from trimtab.partition.forecast import PassTimes
from trimtab.partition.graph import Graph, Ints
from trimtab.partition.node_times import CostAssumptions
from trimtab.partition.plan import Layout, NodePlacement, Recipe, loss
from trimtab.partition.problem import problem_of, usable_memory
from trimtab.partition.solvers.cutting import CutEffort, best_cut

_WITHOUT_MEMORY = 100.0  # loss of a device that is twice too small
_STARTS = CutEffort(seconds=0.0)


def place(
    graph: Graph,
    devices: Devices,
    recipe: Recipe,
    idle_weight: float = 0.0,
    assume: CostAssumptions | None = None,
    seconds: float = 5.0,
) -> NodePlacement:
    """The best placement found in about `seconds`; where none fits, the one that lacks the least memory."""
    rows = tuple(((device,),) for device in range(len(devices)))
    problem = problem_of(graph, devices, recipe, Layout((recipe.batch,)), rows, assume)
    search = _Placing(PassTimes(problem), devices, idle_weight)
    until = monotonic() + seconds
    fastest = np.argsort(search.work.sum(axis=1), kind="stable")[:3].tolist()
    starts = [np.full(len(graph), device, dtype=np.int64) for device in fastest]
    cut = best_cut(problem, _STARTS)
    if cut is not None:
        starts.insert(0, np.array(cut.row_of, dtype=np.int64)[cut.stage_of])
    improved = [search.improved(start, until) for start in starts]
    return search.placement(min(improved, key=lambda option: option[0])[1], graph, recipe)


class _Placing:
    """The loss of placements, and moves of units that lower it."""

    def __init__(self, times: PassTimes, devices: Devices, idle_weight: float) -> None:
        self.times, self.devices, self.idle_weight = times, devices, idle_weight
        problem = times.problem
        self.room = np.array([usable_memory(device) for device in devices.devices])
        self.work = problem.forward + problem.backward
        self.fastest = int(np.argmin(self.work.sum(axis=1)))
        self.alone = float(self.work[self.fastest].sum())
        self.units = _units(problem.graph)

    def loss(self, device_of: Ints) -> float:
        """The loss of the module's formula, plus a penalty where memory is short."""
        need = self.times.memory(device_of)
        short = float(np.maximum(0.0, (need - self.room) / self.room).max())
        idle = float((self.devices.memory - need)[need > 0.0].sum())
        latency = self.times.latency(device_of.tolist())
        return loss(latency, self.alone, idle, self.devices, self.idle_weight) + _WITHOUT_MEMORY * short

    def improved(self, start: Ints, until: float) -> tuple[float, Ints]:
        """The loss and the placement after all moves of single units that lower the loss."""
        best, lowest, better = start, self.loss(start), True
        while better and monotonic() < until:
            better = False
            for unit in self.units:
                for device in range(len(self.devices)):
                    if monotonic() > until:
                        return lowest, best
                    if device == best[unit[0]]:
                        continue
                    moved = best.copy()
                    moved[unit] = device
                    loss = self.loss(moved)
                    if loss < lowest - 1e-12:
                        best, lowest, better = moved, loss, True
        return lowest, best

    def placement(self, device_of: Ints, graph: Graph, recipe: Recipe) -> NodePlacement:

        need = self.times.memory(device_of)
        used = {device: float(need[device]) for device in np.flatnonzero(need > 0.0).tolist()}
        busy = np.bincount(device_of, self.work[device_of, np.arange(len(graph))], len(self.devices))
        together = self.times.memory(np.full(len(graph), self.fastest, dtype=np.int64))
        return NodePlacement(
            graph=graph,
            devices=self.devices,
            recipe=recipe,
            device_of=tuple(device_of.tolist()),
            latency=self.times.latency(device_of.tolist()),
            used=used,
            busy={device: float(busy[device]) for device in used},
            idle=sum(float(self.devices.memory[device]) - bytes_ for device, bytes_ in used.items()),
            idle_weight=self.idle_weight,
            fastest=self.fastest,
            alone=self.alone,
            alone_fits=bool((together <= self.room).all()),
            loss=self.loss(device_of),
            fits=bool((need <= self.room).all()),
        )


def _units(graph: Graph) -> list[list[int]]:
    """Chains of nodes in which each feeds only the next, which needs only it."""
    sources, targets, _ = graph.edges
    edges = set(zip(sources.tolist(), targets.tolist(), strict=True))
    out, into = Counter(source for source, _ in edges), Counter(target for _, target in edges)
    before = {target: source for source, target in edges if out[source] == 1 and into[target] == 1}
    units: list[list[int]] = []
    unit_of: dict[int, list[int]] = {}
    for node in range(len(graph)):
        if node not in before:
            units.append([])
        unit_of[node] = unit_of[before[node]] if node in before else units[-1]
        unit_of[node].append(node)
    return units
