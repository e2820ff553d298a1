"""The jobs of a round as columns for a policy, from what the store and the fleet know."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.schedule.allocation import WAITING, Allocation
from trimtab.schedule.cluster import Cluster, Floats, Ints, Shape, usual_shapes
from trimtab.schedule.job import Job
from trimtab.schedule.jobs import Jobs
from trimtab.schedule.locality import fetch
from trimtab.schedule.loop.accounting import done, held, seconds_of, spent, told_rate, workers_of
from trimtab.schedule.loop.fleet import Fleet
from trimtab.schedule.loop.history import History, Left, features
from trimtab.schedule.possible import largest_gang
from trimtab.schedule.speeds import Speeds, speeds_of, together
from trimtab.schedule.submission import Submission
from trimtab.store import JobRecord, JobState

_UNSAVED_RESTART = 30.0  # s from launch to the first useful step of a job that says nothing about it


@dataclass(frozen=True, slots=True)
class Row:
    """One job of a round: its record, what was handed in, how fast it is, and the units it has done."""

    record: JobRecord
    submission: Submission
    speeds: Speeds
    done: float

    @property
    def job(self) -> Job:
        """What is to be scheduled."""
        return self.submission.job


@dataclass(frozen=True, slots=True)
class View:
    """A round as a policy sees it; `rows` are its jobs, `previous` what they have now."""

    rows: tuple[Row, ...]
    jobs: Jobs
    cluster: Cluster
    previous: Allocation


def row_of(
    record: JobRecord, submission: Submission, fleet: Fleet, history: History, now: float, told: float | None
) -> Row:
    """What is known of one job; `told` is how far it says it has come."""
    measured = {**history.rates(record.application), **record.run.rates}
    group = fleet.named(record.run.group)
    kind = group.accelerator if group else ""
    live = told_rate(record.run, now, told)
    speeds = speeds_of(submission.job, measured)
    if live is not None and not submission.job.speeds:
        speeds = speeds_of(submission.job, {**measured, kind: live})
    return Row(record, submission, speeds, done(record, speeds, kind, now, told))


def view_of(rows: Sequence[Row], fleet: Fleet, left: Left, now: float) -> View:
    """All columns. Rows whose run is on its way out have nothing for a policy: they will wait."""
    most = _most(rows, fleet)
    cluster = Cluster(fleet.groups, _shapes(rows, most, fleet))
    tenants = tuple(dict.fromkeys(row.job.workload.tenant for row in rows))
    number = {name: index for index, name in enumerate(tenants)}
    remaining, low, high = _remaining(rows, left)
    near = fetch([row.job.data for row in rows], fleet.groups, {n: g for n, (g, _) in fleet.places.items()})
    given = _held(rows, fleet, now)
    jobs = Jobs(
        ids=tuple(row.record.id for row in rows),
        tenants=tenants,
        tenant=np.array([number[row.job.workload.tenant] for row in rows], dtype=np.int64),
        submitted=_floats(row.job.submitted for row in rows),
        priority=_floats(row.job.workload.priority for row in rows),
        deadline=_floats(_moment(row.job) for row in rows),
        hard=np.array([row.job.hard for row in rows], dtype=bool),
        least=np.array([row.job.least for row in rows], dtype=np.int64),
        most=np.array([row.job.most for row in rows], dtype=np.int64),
        gpus=_floats(row.job.worker.gpus for row in rows),
        cpus=_floats(row.job.worker.cpus for row in rows),
        memory=_floats(row.job.worker.memory for row in rows),
        done=_floats(row.done for row in rows),
        remaining=remaining,
        remaining_low=low,
        remaining_high=high,
        speed=_speed(rows, most, cluster),
        held=given,
        attained=given.sum(axis=1),
        restarts=np.array([row.record.run.restarts for row in rows], dtype=np.int64),
        restart_seconds=_floats(_restart(row, now) for row in rows),
        settling=np.array([_settling(row, now) for row in rows], dtype=bool),
        fetch=near.seconds,
        egress=near.dollars,
        spent=_floats(spent(row.job, row.record.run, now, fleet.named(row.record.run.group)) for row in rows),
        budget=_floats(math.inf if row.job.budget is None else row.job.budget for row in rows),
    )
    shape = [_present_shape(row.record, fleet, cluster) for row in rows]
    previous = Allocation(np.array(shape, dtype=np.int64), np.arange(len(rows)))
    return View(tuple(rows), jobs, cluster, previous)


def is_placed(record: JobRecord) -> bool:
    """Whether it has nodes, and is to keep them unless a policy says otherwise."""
    return record.state in (JobState.STARTING, JobState.RUNNING)


def _floats(values: Iterable[float]) -> Floats:
    return np.fromiter(values, dtype=float)


def _moment(job: Job) -> float:
    return math.inf if job.workload.deadline is None else job.submitted + job.workload.deadline


def _most(rows: Sequence[Row], fleet: Fleet) -> Ints:
    """The most workers each job can have in each group."""
    most = [[min(row.job.most, largest_gang(row.job.worker, g)) for g in fleet.groups] for row in rows]
    return np.array(most, dtype=np.int64).reshape(len(rows), len(fleet.groups))


def _shapes(rows: Sequence[Row], most: Ints, fleet: Fleet) -> tuple[Shape, ...]:
    """The usual ones, and those that the jobs ask for: gangs of any size, several accelerators per worker."""
    wanted = {(shape.group, shape.workers) for shape in usual_shapes(fleet.groups)}
    for group in range(len(fleet.groups)):
        ranges = {(row.job.least, int(each)) for row, each in zip(rows, most[:, group], strict=True)}
        wanted |= {(group, size) for least, each in ranges for size in _sizes(least, each)}
    for row in rows:
        if is_placed(row.record):
            wanted.add((fleet.places[row.record.run.parts[0].node][0], workers_of(row.record.run)))
    return tuple(Shape(group, workers) for group, workers in sorted(wanted))


def _sizes(least: int, most: int) -> set[int]:
    """From the least to the most by doubling."""
    if most < least:
        return set()
    doubled = {least << power for power in range((most // least).bit_length())}
    return {size for size in doubled if size <= most} | {most}


def _speed(rows: Sequence[Row], most: Ints, cluster: Cluster) -> Floats:
    one = [[row.speeds.one(group.accelerator) for group in cluster.groups] for row in rows]
    rate = np.array(one, dtype=float).reshape(len(rows), len(cluster.groups))
    group, workers = cluster.shape_group, cluster.shape_workers
    least = np.array([row.job.least for row in rows], dtype=np.int64)[:, None]
    fits = (workers >= least) & (workers <= most[:, group])
    return np.where(fits, rate[:, group] * np.array([together(int(each)) for each in workers]), 0.0)


def _remaining(rows: Sequence[Row], left: Left) -> tuple[Floats, Floats, Floats]:
    """What is left of each, low and high: as told where its speed is in the same units, else as learned."""
    learned = left([features(row.job) for row in rows], [row.done for row in rows])
    value, low, high = learned.value.copy(), learned.low.copy(), learned.high.copy()
    for index, row in enumerate(rows):
        if row.job.work is not None:
            known = max(0.0, row.job.work - row.done) if row.speeds.own else math.nan
            value[index] = low[index] = high[index] = known
    return value, low, high


def _held(rows: Sequence[Row], fleet: Fleet, now: float) -> Floats:
    number = {group.name: index for index, group in enumerate(fleet.groups)}
    given = np.zeros((len(rows), len(fleet.groups)))
    for index, row in enumerate(rows):
        for name, seconds in held(row.job, row.record.run, now).items():
            if name in number:
                given[index, number[name]] = seconds
    return given


def _restart(row: Row, now: float) -> float:
    """What stopping it would cost: saving and restarting, or all its work since it started."""
    checkpoint = row.job.checkpoint
    if checkpoint is None:
        return _UNSAVED_RESTART + seconds_of(row.record.run, now)
    return checkpoint.seconds + checkpoint.restart


def _settling(row: Row, now: float) -> bool:
    checkpoint = row.job.checkpoint
    restart = checkpoint.restart if checkpoint else _UNSAVED_RESTART
    return is_placed(row.record) and seconds_of(row.record.run, now) < restart


def _present_shape(record: JobRecord, fleet: Fleet, cluster: Cluster) -> int:
    if not is_placed(record):
        return WAITING
    group = fleet.places[record.run.parts[0].node][0]
    return cluster.shapes.index(Shape(group, workers_of(record.run)))
