"""A job of a SPEC with its data: other jobs' points, its local run, and the place of its trials."""

import functools
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.collect import Spec, TrainingJob, run_locally
from trimtab.core import BadInputError, StorageError, home
from trimtab.kernel import write_whole
from trimtab.predict import DataSet, LocalJob, Points, local_job, read_data, read_local, read_points
from trimtab.tune.job_space import JobSpace, configurations
from trimtab.tune.state import LOCAL, Subject, kept_states
from trimtab.tune.trials import EngineTrials, ThisMachine, Trial


@dataclass(frozen=True, slots=True)
class JobSource:
    """A job, the engine and state file of its trials, and the data of other jobs.

    Without `points`, other jobs are those that come with Trimtab; without `engine`, trials run on this
    machine.
    """

    spec: Path
    job: str
    engine: str | None = None
    points: Path | None = None
    local: Path | None = None
    state: Path | None = None

    def __post_init__(self) -> None:
        if self.local is not None and self.points is None:
            raise BadInputError("--local goes with --data: the local runs of the jobs that it measured")

    def others(self) -> DataSet:
        """Points and local runs of other jobs: as measured, and as `trimtab tune` tried them here."""
        if self.points is None:
            known = read_data()
        else:
            local = self.local or self.points.with_suffix(LOCAL)
            known = DataSet(read_points(self.points), read_local(local))
        tried = tried_jobs(self.job)
        return known if tried is None else known.joined(tried)

    def place_and_space(self, spec: Spec, objective: str) -> tuple[ThisMachine | EngineTrials, JobSpace]:
        """The place of trials, and the configurations for which it has room."""
        if self.engine is None:
            spec.check_host()
            return ThisMachine(), JobSpace.of(
                spec, self.job, lambda setup: setup.shape in spec.shapes_of(setup.workers)
            )
        session = [str(part) for part in (self.engine, self.spec.resolve(), self.job, objective, self.state)]
        folder = home() / "tune" / "engines" / hashlib.sha256(json.dumps(session).encode()).hexdigest()[:12]
        place = EngineTrials(self.engine, folder)
        return place, JobSpace.of(spec, self.job, place.has_room)


def local_run(job: TrainingJob, spec: Spec, others: DataSet, tell: Callable[[str], None]) -> LocalJob:
    """The job's local run: from the data, else the one kept in Trimtab's home, else made now and kept."""
    known = others.local.get(job.name)
    if known is not None and {run.batch for run in known.runs} == set(job.batches):
        tell(f"{job.name}: its local run comes with the data")
        return known
    path = local_run_file(job)
    run = _read_local_run(path)
    if run is None:
        count = 2 * len(job.batches)
        tell(f"{job.name} has no local run yet: it runs here {count} times for {spec.window:g} s, unlimited")
        run = run_locally(job, spec).plain()
        write_whole(path, json.dumps(run) + "\n")
    else:
        tell(f"{job.name}: its local run is in {path}; remove that when its code has changed")
    return local_job(str(path), job.name, run)


def local_run_file(job: TrainingJob) -> Path:
    """The file of the local run, named by the job's command, folder and batches."""
    content = json.dumps([job.command, str(job.folder), job.batches])
    return home() / "tune" / f"{job.name}-{hashlib.sha256(content.encode()).hexdigest()[:16]}{LOCAL}"


def _read_local_run(path: Path) -> Any:
    """The content of a local run's file; None where there is none, or it is damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None


def tried_jobs(but: str) -> DataSet | None:
    """Jobs that `trimtab tune` tried on this machine, with their local runs, without the job `but`."""
    points, local = list[Points](), dict[str, LocalJob]()
    for state in kept_states():
        job, subject = state.identity.job, state.subject
        if job == but or job in local or subject is None or state.identity.where != ThisMachine.name:
            continue
        try:
            run = local_job(subject.local, job, _read_local_run(home() / "tune" / subject.local))
        except BadInputError:  # removed or damaged
            continue
        last = {trial.setup: trial for trial in state.trials}
        if last:
            points.append(_points(job, subject, last))
            local[job] = run
    return DataSet(functools.reduce(Points.joined, points), local) if points else None


def _points(job: str, subject: Subject, last: Mapping[str, Trial]) -> Points:
    """The last trial of every configuration, as a collected point."""
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
