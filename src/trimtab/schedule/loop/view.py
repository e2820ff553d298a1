"""The jobs of a round as columns for a policy, from the store's records, the engine's nodes and ended jobs.

Nodes become groups of equal ones; ended jobs teach rates and remaining work; runs are accounted in
accelerator-seconds, dollars and units of work.
"""

import contextlib
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from trimtab.core import Node
from trimtab.predict import Durations, JobFeatures, WorkLeft
from trimtab.schedule.allocation import WAITING, Allocation, Jobs
from trimtab.schedule.cluster import Cluster, Floats, Group, Ints, Shape, fetch, largest_gang, usual_shapes
from trimtab.schedule.job import Job, Speeds, Submission, kind_of, speeds_of, together
from trimtab.store import JobRecord, JobRun, JobState


@dataclass(frozen=True)
class Fleet:
    """Groups, and the names of each one's nodes."""

    groups: tuple[Group, ...] = ()
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
        groups, names, taken = [], [], set[str]()
        for (kind, gpus, cpus, memory, zone), members in sorted(alike.items()):
            price = (prices or {}).get(kind, 0.0) * max(1, gpus)
            name = _free_name(kind, gpus, zone, taken)
            groups.append(Group(name, kind, len(members), gpus, cpus, memory, price, zone=zone))
            names.append(tuple(sorted(members)))
        return Fleet(tuple(groups), tuple(names))

    @cached_property
    def places(self) -> Mapping[str, tuple[int, int]]:
        """Of each node: its group, and its number there."""
        return {
            name: (group, number)
            for group, names in enumerate(self.nodes)
            for number, name in enumerate(names)
        }

    def named(self, name: str) -> Group | None:
        """The group of that name; None where it is gone."""
        return next((group for group in self.groups if group.name == name), None)


def _free_name(kind: str, gpus: int, zone: str, taken: set[str]) -> str:
    name = f"{gpus}x{kind}" if gpus else "cpu"
    name += f"@{zone}" if zone else ""
    chosen, number = name, 1
    while chosen in taken:
        number += 1
        chosen = f"{name}.{number}"
    taken.add(chosen)
    return chosen


RemainingWork = Callable[[Sequence[JobFeatures], Sequence[float]], WorkLeft]
"""How many units jobs have left that have done so many."""


class JobHistory:
    """Measured rates of ended jobs by application, and what is learned from how much work they were."""

    def __init__(self) -> None:
        self._durations = Durations()
        self._rates: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._medians: dict[str, Mapping[str, float]] = {}

    def learn(self, record: JobRecord, job: Job) -> None:
        """One more has ended."""
        self._durations.ended(features(job), record.done)
        self._medians.pop(record.application, None)
        for kind, rate in record.run.rates.items():
            self._rates[record.application][kind].append(rate)

    def rates(self, application: str) -> Mapping[str, float]:
        """Units per second of one worker on each kind of accelerator: medians of those that have ended."""
        if application not in self._medians:
            known = self._rates.get(application, {})
            self._medians[application] = {kind: statistics.median(rates) for kind, rates in known.items()}
        return self._medians[application]

    def left(self, jobs: Sequence[JobFeatures], done: Sequence[float]) -> WorkLeft:
        """Remaining work learned from ended jobs; NaN if no job of the application has ended."""
        return self._durations.left_many(jobs, done)


def features(job: Job) -> JobFeatures:
    """Features by which a job is compared with ended ones."""
    return JobFeatures(job.application, job.workload.tenant, job.least * (job.worker.gpus or 1.0))


def workers_of(run: JobRun) -> int:
    """How many workers its run has."""
    return sum(part.workers for part in run.parts)


def accelerators(job: Job, run: JobRun) -> float:
    """How many accelerators its run holds; a worker without any counts as one."""
    return workers_of(run) * (job.worker.gpus or 1.0)


def seconds_of(run: JobRun, now: float) -> float:
    """How long its present run has lasted."""
    return max(0.0, now - run.since) if run.since is not None else 0.0


def held(job: Job, run: JobRun, now: float) -> dict[str, float]:
    """Accelerator-seconds by group, up to now."""
    given = dict(run.held)
    if run.since is not None:
        given[run.group] = given.get(run.group, 0.0) + accelerators(job, run) * seconds_of(run, now)
    return given


def price_of(job: Job, run: JobRun, group: Group) -> float:
    """Dollars per second of its present run."""
    return accelerators(job, run) * group.gpu_price


def spent(job: Job, run: JobRun, now: float, group: Group | None) -> float:
    """Dollars up to now; nothing is added where the group's price is not known any more."""
    if group is None:
        return run.spent
    return run.spent + seconds_of(run, now) * price_of(job, run, group)


def done(record: JobRecord, speeds: Speeds, kind: str, now: float, progress: float | None) -> float:
    """Units done: as the job itself has written down, else what its speed makes of its time."""
    if progress is not None:
        return progress
    run = record.run
    if run.since is None:
        return record.done
    return run.began + seconds_of(run, now) * speeds.of(kind, workers_of(run))


def read_progress(path: Path) -> float | None:
    """Number in a job's progress file; None if there is none yet."""
    with contextlib.suppress(OSError, ValueError):
        value = float(path.read_text(encoding="utf-8")[:100])
        if 0 <= value < math.inf:
            return value
    return None


