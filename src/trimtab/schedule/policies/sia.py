"""Sia, from its description (SOSP 2023): fair goodput by an integer program over jobs and configurations.

A job's goodput G in each configuration is relative to its smallest. Changing the configuration costs the
factor (age − restarts · S) / (age + S), where S is the seconds of a restart. Chosen is what minimizes the
sum of G^p, p = −0.5, with a job that waits counting as much as 1.1.
"""

from dataclasses import dataclass

import numpy as np

from trimtab.core import Clock
from trimtab.schedule.allocation import WAITING, Allocation, JobColumns
from trimtab.schedule.cluster import Cluster, Floats
from trimtab.schedule.policies.assignment import AssignmentProblem, assign


@dataclass(frozen=True, slots=True)
class SiaSettings:
    """The constants of its evaluation."""

    power: float = -0.5
    """The fairness power p; below zero, jobs with little goodput gain most."""
    waiting: float = 1.1
    """The cost of a waiting job."""
    seconds: float = 5.0
    """The most the solver may take."""


class SiaPolicy:
    """Elastic jobs on mixed accelerators; needs no remaining work."""

    def __init__(self, settings: SiaSettings | None = None) -> None:
        self.settings = settings or SiaSettings()

    def allocate(self, jobs: JobColumns, cluster: Cluster, previous: Allocation, clock: Clock) -> Allocation:
        goodput = relative_goodput(jobs, cluster)
        rows = np.flatnonzero(previous.shape != WAITING)
        held = previous.shape[rows]
        keep = goodput[rows, held].copy()
        goodput[rows] *= _restart_factor(jobs, clock.now())[rows, None]
        goodput[rows, held] = keep
        with np.errstate(divide="ignore"):
            worth = np.where(
                goodput > 0, self.settings.waiting - np.round(goodput**self.settings.power, 2), 0.0
            )
        pinned = np.where(jobs.settling | ~jobs.preemptible, previous.shape, WAITING)
        problem = AssignmentProblem.of(worth, cluster, jobs.demand, pinned)
        answer = assign(problem, previous.shape, self.settings.seconds)
        shape = np.where(pinned == WAITING, answer.shape, pinned)
        # Only a round compares all jobs: none may start in between.
        return Allocation(shape, np.arange(len(jobs)), ready=np.zeros(len(jobs), dtype=bool))


def relative_goodput(jobs: JobColumns, cluster: Cluster) -> Floats:
    """Each row over its smallest; a job that never ran is equally good with its fewest workers anywhere."""
    workers = cluster.shape_workers
    allowed = (workers >= jobs.least[:, None]) & (workers <= jobs.most[:, None])
    speed = np.where(allowed, jobs.speed, 0.0)
    fresh = jobs.done == 0
    fewest = np.where(speed > 0, workers, np.inf).min(axis=1, initial=np.inf)[:, None]
    speed[fresh] = np.where((speed[fresh] > 0) & (workers == fewest[fresh]), 1.0, 0.0)
    smallest = np.where(speed > 0, speed, np.inf).min(axis=1)
    return speed / np.where(np.isfinite(smallest), smallest, 1.0)[:, None]


def _restart_factor(jobs: JobColumns, now: float) -> Floats:
    age = now - jobs.submitted
    total = age + jobs.restart_seconds
    factor = np.maximum(age - jobs.restarts * jobs.restart_seconds, 0.0) / np.where(total > 0, total, 1.0)
    return np.where((age < jobs.restart_seconds) | (total <= 0), 1.0, factor)
