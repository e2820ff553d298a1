"""The world of jobs whose users fixed the number of workers and the batch, from measured step times.

Steps take as long as those of adaptive jobs (`goodput`). A scheduler sees steps: their rate in each shape,
the number done, and the number left by ended jobs of the same application.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trimtab.core import BadInputError
from trimtab.schedule.cluster import Cluster, Floats, Ints, NodeGroup
from trimtab.schedule.job import Job
from trimtab.schedule.placing import Placement
from trimtab.schedule.simulation.goodput import Totals
from trimtab.schedule.simulation.goodput_profiles import KindTable, MeasuredApplication
from trimtab.schedule.simulation.state import JobKnowledge

_ROUNDING = 1e-8


@dataclass(frozen=True, slots=True, eq=False)
class Pace:
    """Steps per second, and the progress of one step in each epoch."""

    steps: float
    gains: Floats


@dataclass(eq=False)
class Gang:
    """Speeds of jobs of one application with the same workers and batch."""

    application: MeasuredApplication
    workers: int
    batch: int
    _paces: dict[tuple[str, tuple[int, ...]], Pace] = field(default_factory=dict)

    def pace(self, kind: str, form: tuple[int, ...]) -> Pace:
        """The pace with the workers of `form` on each node."""
        key = (kind, form)
        if key not in self._paces:
            application, table = self.application, self.application.kinds[kind]
            local, accumulated = self._split(table, form)
            step, sync = table.step(form, local)
            batch = self.workers * local * (accumulated + 1)
            scale = batch / application.smallest
            epochs = range(len(application.milestones))
            square, variance = np.array([application.gradient(batch, epoch) for epoch in epochs]).T
            seconds = (step + accumulated * (step - sync)) * application.nature.slowdown
            self._paces[key] = Pace(1.0 / seconds, (variance + square) / (variance / scale + square))
        return self._paces[key]

    def speeds(self, cluster: Cluster) -> Floats:
        """Steps per second in every shape; 0 in shapes of another size and on unmeasured kinds."""
        row = np.zeros(len(cluster.shapes))
        for index, shape in enumerate(cluster.shapes):
            group = cluster.groups[shape.group]
            fits = shape.workers == self.workers <= group.nodes * group.gpus
            if fits and group.accelerator in self.application.kinds:
                row[index] = self.pace(group.accelerator, _packed(self.workers, group)).steps
        return row

    def _split(self, table: KindTable, form: tuple[int, ...]) -> tuple[int, int]:
        """The local batch, and the accumulation steps that are needed because a larger one does not fit."""
        share = math.ceil(self.batch / self.workers - _ROUNDING)
        accumulated = math.ceil(share / table.largest_batch(form) - _ROUNDING) - 1
        if self.workers == 1 and self.batch > self.application.smallest:
            accumulated = max(1, accumulated)
        local = math.ceil(share / (accumulated + 1) - _ROUNDING)
        most = self.application.largest // (self.workers * (accumulated + 1))
        return max(1, min(local, most)), accumulated


@dataclass(eq=False)
class _Run:
    """One job: its gang, progress and present pace."""

    gang: Gang
    speeds: Floats
    progress: float = 0.0
    steps: float = 0.0
    epoch: int = 0
    pace: Pace | None = None

    @property
    def gain(self) -> float:
        """The progress of one of its steps now; 1 before it has run."""
        last = len(self.gang.application.milestones) - 1
        return float(self.pace.gains[min(self.epoch, last)]) if self.pace else 1.0

    def advance(self, seconds: float) -> float:
        """Work for some seconds; returns when it was done, infinite where it goes on."""
        assert self.pace is not None
        milestones, spent = self.gang.application.milestones, 0.0
        while True:
            rate = self.pace.steps * float(self.pace.gains[self.epoch])
            needed = max(0.0, float(milestones[self.epoch]) - self.progress) / rate
            worked = min(needed, seconds - spent)
            self.steps += worked * self.pace.steps
            spent += worked
            if needed > worked:
                self.progress += rate * worked
                return math.inf
            self.progress = float(milestones[self.epoch])
            self.epoch += 1
            if self.epoch == len(milestones):
                return spent

    def lose(self, seconds: float) -> None:
        """Lose the progress of the last seconds."""
        assert self.pace is not None
        self.progress = max(0.0, self.progress - seconds * self.pace.steps * self.gain)
        self.steps = max(0.0, self.steps - seconds * self.pace.steps)
        self.epoch = int(np.searchsorted(self.gang.application.milestones, self.progress, "right"))


class RigidWorld:
    """Jobs of measured applications with the workers and batch that their users requested."""

    def __init__(
        self,
        profiles: Mapping[str, MeasuredApplication],
        jobs: Sequence[Job],
        batches: Sequence[int],
        cluster: Cluster,
    ) -> None:
        requests = [(job.application, job.least, batch) for job, batch in zip(jobs, batches, strict=True)]
        gangs = {key: Gang(profiles[key[0]], *key[1:]) for key in dict.fromkeys(requests)}
        speeds = {key: gang.speeds(cluster) for key, gang in gangs.items()}
        for job, key in zip(jobs, requests, strict=True):
            if not speeds[key].any():
                kinds = ", ".join(gangs[key].application.kinds)
                raise BadInputError(
                    f"job {job.id} can never run on this cluster: {job.application} was measured on {kinds}, "
                    f"and no group of these kinds holds {job.least} workers"
                )
        self._runs = [_Run(gangs[key], speeds[key]) for key in requests]
        self._most = np.array([job.least for job in jobs], dtype=np.int64)
        self._cluster = cluster
        self._totals = Totals()

    def look(self, jobs: Ints) -> JobKnowledge:
        runs = [self._runs[job] for job in jobs.tolist()]
        steps_left = np.array([self._steps_left(run) for run in runs])
        done = np.array([run.steps for run in runs])
        return JobKnowledge(
            np.stack([run.speeds for run in runs]), self._most[jobs], done, steps_left, steps_left, steps_left
        )

    def restart_seconds(self, job: int) -> float:
        return self._runs[job].gang.application.nature.restart

    def start(self, job: int, placement: Placement) -> None:
        kind = self._cluster.groups[placement.group].accelerator
        run = self._runs[job]
        run.pace = run.gang.pace(kind, tuple(count for _, count in placement.parts))

    def stop(self, job: int, lost: float) -> None:
        if lost > 0:
            self._runs[job].lose(lost)

    def advance(self, jobs: Ints, seconds: Floats) -> Floats:
        ended = np.array(
            [self._runs[j].advance(s) for j, s in zip(jobs.tolist(), seconds.tolist(), strict=True)]
        )
        for job, after in zip(jobs.tolist(), ended.tolist(), strict=True):
            run = self._runs[job]
            self._totals.reached(run.gang.application.name, run.progress)
            if after < math.inf:
                self._totals.ended(run.gang.application.name, run.progress)
        return ended

    def _steps_left(self, run: _Run) -> float:
        """Steps left at the present progress per step; NaN where unknown."""
        total = self._totals.of(run.gang.application.name)
        return total if math.isnan(total) else max((total - run.progress) / run.gain, 1.0)


def _packed(workers: int, group: NodeGroup) -> tuple[int, ...]:
    """Workers on each node, on as few nodes as hold them."""
    full, rest = divmod(workers, group.gpus)
    return (group.gpus,) * full + ((rest,) if rest else ())
