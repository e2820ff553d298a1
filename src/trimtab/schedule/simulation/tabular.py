"""A world of tabulated speeds: jobs of a class work at one rate in a given shape. All advance at once."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from trimtab.core import BadInputError
from trimtab.schedule.cluster import Cluster, Floats, Ints
from trimtab.schedule.job import Job
from trimtab.schedule.jobs import Bools
from trimtab.schedule.placing import Placement
from trimtab.schedule.simulation.world import Look

_Asked = tuple[tuple[str, ...], int, int]
"""Kinds of accelerator, fewest and most workers."""


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
        rates: Mapping[Any, Floats],
        work: Floats,
        believed: Floats | None = None,
    ) -> None:
        accepted = _accepted(jobs, cluster)
        rows: dict[tuple[Hashable, _Asked], int] = {}
        asked = [(name, _asked(job)) for name, job in zip(classes, jobs, strict=True)]
        self._class = np.array([rows.setdefault(each, len(rows)) for each in asked], dtype=np.int64)
        self._rates = np.array([np.where(accepted[of], rates[name], 0.0) for name, of in rows])
        self._work = work
        self._believed = work if believed is None else believed
        self._done = np.zeros(len(jobs))
        self._rate = np.zeros(len(jobs))
        self._most = np.array([job.most for job in jobs], dtype=np.int64)
        self._restart = np.array([job.checkpoint.restart if job.checkpoint else 0.0 for job in jobs])
        self._shape_of = {(shape.group, shape.workers): index for index, shape in enumerate(cluster.shapes)}
        helpless = [row for row, able in enumerate(self._rates) if not (able > 0).any()]
        if helpless:
            first = jobs[int(np.isin(self._class, helpless).argmax())]
            raise BadInputError(f"no shape of this cluster can run {first.id}")

    def look(self, jobs: Ints) -> Look:
        done, believed = self._done[jobs], self._believed[jobs]
        left = np.where(done >= believed, 0.1 * done, believed - done)
        return Look(self._rates[self._class[jobs]], self._most[jobs], done, left, left, left)

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


def _asked(job: Job) -> _Asked:
    return job.worker.accelerators, job.least, job.most


def _accepted(jobs: Sequence[Job], cluster: Cluster) -> dict[_Asked, Bools]:
    """Which shapes are taken: of accepted kinds, and with no fewer or more workers than asked for."""
    kinds = np.array([cluster.groups[group].accelerator for group in cluster.shape_group])
    workers = cluster.shape_workers
    return {
        (taken, least, most): (workers >= least) & (workers <= most) & (np.isin(kinds, taken) | (not taken))
        for taken, least, most in {_asked(job) for job in jobs}
    }
