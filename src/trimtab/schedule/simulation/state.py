"""The simulator's state of every job of a trace, and the world in which jobs progress."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trimtab.core import daly_interval
from trimtab.schedule.allocation import WAITING, Bools, Jobs
from trimtab.schedule.cluster import Cluster, Floats, Ints, fetch
from trimtab.schedule.job import Job
from trimtab.schedule.placing import Placement


@dataclass(frozen=True, slots=True, eq=False)
class JobKnowledge:
    """Columns of `Jobs` that only the world knows, row by row."""

    speed: Floats
    most: Ints
    done: Floats
    remaining: Floats
    remaining_low: Floats
    remaining_high: Floats


class World(Protocol):
    """How jobs progress. Jobs go by their index in the trace."""

    def look(self, jobs: Ints) -> JobKnowledge:
        """Knowledge that a scheduler has of these jobs now."""
        ...

    def restart_seconds(self, job: int) -> float:
        """How long a job holds its accelerators before it works, whenever it starts or changes its form."""
        ...

    def start(self, job: int, placement: Placement) -> None:
        """From now on the job runs so."""
        ...

    def stop(self, job: int, lost: float) -> None:
        """From now on the job does not run; `lost` seconds of its last work were not saved."""
        ...

    def advance(self, jobs: Ints, seconds: Floats) -> Floats:
        """Let each job work so long; after how many seconds it was done, infinite where it goes on."""
        ...


UNENDED = np.inf


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
        """Nobody has arrived yet."""
        count, groups = len(jobs), len(cluster.groups)
        tenants = tuple(dict.fromkeys(job.workload.tenant for job in jobs))
        number = {name: index for index, name in enumerate(tenants)}
        near = fetch([job.data for job in jobs], cluster.groups)

        def floats(values: Sequence[float]) -> Floats:
            return np.array(values, dtype=float)

        def ints(values: Sequence[int]) -> Ints:
            return np.array(values, dtype=np.int64)

        def fresh(value: float = 0.0) -> Floats:
            return np.full(count, value)

        return SimulationState(
            jobs=jobs,
            ids=np.array([job.id for job in jobs], dtype=object),
            tenants=tenants,
            tenant=ints([number[job.workload.tenant] for job in jobs]),
            submitted=floats([job.submitted for job in jobs]),
            priority=floats([job.workload.priority for job in jobs]),
            deadline=floats([_moment(job) for job in jobs]),
            hard=np.array([job.hard for job in jobs], dtype=bool),
            least=ints([job.least for job in jobs]),
            most=ints([job.most for job in jobs]),
            gpus=floats([job.worker.gpus for job in jobs]),
            cpus=floats([job.worker.cpus for job in jobs]),
            memory=floats([job.worker.memory for job in jobs]),
            budget=floats([np.inf if job.budget is None else job.budget for job in jobs]),
            restart_seconds=floats([world.restart_seconds(job) for job in range(count)]),
            interval=fresh(np.inf),
            fetch=near.seconds,
            egress=near.dollars,
            gpu_price=cluster.gpu_price,
            shape=np.full(count, WAITING, dtype=np.int64),
            group=np.full(count, -1, dtype=np.int64),
            workers=np.zeros(count, dtype=np.int64),
            pause=fresh(),
            slowness=fresh(1.0),
            restarts=np.full(count, -1, dtype=np.int64),
            ran=fresh(),
            attained=fresh(),
            held=np.zeros((count, groups)),
            spent=fresh(),
            unsaved_work=fresh(),
            started=fresh(UNENDED),
            ended=fresh(UNENDED),
            refused=np.zeros(count, dtype=bool),
            active=np.empty(0, dtype=np.int64),
        )

    @property
    def arriving(self) -> bool:
        """Whether some have not arrived."""
        return self.arrived < len(self.jobs)

    @property
    def next_arrival(self) -> float:
        """When the next one does."""
        return float(self.submitted[self.arrived]) if self.arriving else UNENDED

    def arrive(self, now: float) -> None:
        """Let in who has been submitted by now."""
        until = int(np.searchsorted(self.submitted, now, "right"))
        if until > self.arrived:
            self.active = np.concatenate((self.active, np.arange(self.arrived, until)))
            self.arrived = until

    def columns(self, rows: Ints, world: World) -> Jobs:
        """The columns of these jobs for a policy."""
        look = world.look(rows)
        return Jobs(
            ids=tuple(self.ids[rows].tolist()),
            tenants=self.tenants,
            tenant=self.tenant[rows],
            submitted=self.submitted[rows],
            priority=self.priority[rows],
            deadline=self.deadline[rows],
            hard=self.hard[rows],
            least=self.least[rows],
            most=np.minimum(self.most[rows], look.most),
            gpus=self.gpus[rows],
            cpus=self.cpus[rows],
            memory=self.memory[rows],
            done=look.done,
            remaining=look.remaining,
            remaining_low=look.remaining_low,
            remaining_high=look.remaining_high,
            speed=look.speed,
            held=self.held[rows],
            attained=self.attained[rows],
            restarts=np.maximum(self.restarts[rows], 0),
            restart_seconds=self.restart_seconds[rows],
            settling=self.pause[rows] > 0,
            fetch=self.fetch[rows],
            egress=self.egress[rows],
            spent=self.spent[rows],
            budget=self.budget[rows],
        )

    def start(self, job: int, placement: Placement, now: float, hazard: float) -> None:
        """It begins, goes on elsewhere or in another form, interrupted `hazard` times per second.

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
        """It gives its nodes back."""
        self._interrupt_fetching(job)
        self.pause[job] = 0.0
        self.group[job] = -1
        self.unsaved_work[job] = 0.0

    def _interrupt_fetching(self, job: int) -> None:
        """Keep the remaining seconds of a fetch that a restart interrupts."""
        left = self.pause[job] - self.restart_seconds[job]
        if left > 0:
            self.fetch[job, self.group[job]] = left

    def saving(self, job: int) -> float:
        """How many times longer its work takes because it saves."""
        checkpoint = self.jobs[job].checkpoint
        return 1.0 + (checkpoint.seconds / float(self.interval[job]) if checkpoint else 0.0)

    def unsaved(self, job: int) -> float:
        """Useful seconds of work since it last saved."""
        return float(self.unsaved_work[job] % self.interval[job])

    def charge(self, rows: Ints, held: Floats, worked: Floats) -> None:
        """These have held their accelerators so long, and done so many useful seconds of work."""
        self.ran[rows] += held
        group = self.group[rows]
        gpus = self.gpus[rows] * self.workers[rows]
        self.attained[rows] += gpus * held
        self.held[rows, group] += gpus * held
        self.spent[rows] += gpus * held * self.gpu_price[group]
        self.unsaved_work[rows] += worked

    def end(self, jobs: Ints, moments: Floats) -> None:
        """Their work was done at these moments."""
        self.ended[jobs] = moments
        self._leave(jobs)

    def refuse(self, jobs: Ints) -> None:
        """They cannot be done in time, and will not be begun."""
        self.refused[jobs] = True
        self._leave(jobs)

    def _leave(self, jobs: Ints) -> None:
        self.shape[jobs] = WAITING
        self.active = np.delete(self.active, np.searchsorted(self.active, jobs))
        self.finished += len(jobs)


def _moment(job: Job) -> float:
    return np.inf if job.workload.deadline is None else job.submitted + job.workload.deadline


def _interval(job: Job, hazard: float) -> float:
    """Useful seconds between saves: its own, else Daly's; never where nothing interrupts or it cannot."""
    if job.checkpoint is None or hazard == 0.0:
        return np.inf
    return job.checkpoint.interval or max(1.0, float(daly_interval(job.checkpoint.seconds, hazard)))
