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


def spent(job: Job, run: JobRun, now: float, group: Group | None) -> float:
    """Dollars up to now; nothing is added where the group's price is not known any more."""
    if group is None:
        return run.spent
    price = group.price / max(1, group.gpus)
    return run.spent + accelerators(job, run) * seconds_of(run, now) * price


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


def closed(job: Job, record: JobRecord, now: float, group: Group | None, told: float | None) -> JobRun:
    """The run when its present attempt is over; its rate is known where the job said how far it came."""
    run = record.run
    rates = dict(run.rates)
    seconds = seconds_of(run, now)
    if told is not None and group is not None and told > run.began and seconds > 0:
        rates[group.accelerator] = (told - run.began) / seconds / together(workers_of(run))
    return replace(
        run,
        held=held(job, run, now),
        spent=spent(job, run, now, group),
        seconds=run.seconds + seconds,
        since=None,
        rates=rates,
    )
