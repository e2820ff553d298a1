"""Rates of a trace whose jobs say themselves how long they take, or how fast they are."""

from collections.abc import Hashable, Sequence

import numpy as np

from trimtab.core import BadInputError
from trimtab.schedule.cluster import Cluster, Floats, Group, Shape, usual_shapes
from trimtab.schedule.job import Job
from trimtab.schedule.possible import largest_gang
from trimtab.schedule.speeds import DOUBLING, Speeds
from trimtab.schedule.traces import ANY_KIND, SECONDS_ANYWHERE


def sizes_asked(jobs: Sequence[Job], groups: Sequence[Group]) -> tuple[Shape, ...]:
    """Shapes of the sizes that jobs can have: the usual ones for elastic jobs, and where their ranges end."""
    ranges = {(job.least, job.most) for job in jobs}
    usual = {shape.workers for shape in usual_shapes(groups)} if any(a < b for a, b in ranges) else set()
    sizes = {size for least, most in ranges for size in (least, most)}
    sizes |= {size for size in usual if any(least < size < most for least, most in ranges)}
    largest = [
        max(largest_gang(worker, group) for worker in {job.worker for job in jobs}) for group in groups
    ]
    return tuple(
        Shape(index, size) for index in range(len(groups)) for size in sorted(sizes) if size <= largest[index]
    )


def told_rates(jobs: Sequence[Job], cluster: Cluster) -> tuple[list[Hashable], dict[Hashable, Floats]]:
    """The class of each job, and units of work per second of each class in every shape.

    Each doubling of workers keeps 95 % of their speed: beyond the smallest gang for a job told by its
    duration, beyond one worker for a job told by one worker's speed. A kind that is not named is as fast as
    "any kind" where that is told, else in proportion to peak rates.
    """
    classes: list[Hashable] = []
    rates: dict[Hashable, Floats] = {}
    for job in jobs:
        if not job.speeds or job.work is None:
            raise BadInputError(
                f"job {job.id} says neither how long it takes nor how fast it works; a simulation needs "
                "duration_s, or work with speed columns"
            )
        key = (job.worker, job.least, job.most, tuple(sorted(job.speeds.items())))
        classes.append(key)
        if key not in rates:
            rates[key] = _rates(job, cluster)
    return classes, rates


def _rates(job: Job, cluster: Cluster) -> Floats:
    one = np.array([_one(job.speeds, group.accelerator) for group in cluster.groups])
    most = np.array([min(job.most, largest_gang(job.worker, group)) for group in cluster.groups])
    group, workers = cluster.shape_group, cluster.shape_workers
    base = job.least if job.speeds == SECONDS_ANYWHERE else 1
    together = workers * DOUBLING ** np.log2(np.maximum(workers / base, 1.0))
    fits = (workers >= job.least) & (workers <= most[group])
    return np.where(fits, one[group] * together, 0.0)


def _one(speeds: dict[str, float], kind: str) -> float:
    """Units per second of one worker on a kind."""
    return speeds.get(kind) or speeds.get(ANY_KIND) or Speeds(speeds, own=True).one(kind)
