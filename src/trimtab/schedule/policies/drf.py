"""Dominant resource fairness among tenants (NSDI 2011): the smallest dominant share goes next."""

from dataclasses import dataclass, field

import numpy as np

from trimtab.core import Clock
from trimtab.schedule.allocation import Allocation, JobColumns
from trimtab.schedule.cluster import Cluster, Floats
from trimtab.schedule.policies.filling import Filling, workers_of


@dataclass(frozen=True, slots=True)
class DrfSettings:
    """Resources that count besides accelerators."""

    cpus: bool = True  # whether CPUs count
    memory: bool = True  # whether bytes count


@dataclass(slots=True)
class Drf:
    """Tenants take turns so that their dominant shares grow evenly.

    Within a tenant running jobs go first, then by priority and arrival.
    """

    settings: DrfSettings = field(default_factory=DrfSettings)

    def allocate(self, jobs: JobColumns, cluster: Cluster, previous: Allocation, clock: Clock) -> Allocation:
        filling = Filling(jobs, cluster, previous)
        share = self._share_before(filling)
        order = np.lexsort((jobs.submitted, ~filling.running, np.round(share, 9)))
        return filling.allocation(order, "tenants' dominant shares")

    def _share_before(self, filling: Filling) -> Floats:
        """The dominant share each job's tenant has when its turn comes.

        Turns by growing share are the turns of progressive filling: within a tenant it only grows.
        """
        jobs, running = filling.jobs, filling.running
        turns = np.lexsort((jobs.submitted, -jobs.priority, ~running, jobs.tenant))
        parts = self._parts(filling)[turns]
        before = np.cumsum(parts, axis=0) - parts
        tenant = jobs.tenant[turns]
        first = np.concatenate(([True], tenant[1:] != tenant[:-1]))[: len(tenant)]
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
