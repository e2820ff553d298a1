"""The jobs of a round as columns for a policy, from the store's records, the engine's nodes and ended jobs.

Equal nodes form a group; rates and remaining work are learned from ended jobs; runs are accounted in
accelerator-seconds, dollars and units of work.
"""

import contextlib
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, count
from pathlib import Path

import numpy as np

from trimtab.core import Node
from trimtab.kernel import open_untrusted
from trimtab.predict import Durations, JobFeatures, WorkLeft
from trimtab.schedule.allocation import WAITING, Allocation, JobColumns, fixed_numbers, static_columns
from trimtab.schedule.cluster import (
    Cluster,
    Floats,
    GangShape,
    Ints,
    NodeGroup,
    fetch,
    largest_gang,
    usual_shapes,
)
from trimtab.schedule.job import Job, Speeds, Submission, kind_of, speeds_of, together
from trimtab.store import JobRecord, JobRun, JobState


@dataclass(frozen=True)
class Fleet:
    """Groups, and the names of each one's nodes."""

    groups: tuple[NodeGroup, ...] = ()
    nodes: tuple[tuple[str, ...], ...] = ()

    @staticmethod
    def of(nodes: Sequence[Node], prices: Mapping[str, float] | None = None) -> "Fleet":
        """Nodes with the same accelerators, CPUs, memory and zone are one group.

        `prices` are dollars per second of one accelerator of a kind, or of a node without any under "".
        """
        alike: dict[tuple[str, int, float, float, str], list[str]] = defaultdict(list)
        for node in nodes:
            kind = kind_of(node.accelerator) if node.gpus else ""
            alike[kind, node.gpus, node.cpus, node.memory, node.zone].append(node.name)
        groups, names = list[NodeGroup](), []
        for (kind, gpus, cpus, memory, zone), members in sorted(alike.items()):
            price = (prices or {}).get(kind, 0.0) * max(1, gpus)
            usual = (f"{gpus}x{kind}" if gpus else "cpu") + (f"@{zone}" if zone else "")
            names_in_turn = chain([usual], (f"{usual}.{number}" for number in count(2)))
            used = {group.name for group in groups}
            name = next(name for name in names_in_turn if name not in used)
            groups.append(NodeGroup(name, kind, len(members), gpus, cpus, memory, price, zone=zone))
            names.append(tuple(sorted(members)))
        return Fleet(tuple(groups), tuple(names))

    @cached_property
    def places(self) -> Mapping[str, tuple[int, int]]:
        """Group and number within the group, by node."""
        return {
            name: (group, number)
            for group, names in enumerate(self.nodes)
            for number, name in enumerate(names)
        }

    def named(self, name: str) -> NodeGroup | None:
        """The group of that name; None where there is none."""
        return next((group for group in self.groups if group.name == name), None)


RemainingWork = Callable[[Sequence[JobFeatures], Sequence[float]], WorkLeft]
"""Units that jobs have left, from their features and the units that they have done."""


class JobHistory:
    """Measured rates of ended jobs by application, and a model of the work of jobs."""

    def __init__(self) -> None:
        self._durations = Durations()
        self._rates: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._medians: dict[str, Mapping[str, float]] = {}

    def learn(self, record: JobRecord, job: Job) -> None:
        """Add a job that has ended."""
        self._durations.ended(features(job), record.done)
        for kind, rate in record.run.rates.items():
            self._medians.pop(record.application, None)
            self._rates[record.application][kind].append(rate)

    def rates(self, application: str) -> Mapping[str, float]:
        """Units per second of one worker on each kind of accelerator: medians of ended jobs."""
        if application not in self._medians:
            measured = self._rates.get(application, {})
            self._medians[application] = {kind: statistics.median(rates) for kind, rates in measured.items()}
        return self._medians[application]

    def remaining(self, jobs: Sequence[JobFeatures], done: Sequence[float]) -> WorkLeft:
        """Remaining work learned from ended jobs; NaN if no job of the application has ended."""
        return self._durations.left_many(jobs, done)


def features(job: Job) -> JobFeatures:
    """Features by which a job is compared with ended jobs."""
    return JobFeatures(job.application, job.workload.tenant, job.least * (job.worker.gpus or 1.0))


def workers_of(run: JobRun) -> int:
    """The number of workers of a run."""
    return sum(part.workers for part in run.parts)


def accelerators(job: Job, run: JobRun) -> float:
    """The accelerators that a run holds; a worker without any counts as one."""
    return workers_of(run) * (job.worker.gpus or 1.0)


def seconds_of(run: JobRun, now: float) -> float:
    """Seconds since the present run began."""
    return max(0.0, now - run.since) if run.since is not None else 0.0


