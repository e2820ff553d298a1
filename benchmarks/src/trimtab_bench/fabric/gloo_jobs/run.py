"""A job from its start to its end, and how often it had to start."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from trimtab.collect import Step
from trimtab.core import BadInputError, format_duration
from trimtab_bench.fabric.gloo_jobs.job import Job
from trimtab_bench.fabric.gloo_jobs.marks import Collective
from trimtab_bench.fabric.gloo_jobs.ranks import Ranks, Start, on_loopback, started

_LOOK = 0.02  # s

Meanwhile = Callable[[Ranks], None]
"""Called every few milliseconds while a job runs; may do something to it."""


@dataclass(frozen=True, slots=True)
class Run:
    """One start of a job. Moments are in seconds since the epoch; `saved` and `loaded` are seconds by step.

    `failure` says how it ended, and is empty where it ended well; `fault` is when something was done to it.
    """

    begun: float
    ready: float | None
    ended: float
    steps: tuple[Step, ...]
    saved: dict[int, float]
    loaded: dict[int, float]
    collectives: tuple[Collective, ...]
    fault: float | None
    failure: str

    @property
    def seconds(self) -> float:
        """From start to end."""
        return self.ended - self.begun

    @property
    def initialisation(self) -> float | None:
        """Seconds until the first step began; None where there was none."""
        if self.ready is not None:
            return self.ready - self.begun
        gaps = sorted(self.step_seconds)
        return self.steps[0].time - gaps[len(gaps) // 2] - self.begun if gaps else None

    @property
    def step_seconds(self) -> tuple[float, ...]:
        """Of all steps but the first, without the checkpoints between them."""
        return tuple(
            after.time - before.time - self.saved.get(before.number, 0.0)
            for before, after in pairwise(self.steps)
        )

    @property
    def noticing(self) -> float | None:
        """Seconds from a fault until the job failed; None where it did not."""
        return self.ended - self.fault if self.failure and self.fault is not None else None


@dataclass(frozen=True, slots=True)
class Restarted:
    """A job that is started again from its last checkpoint whenever it fails: all its runs in order."""

    runs: tuple[Run, ...]

    @property
    def failure(self) -> str:
        """How the last one ended."""
        return self.runs[-1].failure

    @property
    def seconds(self) -> float:
        """From the first start to the last end."""
        return self.runs[-1].ended - self.runs[0].begun

    @property
    def steps(self) -> tuple[Step, ...]:
        """Every step as it was done last."""
        last = {step.number: step for run in self.runs for step in run.steps}
        return tuple(last[number] for number in sorted(last))

    @property
    def lost_steps(self) -> int:
        """How many were done more than once."""
        return sum(len(run.steps) for run in self.runs) - len(self.steps)


def run_job(
    job: Job,
    start: Start = on_loopback,
    *,
    limit: float,
    meanwhile: Meanwhile | None = None,
    attempt: int = 1,
) -> Run:
    """Until all ranks have ended, one has failed, or `limit` seconds are over; then no process is left."""
    with started(job, start, attempt) as ranks:
        until = time.monotonic() + limit
        failure = ""
        while not failure and not ranks.finished():
            ranks.listen(_LOOK)
            if meanwhile is not None:
                meanwhile(ranks)
            failure = ranks.failure()
            if not failure and time.monotonic() > until:
                failure = f"it had not ended after {format_duration(limit)}"
        return _run(ranks, failure)


def run_restarting(
    job: Job,
    start: Start = on_loopback,
    *,
    limit: float,
    meanwhile: Meanwhile | None = None,
    most: int = 10,
) -> Restarted:
    """The alternative to a fabric: start the job again when it fails, until it ends well.

    `limit` seconds are for all starts together, of which there are `most` at most; then a failure stays.
    """
    if job.checkpoint is None:
        raise BadInputError(
            "a job that is started again after a failure needs a checkpoint file to go on from"
        )
    until = time.monotonic() + limit
    runs = list[Run]()
    while not runs or (runs[-1].failure and len(runs) < most and time.monotonic() < until):
        left = max(until - time.monotonic(), 0.0)
        runs.append(run_job(job, start, limit=left, meanwhile=meanwhile, attempt=len(runs) + 1))
    return Restarted(tuple(runs))


def kill_at(step: int, rank: int, attempt: int = 1) -> Meanwhile:
    """Kills a rank as soon as the job has done that step, in one of its attempts."""

    def meanwhile(ranks: Ranks) -> None:
        if ranks.attempt == attempt and ranks.fault is None and ranks.last_step >= step:
            ranks.kill(rank)

    return meanwhile


def loss_difference(first: Run | Restarted, second: Run | Restarted) -> float:
    """The largest difference between the losses of a step that both have done; they must share one."""
    losses = {step.number: step.loss for step in first.steps}
    differences = [abs(step.loss - losses[step.number]) for step in second.steps if step.number in losses]
    if not differences:
        raise BadInputError("the two runs have no step in common, so their losses cannot be compared")
    return max(differences)


def _run(ranks: Ranks, failure: str) -> Run:
    marks = ranks.marks
    return Run(
        ranks.begun,
        marks.ready,
        time.time(),
        tuple(ranks.steps.steps),
        dict(marks.saved),
        dict(marks.loaded),
        tuple(marks.collectives),
        ranks.fault,
        failure,
    )
