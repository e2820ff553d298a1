"""The simulator's state of every job of a trace, and the world in which jobs progress."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trimtab.core import daly_interval
from trimtab.schedule.allocation import WAITING, Bools, JobColumns, static_columns
from trimtab.schedule.cluster import Cluster, Floats, Ints, fetch
from trimtab.schedule.job import Job
from trimtab.schedule.placing import Placement


@dataclass(frozen=True, slots=True, eq=False)
class JobKnowledge:
    """Columns of `JobColumns` that only the world knows."""

    speed: Floats
    most: Ints
    done: Floats
    remaining: Floats
    remaining_low: Floats
    remaining_high: Floats


class World(Protocol):
    """How jobs progress. Jobs go by their index in the trace."""

    def look(self, jobs: Ints) -> JobKnowledge:
        """The scheduler's present knowledge of these jobs."""
        ...

    def restart_seconds(self, job: int) -> float:
        """Seconds that a job holds its accelerators before it works, after each start or change of form."""
        ...

    def start(self, job: int, placement: Placement) -> None:
        """The job runs on this placement from now on."""
        ...

    def stop(self, job: int, lost: float) -> None:
        """The job does not run from now on; the last `lost` seconds of its work were not saved."""
        ...

    def advance(self, jobs: Ints, seconds: Floats) -> Floats:
        """Let each job work for its seconds; returns when it was done, infinite where it goes on."""
        ...


UNENDED = np.inf

_SHOWN = (
    *("tenant", "submitted", "priority", "deadline", "hard", "least", "gpus", "cpus", "memory", "budget"),
    *("held", "attained", "restart_seconds", "fetch", "egress", "spent"),
)
"""Columns that policies see as they are."""