def held(job: Job, run: JobRun, now: float) -> dict[str, float]:
    """Accelerator-seconds by group, up to now."""
    by_group = dict(run.held)
    if run.since is not None:
        by_group[run.group] = by_group.get(run.group, 0.0) + accelerators(job, run) * seconds_of(run, now)
    return by_group


def price_of(job: Job, run: JobRun, group: NodeGroup) -> float:
    """Dollars per second of the present run."""
    return accelerators(job, run) * group.gpu_price


def spent(job: Job, run: JobRun, now: float, group: NodeGroup | None) -> float:
    """Dollars up to now; without the present run where its group no longer exists."""
    if group is None:
        return run.spent
    return run.spent + seconds_of(run, now) * price_of(job, run, group)


def done(record: JobRecord, speeds: Speeds, kind: str, now: float, progress: float | None) -> float:
    """Units done: from the job's progress file, else its speed times its time."""
    if progress is not None:
        return progress
    run = record.run
    if run.since is None:
        return record.done
    return run.began + seconds_of(run, now) * speeds.of(kind, workers_of(run))


def read_progress(path: Path) -> float | None:
    """Number in a job's progress file; None if there is none yet."""
    with contextlib.suppress(OSError, ValueError), open_untrusted(path) as file:
        value = float(file.read(100))
        if 0 <= value < math.inf:
            return value
    return None


def measured_rate(run: JobRun, now: float, progress: float | None) -> float | None:
    """Units per second of one worker in the present run; None without a progress file."""
    seconds = seconds_of(run, now)
    if progress is None or progress <= run.began or seconds <= 0:
        return None
    return (progress - run.began) / seconds / together(workers_of(run))


def closed(
    job: Job, record: JobRecord, now: float, group: NodeGroup | None, progress: float | None
) -> JobRun:
    """The run when its present attempt is over; its rate is known where it wrote a progress file."""
    run = record.run
    rate = measured_rate(run, now, progress)
    return replace(
        run,
        held=held(job, run, now),
        spent=spent(job, run, now, group),
        seconds=run.seconds + seconds_of(run, now),
        since=None,
        rates=dict(run.rates) if group is None or rate is None else {**run.rates, group.accelerator: rate},
    )


_UNSAVED_RESTART = 30.0  # s from launch to the first useful step of a job without a checkpoint


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job of a round: its record, submission, speeds, and the units it has done.

    By group: units per second of one worker, and the most workers that it can have. `fixed` and `features`
    follow from the job alone.
    """

    record: JobRecord
    submission: Submission
    speeds: Speeds
    done: float
    worker_speed: tuple[float, ...]
    most: tuple[int, ...]
    fixed: tuple[float, ...]
    features: JobFeatures

    @property
    def job(self) -> Job:
        return self.submission.job


@dataclass(frozen=True, slots=True)
class RoundView:
    """A round as a policy sees it; `rows` are its jobs, `previous` their present allocation."""

    rows: tuple[JobRow, ...]
    jobs: JobColumns
    cluster: Cluster
    previous: Allocation


def row_of(
    record: JobRecord,
    submission: Submission,
    fleet: Fleet,
    rates: Mapping[str, float],
    now: float,
    progress: float | None,
) -> JobRow:
    """One job as a row; `rates` are its application's, `progress` is what the job itself has written."""
    measured = {**rates, **record.run.rates}
    group = fleet.named(record.run.group)
    kind = group.accelerator if group else ""
    live = measured_rate(record.run, now, progress)
    speeds = speeds_of(submission.job, measured)
    if live is not None and not submission.job.speeds:
        speeds = speeds_of(submission.job, {**measured, kind: live})
    job = submission.job
    return JobRow(
        record,
        submission,
        speeds,
        done(record, speeds, kind, now, progress),
        tuple(speeds.one(group.accelerator) for group in fleet.groups),
        tuple(min(job.most, largest_gang(job.worker, group)) for group in fleet.groups),
        fixed_numbers(job),
        features(job),
    )


