"""Least attained service, discretised: Tiresias (NSDI 2019, section 4), for jobs of unknown length.

A job's service is accelerators × seconds (seconds, where it uses none). It starts in the first queue and
moves down when its service passes a threshold; a queue goes before those below it and is first come, first
served inside.
"""

from dataclasses import dataclass, field

import numpy as np

from trimtab.core import Clock
from trimtab.schedule.allocation import WAITING, Allocation, JobColumns
from trimtab.schedule.cluster import Cluster, Ints
from trimtab.schedule.policies.filling import Filling, JobMemory


@dataclass(frozen=True, slots=True)
class LasSettings:
    """Where queues end, and when a starving job begins anew."""

    thresholds: tuple[float, ...] = (3200.0,)  # accelerator-seconds at which a job leaves each queue
    starve: float = 8.0  # STARVELIMIT: waiting so many times as long as it has run brings a job back up


@dataclass(slots=True)
class Las:
    """Short jobs end in the first queue without anyone knowing that they are short."""

    settings: LasSettings = field(default_factory=LasSettings)
    # Service at the last promotion; seconds run since then; seconds waited since it last ran.
    _history: JobMemory = field(default_factory=lambda: JobMemory(3), init=False, repr=False)
    _last: float | None = field(default=None, init=False, repr=False)

    def allocate(self, jobs: JobColumns, cluster: Cluster, previous: Allocation, clock: Clock) -> Allocation:
        filling = Filling(jobs, cluster, previous)
        queue = self._queue(jobs, previous, clock.now())
        order = np.lexsort((jobs.submitted, queue))
        return filling.allocation(order, "attained service")

    def _queue(self, jobs: JobColumns, previous: Allocation, now: float) -> Ints:
        """The queue of each job, 0 being the first."""
        history, _ = self._history.follow(jobs.ids)
        forgiven, ran, waited = history.T
        elapsed = 0.0 if self._last is None else now - self._last
        self._last = now
        runs = previous.shape != WAITING
        ran[runs] += elapsed
        waited[runs] = 0.0
        waited[~runs] += elapsed
        starving = (ran > 0) & (waited >= self.settings.starve * ran)
        forgiven[starving] = jobs.attained[starving]
        ran[starving] = waited[starving] = 0.0
        service = np.where(jobs.gpus > 0, jobs.attained - forgiven, ran)
        return np.asarray(np.searchsorted(np.array(self.settings.thresholds), service, side="right"))
