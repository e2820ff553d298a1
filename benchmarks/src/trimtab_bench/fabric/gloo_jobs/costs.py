"""What failing costs a job: initialisation, epoch and checkpoints, measured (seed 002, table 3.1)."""

from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory

from trimtab.core import TrimtabError
from trimtab.fabric.advice import Assumption
from trimtab_bench.fabric.gloo_jobs.job import Job
from trimtab_bench.fabric.gloo_jobs.ranks import Start, on_loopback
from trimtab_bench.fabric.gloo_jobs.run import Restarted, kill_at, run_restarting


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds, each time they were measured."""

    seconds: tuple[float, ...]

    @property
    def mean(self) -> float:
        """On average."""
        return fmean(self.seconds)

    @property
    def option(self) -> str:
        """From the least to the most, as a command line takes it."""
        return f"{min(self.seconds):.4f}s..{max(self.seconds):.4f}s"

    def assumption(self) -> Assumption:
        """For the advisor: the mean, and all that was seen."""
        reason = f"measured {len(self.seconds)} times"
        return Assumption(self.mean, min(self.seconds), max(self.seconds), reason)


@dataclass(frozen=True, slots=True)
class JobCosts:
    """Seconds until the first step, of a step and of an epoch, and to write and read a checkpoint."""

    initialisation: Measured
    step: float
    epoch: float
    saving: Measured
    loading: Measured

    @property
    def options(self) -> str:
        """Those of `trimtab fabric advise` that were measured here."""
        return f"--saving {self.saving.option} --restarting {self.initialisation.option}"


def measure_costs(
    job: Job, start: Start = on_loopback, *, steps_per_epoch: int, limit: float
) -> tuple[JobCosts, Restarted]:
    """Run the job, kill its last rank after a checkpoint, let it go on; what that showed.

    The checkpoint is a new one, beside the job's own where it has one. The job must make more steps than it
    takes to write two checkpoints.
    """
    beside = job.checkpoint.parent if job.checkpoint is not None else None
    with TemporaryDirectory(dir=beside) as folder:
        watched = replace(job, checkpoint=Path(folder) / "checkpoint")
        done = run_restarting(
            watched, start, limit=limit, meanwhile=kill_at(job.every + 1, job.ranks - 1), most=2
        )
    if done.failure:
        raise TrimtabError(f"the job's costs cannot be measured: {done.failure}")
    if len(done.runs) < 2 or not done.runs[1].loaded:
        raise TrimtabError(
            f"the job's costs cannot be measured: it ended before step {job.every + 1} or did not print "
            'what its checkpoints took, such as "saved 10 seconds 0.03" and "loaded 10 seconds 0.01"'
        )
    return _costs(done, steps_per_epoch), done


def _costs(done: Restarted, steps_per_epoch: int) -> JobCosts:
    step = median(seconds for run in done.runs for seconds in run.step_seconds)
    return JobCosts(
        Measured(tuple(run.initialisation or 0.0 for run in done.runs)),
        step,
        step * steps_per_epoch,
        Measured(tuple(seconds for run in done.runs for seconds in run.saved.values())),
        Measured(tuple(seconds for run in done.runs for seconds in run.loaded.values())),
    )