@dataclass
class SimulationState:
    """One row per job of the trace; `active` are the rows that have arrived and not ended."""

    jobs: Sequence[Job]
    ids: NDArray[np.object_]
    tenants: tuple[str, ...]
    tenant: Ints
    submitted: Floats
    priority: Floats
    deadline: Floats
    hard: Bools
    least: Ints
    most: Ints
    gpus: Floats
    cpus: Floats
    memory: Floats
    budget: Floats
    restart_seconds: Floats
    interval: Floats
    fetch: Floats
    egress: Floats
    gpu_price: Floats
    shape: Ints
    group: Ints
    workers: Ints
    pause: Floats
    slowness: Floats
    restarts: Ints
    ran: Floats
    attained: Floats
    held: Floats
    spent: Floats
    unsaved_work: Floats
    started: Floats
    ended: Floats
    refused: Bools
    active: Ints
    arrived: int = 0
    finished: int = 0

    @staticmethod
    def of(jobs: Sequence[Job], cluster: Cluster, world: World) -> "SimulationState":
        """The state before any job has arrived."""
        count = len(jobs)
        near = fetch([job.data for job in jobs], cluster.groups)
        columns = static_columns(jobs)
        columns |= {name: np.zeros(count) for name in ("pause", "ran", "attained", "spent", "unsaved_work")}
        return SimulationState(
            **columns,
            jobs=jobs,
            ids=np.array([job.id for job in jobs], dtype=object),
            restart_seconds=np.array([world.restart_seconds(job) for job in range(count)], dtype=float),
            interval=np.full(count, np.inf),
            fetch=near.seconds,
            egress=near.dollars,
            gpu_price=cluster.gpu_price,
            shape=np.full(count, WAITING, dtype=np.int64),
            group=np.full(count, -1, dtype=np.int64),
            workers=np.zeros(count, dtype=np.int64),
            slowness=np.ones(count),
            restarts=np.full(count, -1, dtype=np.int64),
            held=np.zeros((count, len(cluster.groups))),
            started=np.full(count, UNENDED),
            ended=np.full(count, UNENDED),
            refused=np.zeros(count, dtype=bool),
            active=np.empty(0, dtype=np.int64),
        )

    @property
    def arriving(self) -> bool:
        """Whether some jobs have not arrived yet."""
        return self.arrived < len(self.jobs)

    @property
    def next_arrival(self) -> float:
        """The moment of the next arrival."""
        return float(self.submitted[self.arrived]) if self.arriving else UNENDED

    def arrive(self, now: float) -> None:
        """Add the jobs that have been submitted by now."""
        until = int(np.searchsorted(self.submitted, now, "right"))
        if until > self.arrived:
            self.active = np.concatenate((self.active, np.arange(self.arrived, until)))
            self.arrived = until

    def columns(self, rows: Ints, world: World) -> JobColumns:
        """The columns of these jobs for a policy."""
        look = world.look(rows)
        return JobColumns(
            **{name: getattr(self, name)[rows] for name in _SHOWN},
            ids=tuple(self.ids[rows].tolist()),
            tenants=self.tenants,
            most=np.minimum(self.most[rows], look.most),
            done=look.done,
            remaining=look.remaining,
            remaining_low=look.remaining_low,
            remaining_high=look.remaining_high,
            speed=look.speed,
            restarts=np.maximum(self.restarts[rows], 0),
            settling=self.pause[rows] > 0,
            preemptible=np.ones(len(rows), dtype=bool),  # a stop by the policy loses no work here
        )

    def start(self, job: int, placement: Placement, now: float, hazard: float) -> None:
        """Start a job, or move it or change its form; it will be interrupted `hazard` times per second.

        It restarts, and fetches its data where it has none yet.
        """
        self._interrupt_fetching(job)
        group = placement.group
        self.restarts[job] += 1
        self.started[job] = min(self.started[job], now)
        self.workers[job] = placement.workers
        self.pause[job] = self.restart_seconds[job] + self.fetch[job, group]
        self.spent[job] += self.egress[job, group]
        self.fetch[job, group] = self.egress[job, group] = 0.0
        self.group[job] = group
        self.interval[job] = _interval(self.jobs[job], hazard)
        self.unsaved_work[job] = 0.0

    def stop(self, job: int) -> None:
        """Take a job off its nodes."""
        self._interrupt_fetching(job)
        self.pause[job] = 0.0
        self.group[job] = -1
        self.unsaved_work[job] = 0.0

    def _interrupt_fetching(self, job: int) -> None:
        """Keep the remaining seconds of a fetch that a restart interrupts."""
        remaining = self.pause[job] - self.restart_seconds[job]
        if remaining > 0:
            self.fetch[job, self.group[job]] = remaining

    def saving(self, job: int) -> float:
        """The factor by which saving slows its work down."""
        checkpoint = self.jobs[job].checkpoint
        return 1.0 + (checkpoint.seconds / float(self.interval[job]) if checkpoint else 0.0)

    def unsaved(self, job: int) -> float:
        """Useful seconds of work since it last saved."""
        return float(self.unsaved_work[job] % self.interval[job])

    def charge(self, rows: Ints, held: Floats, worked: Floats) -> None:
        """Account for seconds that jobs held their accelerators, and useful seconds of work."""
        self.ran[rows] += held
        group = self.group[rows]
        gpus = self.gpus[rows] * self.workers[rows]
        self.attained[rows] += gpus * held
        self.held[rows, group] += gpus * held
        self.spent[rows] += gpus * held * self.gpu_price[group]
        self.unsaved_work[rows] += worked

    def end(self, jobs: Ints, moments: Floats) -> None:
        """Record the moments at which jobs were done."""
        self.ended[jobs] = moments
        self._leave(jobs)

    def refuse(self, jobs: Ints) -> None:
        """Record that jobs are refused."""
        self.refused[jobs] = True
        self._leave(jobs)

    def _leave(self, jobs: Ints) -> None:
        self.shape[jobs] = WAITING
        self.active = np.delete(self.active, np.searchsorted(self.active, jobs))
        self.finished += len(jobs)


def _interval(job: Job, hazard: float) -> float:
    """Useful seconds between saves: the job's own, else Daly's; infinite without checkpoint or hazard."""
    if job.checkpoint is None or hazard == 0.0:
        return np.inf
    return job.checkpoint.interval or max(1.0, float(daly_interval(job.checkpoint.seconds, hazard)))
