"""A world of tabulated speeds: jobs of a class work at one rate in a given shape. All advance at once."""

import csv
import gzip
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.core import BadInputError, NotFoundError
from trimtab.schedule.allocation import Bools
from trimtab.schedule.cluster import Cluster, Floats, GangShape, Ints, NodeGroup, largest_gang, usual_shapes
from trimtab.schedule.job import DOUBLING, Job, Speeds
from trimtab.schedule.placing import Placement
from trimtab.schedule.simulation.state import JobKnowledge
from trimtab.schedule.traces.table import ANY_KIND, SECONDS_ANYWHERE

JobClass = tuple[str, float | None, int]
"""A model, its batch per accelerator (None where it has none), and its number of accelerators."""

LARGEST = 8
"""The most accelerators on which speeds were measured; a step on more is assumed to take as long."""


def read_throughputs(folder: Path, source: str = "simulation") -> dict[tuple[JobClass, str], float]:
    """Steps per second by class and accelerator, of jobs alone on a server, where they fit."""
    path = folder / "gavel_throughputs.csv.gz"
    speeds: dict[tuple[JobClass, str], float] = {}
    try:
        with gzip.open(path, "rt", newline="") as file:
            for row in csv.DictReader(file):
                if row["source"] != source or row["consolidated"] != "True" or row["other_model"]:
                    continue
                rate = float(row["steps_per_s"])
                if rate > 0:
                    batch = float(row["batch_size"]) if row["batch_size"] else None
                    speeds[(row["model"], batch, int(row["num_gpus"])), row["accelerator"]] = rate
    except FileNotFoundError:
        raise NotFoundError(
            f"there is no file {path}; name the folder that holds gpu-throughput with --data"
        ) from None
    except (OSError, KeyError, ValueError) as error:
        raise BadInputError(f"{path} cannot be read: {error}") from None
    return speeds


def rates(
    throughputs: Mapping[tuple[JobClass, str], float], classes: Iterable[JobClass], cluster: Cluster
) -> dict[JobClass, Floats]:
    """Steps per second of each class in every shape; 0 in shapes of another size or an unmeasured kind."""
    rows = {}
    for model, batch, gpus in classes:
        row = np.zeros(len(cluster.shapes))
        for index, shape in enumerate(cluster.shapes):
            if shape.workers == gpus:
                kind = cluster.groups[shape.group].accelerator
                row[index] = throughputs.get(((model, batch, min(gpus, LARGEST)), kind), 0.0)
        rows[model, batch, gpus] = row
    return rows


def requested_shapes(jobs: Sequence[Job], groups: Sequence[NodeGroup]) -> tuple[GangShape, ...]:
    """Shapes of the sizes that jobs can have: the ends of their ranges, and usual sizes between them."""
    ranges = {(job.least, job.most) for job in jobs}
    usual = {shape.workers for shape in usual_shapes(groups)} if any(a < b for a, b in ranges) else set()
    sizes = {size for least, most in ranges for size in (least, most)}
    sizes |= {size for size in usual if any(least < size < most for least, most in ranges)}
    largest = [
        max(largest_gang(worker, group) for worker in {job.worker for job in jobs}) for group in groups
    ]
    return tuple(
        GangShape(index, size)
        for index in range(len(groups))
        for size in sorted(sizes)
        if size <= largest[index]
    )


def declared_rates(jobs: Sequence[Job], cluster: Cluster) -> tuple[list[Hashable], dict[Hashable, Floats]]:
    """The class of each job, and units of work per second of each class in every shape.

    Each doubling of workers keeps 95 % of their speed: beyond the smallest gang for a job with a duration,
    beyond one worker for a job with one worker's speed. An unnamed kind has the speed of "any kind" where
    that is given, else in proportion to peak rates.
    """
    classes: list[Hashable] = []
    rates: dict[Hashable, Floats] = {}
    for job in jobs:
        if not job.speeds or job.work is None:
            raise BadInputError(
                f"job {job.id} has neither a duration nor a speed; a simulation needs duration_s, or work "
                "with speed columns"
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


_Request = tuple[tuple[str, ...], int, int]
"""Kinds of accelerator, fewest and most workers."""


class TabularWorld:
    """Jobs with `work` in units, and rates (units per second in each shape) by class.

    `believed` is the scheduler's estimate of the work, NaN where unknown; a job that has done more is assumed
    to have a tenth of that left.
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
        rows: dict[tuple[Hashable, _Request], int] = {}
        requests = [(name, _request(job)) for name, job in zip(classes, jobs, strict=True)]
        self._class = np.array([rows.setdefault(request, len(rows)) for request in requests], dtype=np.int64)
        self._rates = np.array([np.where(accepted[of], rates[name], 0.0) for name, of in rows])
        self._work = work
        self._believed = work if believed is None else believed
        self._done = np.zeros(len(jobs))
        self._rate = np.zeros(len(jobs))
        self._most = np.array([job.most for job in jobs], dtype=np.int64)
        self._restart = np.array([job.checkpoint.restart if job.checkpoint else 0.0 for job in jobs])
        self._shape_of = {(shape.group, shape.workers): index for index, shape in enumerate(cluster.shapes)}
        impossible = [row for row, able in enumerate(self._rates) if not (able > 0).any()]
        if impossible:
            first = jobs[int(np.isin(self._class, impossible).argmax())]
            raise BadInputError(
                f"job {first.id} can never run: no shape of this cluster has its kinds and numbers of workers"
            )

    def look(self, jobs: Ints) -> JobKnowledge:
        done, believed = self._done[jobs], self._believed[jobs]
        remaining = np.where(done >= believed, 0.1 * done, believed - done)
        return JobKnowledge(
            self._rates[self._class[jobs]], self._most[jobs], done, remaining, remaining, remaining
        )

    def restart_seconds(self, job: int) -> float:
        return float(self._restart[job])

    def start(self, job: int, placement: Placement) -> None:
        shape = self._shape_of[placement.group, placement.workers]
        self._rate[job] = self._rates[self._class[job], shape]

    def stop(self, job: int, lost: float) -> None:
        self._done[job] = max(0.0, self._done[job] - lost * self._rate[job])

    def advance(self, jobs: Ints, seconds: Floats) -> Floats:
        rate, remaining = self._rate[jobs], self._work[jobs] - self._done[jobs]
        needed = remaining / rate
        self._done[jobs] += np.minimum(remaining, rate * seconds)
        return np.where(needed <= seconds, needed, np.inf)


def _request(job: Job) -> _Request:
    return job.worker.accelerators, job.least, job.most


def _accepted(jobs: Sequence[Job], cluster: Cluster) -> dict[_Request, Bools]:
    """Shapes of accepted kinds within the requested numbers of workers."""
    kinds = np.array([cluster.groups[group].accelerator for group in cluster.shape_group])
    workers = cluster.shape_workers
    return {
        (accepted, least, most): (workers >= least)
        & (workers <= most)
        & (np.isin(kinds, accepted) | (not accepted))
        for accepted, least, most in {_request(job) for job in jobs}
    }
