"""Shortest expected remaining time first, preemptive."""

from dataclasses import dataclass, field

import numpy as np

from trimtab.core import Clock
from trimtab.schedule.allocation import Allocation, Jobs
from trimtab.schedule.cluster import Cluster, Floats
from trimtab.schedule.policies.filling import Filling, WaitingReasons


@dataclass(frozen=True, slots=True)
class SrtfSettings:
    """How much shorter a waiting job must be than one that runs."""

    keep: float = 0.8  # remaining time of a running job is multiplied by this, so that equals do not swap


@dataclass(slots=True)
class Srtf:
    """The less a job is believed to have left on its fastest shape, the earlier its turn."""

    settings: SrtfSettings = field(default_factory=SrtfSettings)

    def allocate(self, jobs: Jobs, cluster: Cluster, previous: Allocation, clock: Clock) -> Allocation:
        filling = Filling(jobs, cluster, previous)
        left = _seconds_left(jobs, filling.best_speed())
        left = np.where(filling.running, self.settings.keep * left, left)
        order = np.argsort(left, kind="stable")
        filling.fill(order)
        filling.improve(order)
        return Allocation(
            filling.shape, order, WaitingReasons(filling.shape, order, filling.possible, "remaining time")
        )


def _seconds_left(jobs: Jobs, speed: Floats) -> Floats:
    """Expected seconds to the end; where that is not known, as long again as the job has had already."""
    left = jobs.remaining / speed
    return np.where(np.isnan(left), jobs.attained, left)
