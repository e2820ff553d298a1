"""Where a configuration of a job lies, for who learns by how much the rule is off.

What jobs share are ratios that decide how a quota slows a step down, whatever the job computes: how many
periods of the quota a step takes, how much of it is talk, how full the memory is. What is a job's own is
looked for over the configuration alone.
"""

from collections.abc import Mapping

import numpy as np

from trimtab.predict.fewshot import Array
from trimtab.predict.jobs.training.local_runs import Local, LocalJob
from trimtab.predict.jobs.training.process import Rows
from trimtab.predict.jobs.training.rule import Rule
from trimtab.predict.jobs.training.table import Configurations, Points

PERIOD = 0.1  # s; a quota is CPU seconds in each
_CPUS, _WORKERS = 0.2, 2.0  # in the middle of the coordinates

SHARED = (
    "CPUs",
    "workers",
    "periods of a step",
    "bytes per CPU second",
    "memory used",
    "batch",
    "local run off its line",
)
OWN = ("CPUs", "workers", "batch")


def rules(local: Local, jobs: tuple[str, ...]) -> Mapping[str, Rule]:
    """The rule of every job."""
    return {job: Rule.of(local[job]) for job in jobs}


def rows_of(job: LocalJob, rule: Rule, where: Configurations) -> Rows:
    """The rows of one job, coordinates about zero and of size about one."""
    cpu = rule.cpu_seconds(where)
    own = [
        np.log(where.cpus / _CPUS),
        np.log2(where.workers / _WORKERS),
        np.log(where.batch / np.exp(np.mean([np.log(run.batch) for run in job.runs]))),
    ]
    shared = [
        own[0],
        own[1],
        np.log(cpu / (PERIOD * where.cpus)),
        np.log1p(rule.gradient_bytes * (where.workers > 1) / cpu / 1e6) / 4.0,
        np.log(rule.memory_bytes(where) / where.memory_bytes),
        own[2],
        5.0 * _off_the_line(job, rule, where),
    ]
    return Rows(np.stack(shared, axis=1), np.stack(own, axis=1), np.full(len(where), job.name))


def rows_of_points(points: Points, local: Local, by_job: Mapping[str, Rule]) -> tuple[Rows, Array]:
    """The rows of measured points, and the rule's log seconds of a step there."""
    whose = np.array(points.job)
    shared, own = np.zeros((len(points), len(SHARED))), np.zeros((len(points), len(OWN)))
    said = np.zeros(len(points))
    for job in points.jobs:
        mine = whose == job
        where = points.where.only(mine)
        rows = rows_of(local[job], by_job[job], where)
        shared[mine], own[mine] = rows.shared, rows.own
        said[mine] = np.log(by_job[job].step_seconds(where))
    return Rows(shared, own, whose), said


def _off_the_line(job: LocalJob, rule: Rule, where: Configurations) -> Array:
    """By how much the most alike local run was off the line through all of them, in log seconds.

    That is the one with the same batch and as many workers, or the most there were; 0 for another batch.
    """
    most = max(run.workers for run in job.runs)
    off = dict[tuple[float, float], float]()
    for run in job.runs:
        line = rule.cpu.at(np.array([run.batch]), np.array([run.workers]))
        off[run.batch, run.workers] = float(np.log(run.cpu_seconds_step / line[0]))
    asked = zip(where.batch.tolist(), np.minimum(where.workers, most).tolist(), strict=True)
    return np.array([off.get(each, 0.0) for each in asked])
