"""Queues by priority class, preemptive, with ageing: a job that waits long enough moves up a class."""

from dataclasses import dataclass, field

import numpy as np

from trimtab.core import Clock
from trimtab.schedule.allocation import WAITING, Allocation, JobColumns
from trimtab.schedule.cluster import Cluster, Floats
from trimtab.schedule.job import Priority
from trimtab.schedule.policies.filling import Filling, JobMemory


@dataclass(frozen=True, slots=True)
class PrioritySettings:
    """How fast waiting jobs move up."""

    ageing: float = 4 * 3600.0  # seconds of waiting, in all, for each class a job moves up
    step: float = float(Priority.HIGH - Priority.NORMAL)  # from one class to the next
    top: float = float(Priority.URGENT)  # no job gets above this class by waiting


@dataclass(slots=True)
class PriorityQueues:
    """Jobs by class; within a class running jobs, then by arrival.

    A job that moved up stays there while it runs; otherwise it would be stopped as soon as it has started.
    """

    settings: PrioritySettings = field(default_factory=PrioritySettings)
    _waited: JobMemory = field(default_factory=lambda: JobMemory(1), init=False, repr=False)
    _last: float | None = field(default=None, init=False, repr=False)

    def allocate(self, jobs: JobColumns, cluster: Cluster, previous: Allocation, clock: Clock) -> Allocation:
        filling = Filling(jobs, cluster, previous)
        level = self._level(jobs, previous, clock.now())
        order = np.lexsort((jobs.submitted, ~filling.running, -level))
        return filling.allocation(order, "priority")

    def _level(self, jobs: JobColumns, previous: Allocation, now: float) -> Floats:
        """The class of each job, raised by its waiting time."""
        values, new = self._waited.follow(jobs.ids)
        waited = values[:, 0]
        waited[new & (jobs.attained == 0)] = now - jobs.submitted[new & (jobs.attained == 0)]
        if self._last is not None:
            waited[~new & (previous.shape == WAITING)] += now - self._last
        self._last = now
        s = self.settings
        aged = jobs.priority + s.step * np.floor(waited / s.ageing)
        return np.maximum(jobs.priority, np.minimum(aged, s.top))