def measured_rate(run: JobRun, now: float, progress: float | None) -> float | None:
    """Units per second of one worker in the present run; None where the job does not say how far it came."""
    seconds = seconds_of(run, now)
    if progress is None or progress <= run.began or seconds <= 0:
        return None
    return (progress - run.began) / seconds / together(workers_of(run))


def closed(job: Job, record: JobRecord, now: float, group: Group | None, progress: float | None) -> JobRun:
    """The run when its present attempt is over; its rate is known where the job said how far it came."""
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


_UNSAVED_RESTART = 30.0  # s from launch to the first useful step of a job that says nothing about it


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job of a round: its record, what was handed in, how fast it is, and the units it has done."""

    record: JobRecord
    submission: Submission
    speeds: Speeds
    done: float

    @property
    def job(self) -> Job:
        """The job of the row."""
        return self.submission.job


@dataclass(frozen=True, slots=True)
class RoundView:
    """A round as a policy sees it; `rows` are its jobs, `previous` what they have now."""

    rows: tuple[JobRow, ...]
    jobs: Jobs
    cluster: Cluster
    previous: Allocation


def row_of(
    record: JobRecord,
    submission: Submission,
    fleet: Fleet,
    history: JobHistory,
    now: float,
    progress: float | None,
) -> JobRow:
    """One job as a row; `progress` is the progress that the job itself has written."""
    measured = {**history.rates(record.application), **record.run.rates}
    group = fleet.named(record.run.group)
    kind = group.accelerator if group else ""
    live = measured_rate(record.run, now, progress)
    speeds = speeds_of(submission.job, measured)
    if live is not None and not submission.job.speeds:
        speeds = speeds_of(submission.job, {**measured, kind: live})
    return JobRow(record, submission, speeds, done(record, speeds, kind, now, progress))


def view_of(rows: Sequence[JobRow], fleet: Fleet, left: RemainingWork, now: float) -> RoundView:
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
    return RoundView(tuple(rows), jobs, cluster, previous)


def is_placed(record: JobRecord) -> bool:
    """Whether it has nodes, and is to keep them unless a policy says otherwise."""
    return record.state in (JobState.STARTING, JobState.RUNNING)


def _floats(values: Iterable[float]) -> Floats:
    return np.fromiter(values, dtype=float)


def _moment(job: Job) -> float:
    return math.inf if job.workload.deadline is None else job.submitted + job.workload.deadline


def _most(rows: Sequence[JobRow], fleet: Fleet) -> Ints:
    """The most workers each job can have in each group."""
    most = [[min(row.job.most, largest_gang(row.job.worker, g)) for g in fleet.groups] for row in rows]
    return np.array(most, dtype=np.int64).reshape(len(rows), len(fleet.groups))


def _shapes(rows: Sequence[JobRow], most: Ints, fleet: Fleet) -> tuple[Shape, ...]:
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


def _speed(rows: Sequence[JobRow], most: Ints, cluster: Cluster) -> Floats:
    one = [[row.speeds.one(group.accelerator) for group in cluster.groups] for row in rows]
    rate = np.array(one, dtype=float).reshape(len(rows), len(cluster.groups))
    group, workers = cluster.shape_group, cluster.shape_workers
    least = np.array([row.job.least for row in rows], dtype=np.int64)[:, None]
    fits = (workers >= least) & (workers <= most[:, group])
    return np.where(fits, rate[:, group] * np.array([together(int(each)) for each in workers]), 0.0)


def _remaining(rows: Sequence[JobRow], left: RemainingWork) -> tuple[Floats, Floats, Floats]:
    """Remaining work, low and high: declared if the speed is in the same units, else learned."""
    learned = left([features(row.job) for row in rows], [row.done for row in rows])
    value, low, high = learned.value.copy(), learned.low.copy(), learned.high.copy()
    for index, row in enumerate(rows):
        if row.job.work is not None:
            known = max(0.0, row.job.work - row.done) if row.speeds.own else math.nan
            value[index] = low[index] = high[index] = known
    return value, low, high


def _held(rows: Sequence[JobRow], fleet: Fleet, now: float) -> Floats:
    number = {group.name: index for index, group in enumerate(fleet.groups)}
    given = np.zeros((len(rows), len(fleet.groups)))
    for index, row in enumerate(rows):
        for name, seconds in held(row.job, row.record.run, now).items():
            if name in number:
                given[index, number[name]] = seconds
    return given


def _restart(row: JobRow, now: float) -> float:
    """Seconds that stopping a job would cost: saving and restarting, or all work since its start."""
    checkpoint = row.job.checkpoint
    if checkpoint is None:
        return _UNSAVED_RESTART + seconds_of(row.record.run, now)
    return checkpoint.seconds + checkpoint.restart


def _settling(row: JobRow, now: float) -> bool:
    checkpoint = row.job.checkpoint
    restart = checkpoint.restart if checkpoint else _UNSAVED_RESTART
    return is_placed(row.record) and seconds_of(row.record.run, now) < restart


def _present_shape(record: JobRecord, fleet: Fleet, cluster: Cluster) -> int:
    if not is_placed(record):
        return WAITING
    group = fleet.places[record.run.parts[0].node][0]
    return cluster.shapes.index(Shape(group, workers_of(record.run)))
