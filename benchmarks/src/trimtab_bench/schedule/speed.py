"""Seconds of a scheduling round, and job-rounds per second of a simulation."""

from dataclasses import replace
from time import perf_counter, process_time

import numpy as np

from trimtab.core import SimulatedClock, Workload
from trimtab.schedule import WAITING, Allocation, Cluster, Job, JobColumns, NodeGroup, policy, usual_shapes
from trimtab_bench.schedule.philly import PhillyJobs

SIZES, QUICK_SIZES = (250, 500, 1000, 2000, 4000), (250, 500)
SIMULATED = ("fifo", "las")
MANY, QUICK_MANY = 20_000, 2_000
_KINDS = (("t4", 1.0), ("v100", 2.5), ("a100", 6.0))
_NODE = 8
_MOST = 64
_ROUNDS = 3
_REPLACED = 0.02  # of the jobs, by new ones, from a round to the next
_ROUND = 60.0


def round_seconds(jobs: int, seed: int) -> float:
    """The median of rounds with so many jobs and twice as many accelerators, after one to warm up."""
    crowd = _Crowd(jobs, seed)
    scheduler, clock = policy("trimtab"), SimulatedClock()
    allocation, took = Allocation.nothing(jobs), []
    for _ in range(1 + _ROUNDS):
        start = perf_counter()
        allocation = scheduler.allocate(crowd.jobs, crowd.cluster, allocation, clock)
        took.append(perf_counter() - start)
        clock.advance(_ROUND)
        allocation = crowd.go_on(allocation, clock.now())
    return float(np.median(took[1:]))


def job_rounds_per_second(name: str, jobs: int, seed: int) -> float:
    """Jobs times rounds that a simulation does in a second of one core, policy included.

    The jobs have one worker each and two hours of work on average, and a tenth as many accelerators.
    """
    draw = np.random.default_rng((seed, jobs))
    gpus, hours = jobs // 10, 2.0
    work = draw.exponential(hours * 3600.0, jobs).tolist()
    when = np.sort(draw.uniform(0.0, 0.8 * jobs * hours * 3600.0 / gpus, jobs)).tolist()
    many = tuple(
        Job(f"job-{number}", Workload(f"job-{number}"), at, work=units)
        for number, (at, units) in enumerate(zip(when, work, strict=True))
    )
    stage = PhillyJobs(many, (NodeGroup("nodes", "v100", gpus // _NODE, _NODE, 64.0, 512e9),))
    start = process_time()
    return stage.run(name).job_rounds / (process_time() - start)


class _Crowd:
    """Half of the jobs are rigid and half elastic, on three kinds of accelerator in equal numbers.

    Speed grows with workers to a power of 0.7 to 0.95, a worker on a better kind being 2.5 or 6 times as
    fast, give or take a third. Every job has an hour of one worker's work, more or less by a factor of e.
    """

    def __init__(self, count: int, seed: int) -> None:
        self._draw = np.random.default_rng((seed, count))
        nodes = round(2 * count / _NODE / len(_KINDS))
        groups = tuple(NodeGroup(kind, kind, nodes, _NODE, 64.0, 512e9) for kind, _ in _KINDS)
        self.cluster = Cluster(groups, usual_shapes(groups, _MOST))
        self._next = 0
        self.jobs = self._new(count, 0.0)

    def go_on(self, allocation: Allocation, now: float) -> Allocation:
        """A minute later: running jobs have done some work, and some have left and new ones wait."""
        jobs, rows = self.jobs, np.flatnonzero(allocation.shape != WAITING)
        done = np.zeros(len(jobs))
        done[rows] = jobs.speed[rows, allocation.shape[rows]] * _ROUND
        stay = np.sort(self._draw.permutation(len(jobs))[round(_REPLACED * len(jobs)) :])
        left = np.maximum(jobs.remaining - done, 1.0)
        older = replace(jobs, done=jobs.done + done, remaining=left, remaining_low=left, remaining_high=left)
        self.jobs = _joined(older, stay, self._new(len(jobs) - len(stay), now))
        shape = np.concatenate((allocation.shape[stay], np.full(len(jobs) - len(stay), WAITING)))
        return Allocation(shape, np.arange(len(jobs)))

    def _new(self, count: int, now: float) -> JobColumns:
        draw, cluster = self._draw, self.cluster
        elastic = np.arange(count) % 2 == 0
        least = np.where(elastic, 1, draw.choice([1, 1, 2, 4, 8], count))
        most = np.where(elastic, _MOST, least)
        kind = np.array([speed for _, speed in _KINDS]) * draw.uniform(0.67, 1.33, (count, len(_KINDS)))
        together = cluster.shape_workers ** draw.uniform(0.7, 0.95, count)[:, None]
        fits = (cluster.shape_workers >= least[:, None]) & (cluster.shape_workers <= most[:, None])
        work = 3600.0 * np.exp(draw.uniform(-1.0, 1.0, count))
        groups = len(cluster.groups)
        first, self._next = self._next, self._next + count
        return JobColumns(
            ids=tuple(f"job-{number}" for number in range(first, first + count)),
            tenants=("a", "b", "c", "d"),
            tenant=np.arange(count) % 4,
            submitted=np.full(count, now),
            priority=np.zeros(count),
            deadline=np.where(np.arange(count) % 4 == 1, now + 6 * 3600.0, np.inf),
            hard=np.zeros(count, dtype=bool),
            least=least,
            most=most,
            gpus=np.ones(count),
            cpus=np.full(count, 4.0),
            memory=np.full(count, 32e9),
            done=np.zeros(count),
            remaining=work,
            remaining_low=work,
            remaining_high=work,
            speed=np.where(fits, kind[:, cluster.shape_group] * together, 0.0),
            held=np.zeros((count, groups)),
            attained=np.zeros(count),
            restarts=np.zeros(count, dtype=np.int64),
            restart_seconds=np.full(count, 60.0),
            settling=np.zeros(count, dtype=bool),
            preemptible=np.ones(count, dtype=bool),
            fetch=np.zeros((count, groups)),
            egress=np.zeros((count, groups)),
            spent=np.zeros(count),
            budget=np.full(count, np.inf),
        )


def _joined(old: JobColumns, stay: np.ndarray, new: JobColumns) -> JobColumns:
    """The rows `stay` of `old`, then all of `new`."""
    columns = {
        name: np.concatenate((column[stay], getattr(new, name)))
        for name in JobColumns.__slots__
        if isinstance(column := getattr(old, name), np.ndarray)
    }
    ids = tuple(old.ids[row] for row in stay.tolist()) + new.ids
    return JobColumns(ids=ids, tenants=old.tenants, **columns)
