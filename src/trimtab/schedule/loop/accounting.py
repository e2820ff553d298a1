"""What a job has used and done: what its ended runs did, and the one that runs now."""

import contextlib
import math
from dataclasses import replace
from pathlib import Path

from trimtab.schedule.cluster import Group
from trimtab.schedule.job import Job
from trimtab.schedule.speeds import Speeds, together
from trimtab.store import JobRecord, JobRun


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


def done(record: JobRecord, speeds: Speeds, kind: str, now: float, told: float | None) -> float:
    """Units done: as the job itself has written down, else what its speed makes of its time."""
    if told is not None:
        return told
    run = record.run
    if run.since is None:
        return record.done
    return run.began + seconds_of(run, now) * speeds.of(kind, workers_of(run))


def told_progress(path: Path) -> float | None:
    """What a job has written into its progress file; None where that is no number yet."""
    with contextlib.suppress(OSError, ValueError):
        value = float(path.read_text(encoding="utf-8")[:100])
        if 0 <= value < math.inf:
            return value
    return None


def told_rate(run: JobRun, now: float, told: float | None) -> float | None:
    """Units per second of one worker in the present run; None where the job does not say how far it came."""
    seconds = seconds_of(run, now)
    if told is None or told <= run.began or seconds <= 0:
        return None
    return (told - run.began) / seconds / together(workers_of(run))


def closed(job: Job, record: JobRecord, now: float, group: Group | None, told: float | None) -> JobRun:
    """The run when its present attempt is over; its rate is known where the job said how far it came."""
    run = record.run
    rate = told_rate(run, now, told)
    return replace(
        run,
        held=held(job, run, now),
        spent=spent(job, run, now, group),
        seconds=run.seconds + seconds_of(run, now),
        since=None,
        rates=dict(run.rates) if group is None or rate is None else {**run.rates, group.accelerator: rate},
    )
