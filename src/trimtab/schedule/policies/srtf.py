"""Shortest expected remaining time first, preemptive."""

from dataclasses import dataclass, field

import numpy as np

from trimtab.core import Clock
from trimtab.schedule.allocation import Allocation, JobColumns
from trimtab.schedule.cluster import Cluster
from trimtab.schedule.policies.filling import Filling


@dataclass(frozen=True, slots=True)
class SrtfSettings:
    """How much shorter a waiting job must be than one that runs."""

    keep: float = 0.8  # remaining time of a running job is multiplied by this, so that equals do not swap


@dataclass(slots=True)
class Srtf:
    """Jobs in order of expected seconds left in their fastest shape."""

    settings: SrtfSettings = field(default_factory=SrtfSettings)

    def allocate(self, jobs: JobColumns, cluster: Cluster, previous: Allocation, clock: Clock) -> Allocation:
        filling = Filling(jobs, cluster, previous)
        seconds = jobs.remaining / filling.best_speed()
        seconds = np.where(np.isnan(seconds), jobs.attained, seconds)  # unknown: as long again as it has run
        seconds = np.where(filling.running, self.settings.keep * seconds, seconds)
        order = np.argsort(seconds, kind="stable")
        return filling.allocation(order, "remaining time")