def view_of(rows: Sequence[JobRow], fleet: Fleet, remaining_work: RemainingWork, now: float) -> RoundView:
    """All columns. Rows whose run is being stopped count as waiting."""
    most = np.array([row.most for row in rows], dtype=np.int64).reshape(len(rows), len(fleet.groups))
    cluster = Cluster(fleet.groups, _shapes(rows, most, fleet))
    remaining, low, high = _remaining(rows, remaining_work)
    near = fetch([row.job.data for row in rows], fleet.groups, {n: g for n, (g, _) in fleet.places.items()})
    attained = _held(rows, fleet, now)
    # What changes with time, for the few jobs that do not wait.
    restart = _floats(_restart_waiting(row.job) for row in rows)
    spent_until_now = _floats(row.record.run.spent for row in rows)
    settling, shape = np.zeros(len(rows), dtype=bool), np.full(len(rows), WAITING, dtype=np.int64)
    for index, row in enumerate(rows):
        if row.record.state is not JobState.WAITING:
            group = fleet.named(row.record.run.group)
            restart[index] = _restart(row, now)
            spent_until_now[index] = spent(row.job, row.record.run, now, group)
            settling[index] = _settling(row, now)
            if is_placed(row.record):
                shape[index] = cluster.shapes.index(_present_shape(row.record, fleet))
    jobs = JobColumns(
        **static_columns([row.job for row in rows], [row.fixed for row in rows]),
        ids=tuple(row.record.id for row in rows),
        done=_floats(row.done for row in rows),
        remaining=remaining,
        remaining_low=low,
        remaining_high=high,
        speed=_speed(rows, most, cluster),
        held=attained,
        attained=attained.sum(axis=1),
        restarts=np.array([row.record.run.restarts for row in rows], dtype=np.int64),
        restart_seconds=restart,
        settling=settling,
        preemptible=np.array([row.job.may_be_preempted for row in rows], dtype=bool),
        fetch=near.seconds,
        egress=near.dollars,
        spent=spent_until_now,
    )
    return RoundView(tuple(rows), jobs, cluster, Allocation(shape, np.arange(len(rows))))


def is_placed(record: JobRecord) -> bool:
    """Whether it has nodes, and keeps them unless a policy decides otherwise."""
    return record.state in (JobState.STARTING, JobState.RUNNING)


def _floats(values: Iterable[float]) -> Floats:
    return np.fromiter(values, dtype=float)


def _shapes(rows: Sequence[JobRow], most: Ints, fleet: Fleet) -> tuple[GangShape, ...]:
    """The usual shapes, those of running jobs, and from each job's fewest to its most workers by doubling."""
    shapes = set(usual_shapes(fleet.groups))
    shapes |= {_present_shape(row.record, fleet) for row in rows if is_placed(row.record)}
    for group in range(len(fleet.groups)):
        ranges = {(row.job.least, int(limit)) for row, limit in zip(rows, most[:, group], strict=True)}
        for least, limit in ranges:
            if least <= limit:
                doubled = (least << power for power in range((limit // least).bit_length()))
                shapes |= {GangShape(group, size) for size in (*doubled, limit) if size <= limit}
    return tuple(sorted(shapes, key=lambda shape: (shape.group, shape.workers)))


def _speed(rows: Sequence[JobRow], most: Ints, cluster: Cluster) -> Floats:
    rate = np.array([row.worker_speed for row in rows], dtype=float).reshape(len(rows), len(cluster.groups))
    group, workers = cluster.shape_group, cluster.shape_workers
    least = np.array([row.job.least for row in rows], dtype=np.int64)[:, None]
    fits = (workers >= least) & (workers <= most[:, group])
    return np.where(fits, rate[:, group] * np.array([together(int(size)) for size in workers]), 0.0)


def _remaining(rows: Sequence[JobRow], remaining_work: RemainingWork) -> tuple[Floats, Floats, Floats]:
    """Remaining work, low and high: declared if the speed is in the same units, else learned."""
    learned = remaining_work([row.features for row in rows], [row.done for row in rows])
    value, low, high = learned.value.copy(), learned.low.copy(), learned.high.copy()
    for index, row in enumerate(rows):
        if row.job.work is not None:
            declared = max(0.0, row.job.work - row.done) if row.speeds.own else math.nan
            value[index] = low[index] = high[index] = declared
    return value, low, high


def _held(rows: Sequence[JobRow], fleet: Fleet, now: float) -> Floats:
    number = {group.name: index for index, group in enumerate(fleet.groups)}
    seconds_held = np.zeros((len(rows), len(fleet.groups)))
    for index, row in enumerate(rows):
        if row.record.run.since is None and not row.record.run.held:
            continue
        for name, seconds in held(row.job, row.record.run, now).items():
            if name in number:
                seconds_held[index, number[name]] = seconds
    return seconds_held


def _restart(row: JobRow, now: float) -> float:
    """Seconds that stopping a job costs: saving and restarting, or all work since its start."""
    waiting = _restart_waiting(row.job)
    return waiting if row.job.checkpoint is not None else waiting + seconds_of(row.record.run, now)


def _restart_waiting(job: Job) -> float:
    checkpoint = job.checkpoint
    return _UNSAVED_RESTART if checkpoint is None else checkpoint.seconds + checkpoint.restart


def _settling(row: JobRow, now: float) -> bool:
    checkpoint = row.job.checkpoint
    restart = checkpoint.restart if checkpoint else _UNSAVED_RESTART
    return is_placed(row.record) and seconds_of(row.record.run, now) < restart


def _present_shape(record: JobRecord, fleet: Fleet) -> GangShape:
    return GangShape(fleet.places[record.run.parts[0].node][0], workers_of(record.run))
