"""Jobs that `trimtab tune` has tried here before: their trials and local runs teach about the next one."""

import math
from collections.abc import Mapping

import numpy as np

from trimtab.core import BadInputError, home
from trimtab.predict import DataSet, LocalJob, Points, local_job
from trimtab.tune.job_local import kept_run
from trimtab.tune.job_space import configurations
from trimtab.tune.state import Subject, kept_states
from trimtab.tune.trials import ThisMachine, Trial


def seen_jobs(but: str) -> DataSet | None:
    """All but that job, as far as they were tried on this machine, where their local runs are from too."""
    points, local = list[Points](), dict[str, LocalJob]()
    for state in kept_states():
        job, subject = state.identity.job, state.subject
        if job == but or job in local or subject is None or state.identity.where != ThisMachine.name:
            continue
        told = kept_run(home() / "tune" / subject.local)
        try:
            run = local_job(subject.local, job, told)
        except BadInputError:  # it was removed, or is damaged
            continue
        last = {trial.setup: trial for trial in state.trials}
        if last:
            points.append(_points(job, subject, last))
            local[job] = run
    if not points:
        return None
    together = points[0]
    for more in points[1:]:
        together = together.joined(more)
    return DataSet(together, local)


def _points(job: str, subject: Subject, last: Mapping[str, Trial]) -> Points:
    """The last trial of every configuration, as if it had been collected."""
    setups = [setup for setup in subject.setups if setup.name in last]
    trials = [last[setup.name] for setup in setups]
    where = configurations(setups)
    step_seconds = np.array([trial.step_seconds if trial.ok else math.nan for trial in trials], dtype=float)
    seconds = where.steps(subject.samples) * step_seconds
    unknown = np.full(len(setups), math.nan)
    return Points(
        job=(job,) * len(setups),
        where=where,
        status=tuple(trial.status for trial in trials),
        price_date=subject.price_date,
        samples=np.full(len(setups), subject.samples),
        steps=np.array([float(trial.steps) for trial in trials]),
        step_seconds=step_seconds,
        early_step_seconds=step_seconds,
        step_deviation=unknown,
        cpu_seconds_step=unknown,
        memory_peak_bytes=np.array([trial.memory_peak_bytes or math.nan for trial in trials]),
        bytes_step=unknown,
        seconds=seconds,
        cost=seconds * where.price_per_second,
        trial_seconds=np.array([trial.seconds for trial in trials]),
    )
