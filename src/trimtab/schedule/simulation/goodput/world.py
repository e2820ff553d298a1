"""The world of adaptive jobs: each starts with one worker and may at most double what it has tried."""

from collections.abc import Mapping, Sequence

import numpy as np

from trimtab.core import NotFoundError
from trimtab.schedule.cluster import Cluster, Floats, Ints
from trimtab.schedule.placing import Placement
from trimtab.schedule.simulation.goodput.profiles import Application
from trimtab.schedule.simulation.goodput.totals import Totals
from trimtab.schedule.simulation.goodput.training import Surroundings, Training
from trimtab.schedule.simulation.world import Look

_MOST = 64


class GoodputWorld:
    """Jobs of these applications, in order of the trace.

    How much work an application has is known to nobody until a job of it has ended; then that of those that
    ended.
    """

    def __init__(
        self, profiles: Mapping[str, Application], applications: Sequence[str], cluster: Cluster
    ) -> None:
        strangers = sorted(set(applications) - set(profiles))
        if strangers:
            raise NotFoundError(f'there is no profile of "{strangers[0]}"; there are {", ".join(profiles)}')
        places = {name: Surroundings(profiles[name], cluster) for name in set(applications)}
        self._jobs = [Training(places[name]) for name in applications]
        self._cluster = cluster
        self._totals = Totals()

    def look(self, jobs: Ints) -> Look:
        """Expected speeds, also in shapes it may not have yet; what is left, by ended jobs of its kind."""
        trainings = [self._jobs[job] for job in jobs]
        speed = np.stack([training.speed() for training in trainings])
        most = np.array([min(max(1, 2 * training.tried), _MOST) for training in trainings])
        done = np.array([training.progress for training in trainings])
        total = np.array([self._totals.of(training.application.name) for training in trainings])
        left = np.maximum(total - done, 1.0)
        known = np.array([self._totals.known(training.application.name) for training in trainings])
        return Look(speed, most, done, left, np.where(known, left, 1.0), np.where(known, left, np.inf))

    def restart_seconds(self, job: int) -> float:
        return self._jobs[job].application.nature.restart

    def start(self, job: int, placement: Placement) -> None:
        kind = self._cluster.groups[placement.group].accelerator
        self._jobs[job].start(kind, tuple(count for _, count in placement.parts))

    def stop(self, job: int, lost: float) -> None:
        if lost > 0:
            self._jobs[job].lose(lost)

    def advance(self, jobs: Ints, seconds: Floats) -> Floats:
        ended = np.array([self._jobs[job].advance(float(s)) for job, s in zip(jobs, seconds, strict=True)])
        for job in jobs:
            training = self._jobs[job]
            self._totals.reached(training.application.name, training.progress)
        for job in jobs[np.isfinite(ended)]:
            training = self._jobs[job]
            self._totals.ended(training.application.name, training.progress)
        return ended
