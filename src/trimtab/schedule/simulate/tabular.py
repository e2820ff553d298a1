"""A world of tabulated speeds: jobs of a class work at one rate in a given shape. All advance at once."""

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from trimtab.core import BadInputError
from trimtab.schedule.cluster import Cluster, Floats, Ints
from trimtab.schedule.job import Job
from trimtab.schedule.jobs import Bools
from trimtab.schedule.placing import Placement
from trimtab.schedule.simulate.world import Look


class TabularWorld:
    """Jobs with so much `work` each, whose rates (units per second in each shape) are those of their class.

    What a scheduler believes of the work is `believed`; a job that has done more than that has as much left
    as a tenth of what it did. Where nothing is believed (NaN), what is left is not known.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        cluster: Cluster,
        classes: Sequence[Hashable],
        rates: Mapping[Hashable, Floats],
        work: Floats,
        believed: Floats | None = None,
    ) -> None:
        names = list(rates)
        number = {name: index for index, name in enumerate(names)}
        self._class = np.array([number[name] for name in classes], dtype=np.int64)
        self._rates = np.stack([rates[name] for name in names])
        self._cluster = cluster
        self._work = work
        self._believed = work if believed is None else believed
        self._done = np.zeros(len(jobs))
        self._rate = np.zeros(len(jobs))
        self._most = np.array([job.most for job in jobs], dtype=np.int64)
        self._restart = np.array([job.checkpoint.restart if job.checkpoint else 0.0 for job in jobs])
        self._shape_of = {(shape.group, shape.workers): index for index, shape in enumerate(cluster.shapes)}
        self._allowed = self._accepted(jobs)
        helpless = np.flatnonzero(
            ((self._rates > 0) & self._allowed.any(axis=0))[self._class].sum(axis=1) == 0
        )
        if len(helpless):
            raise BadInputError(f"no shape of this cluster can run {jobs[helpless[0]].id}")

    def look(self, jobs: Ints) -> Look:
        done = self._done[jobs]
        left = np.maximum(self._believed[jobs] - done, np.maximum(0.1 * done, 1.0))
        speed = np.where(self._allowed[jobs], self._rates[self._class[jobs]], 0.0)
        return Look(speed, self._most[jobs], done, left, left, left)

    def restart_seconds(self, job: int) -> float:
        return float(self._restart[job])

    def start(self, job: int, placement: Placement) -> None:
        shape = self._shape_of[placement.group, placement.workers]
        self._rate[job] = self._rates[self._class[job], shape]

    def stop(self, job: int, lost: float) -> None:
        self._done[job] = max(0.0, self._done[job] - lost * self._rate[job])

    def advance(self, jobs: Ints, seconds: Floats) -> Floats:
        rate, left = self._rate[jobs], self._work[jobs] - self._done[jobs]
        needed = left / rate
        self._done[jobs] += np.minimum(left, rate * seconds)
        return np.where(needed <= seconds, needed, np.inf)

    def _accepted(self, jobs: Sequence[Job]) -> Bools:
        """Which shapes each job takes: kinds it accepts, and no fewer or more workers than it asks for."""
        cluster = self._cluster
        kinds = {job.worker.accelerators for job in jobs}
        by_kinds = {
            taken: np.array(
                [not taken or cluster.groups[s.group].accelerator in taken for s in cluster.shapes]
            )
            for taken in kinds
        }
        least = np.array([job.least for job in jobs])[:, None]
        workers = cluster.shape_workers[None, :]
        fitting = (workers >= least) & (workers <= self._most[:, None])
        accepted: Bools = fitting & np.stack([by_kinds[job.worker.accelerators] for job in jobs])
        return accepted
