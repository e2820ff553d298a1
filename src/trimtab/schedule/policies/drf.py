"""Dominant resource fairness among tenants (NSDI 2011): whoever has least of what it uses most goes next."""

from dataclasses import dataclass, field

import numpy as np

from trimtab.core import Clock
from trimtab.schedule.allocation import Allocation, Bools, Jobs
from trimtab.schedule.cluster import Cluster, Floats
from trimtab.schedule.policies.filling import Filling, WaitingReasons, workers_of


@dataclass(frozen=True, slots=True)
class DrfSettings:
    """Resources that count besides accelerators."""

    cpus: bool = True  # whether CPUs count
    memory: bool = True  # whether bytes count


@dataclass(slots=True)
class Drf:
    """Tenants take turns so that their dominant shares grow evenly.

    Within a tenant those who run go first, then by priority and arrival.
    """

    settings: DrfSettings = field(default_factory=DrfSettings)

    def allocate(self, jobs: Jobs, cluster: Cluster, previous: Allocation, clock: Clock) -> Allocation:
        filling = Filling(jobs, cluster, previous)
        share = self._share_before(filling)
        order = np.lexsort((jobs.submitted, ~filling.running, np.round(share, 9)))
        filling.fill(order)
        filling.improve(order)
        return Allocation(
            filling.shape,
            order,
            WaitingReasons(filling.shape, order, filling.possible, "tenants' dominant shares"),
        )

    def _share_before(self, filling: Filling) -> Floats:
        """The dominant share each job's tenant has when its turn comes.

        Turns by growing share are the turns of progressive filling: within a tenant it only grows.
        """
        jobs, running = filling.jobs, filling.running
        turns = np.lexsort((jobs.submitted, -jobs.priority, ~running, jobs.tenant))
        parts = self._parts(filling)[turns]
        before = np.cumsum(parts, axis=0) - parts
        first = _first_of_each(jobs.tenant[turns])
        start = np.maximum.accumulate(np.where(first, np.arange(len(turns)), 0))
        share = np.empty(len(jobs))
        share[turns] = (before - before[start]).max(axis=1, initial=0.0)
        return share

    def _parts(self, filling: Filling) -> Floats:
        """The part of the whole cluster each job takes of each resource; nothing where it can never run."""
        jobs, cluster = filling.jobs, filling.cluster
        workers = np.where(filling.running, workers_of(cluster, filling.own), jobs.least)
        workers = np.where(filling.possible, workers, 0)
        counted = np.array([True, self.settings.cpus, self.settings.memory])
        total = cluster.capacity.sum(axis=0)
        return (
            workers[:, None] * jobs.demand * np.where(counted & (total > 0), 1 / np.maximum(total, 1e-9), 0.0)
        )


def _first_of_each(sorted_keys: np.ndarray) -> Bools:
    """Where a new key begins."""
    return np.concatenate(([True], sorted_keys[1:] != sorted_keys[:-1]))[: len(sorted_keys)]
