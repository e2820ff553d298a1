"""Tuning a job of a SPEC from beginning to end: what is known of it, its trials, what to rent."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimtab.core import BadInputError, StorageError, did_you_mean, home
from trimtab.kernel import write_whole
from trimtab.observe.shapes import Spec, TrainingJob, read_spec, run_locally
from trimtab.predict.training import SHIPPED, DataSet, LocalJob, local_job, read_data, read_local, read_points
from trimtab.recommend.tuning.engine_trials import EngineTrials
from trimtab.recommend.tuning.job_space import JobSpace
from trimtab.recommend.tuning.prior import OURS, begin, check_method
from trimtab.recommend.tuning.session import Begun, Done, Ledger, Limits, Session, Tuned
from trimtab.recommend.tuning.state import Identity, open_state
from trimtab.recommend.tuning.trials import Effort, Place, ThisMachine

OBJECTIVES = ("cost", "time")
News = str | Begun | Done
"""What is told as it goes: a sentence, a trial that begins, one that is done."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody wants tuned, and how. Without `points`, what Trimtab measured itself is learned from."""

    spec: Path
    job: str
    objective: str = "cost"
    limits: Limits = field(default_factory=Limits)
    method: str = OURS
    engine: str | None = None
    points: Path | None = None
    local: Path | None = None
    state: Path | None = None

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            near = did_you_mean(self.objective, OBJECTIVES)
            raise BadInputError(
                f'the objective is "{self.objective}"{near}; it should be one of {", ".join(OBJECTIVES)}'
            )
        if self.local is not None and self.points is None:
            raise BadInputError("--local goes with --data: the local runs of the jobs that it measured")
        check_method(self.method)


def tune(asked: Asked, ledger: Ledger, tell: Callable[[News], None] = lambda news: None) -> Tuned:
    """Try configurations of the job for real until that is not worth its price, and recommend one."""
    spec = read_spec(asked.spec)
    effort = Effort(spec.window, spec.patience)
    place, space = _place_and_space(asked, spec)
    others = _others(asked)
    identity = Identity.of(space, asked.objective, place.name, effort, spec.price_date)
    with open_state(identity, asked.state) as state:
        if state.trials:
            tell(f"going on with {len(state.trials)} earlier trials of {state.path}")
        local = _local_run(space.job, spec, others, tell)
        prior = begin(asked.method, space, asked.objective, local, others)
        tell(prior.note)
        session = Session(space, asked.objective, prior, place, effort, state, ledger)
        return session.run(asked.limits, tell)


def _place_and_space(asked: Asked, spec: Spec) -> tuple[Place, JobSpace]:
    if asked.engine is None:
        spec.check_host()
        return ThisMachine(), JobSpace.of(
            spec, asked.job, lambda setup: setup.shape in spec.shapes_of(setup.workers)
        )
    told = (asked.engine, asked.spec.resolve(), asked.job, asked.objective, asked.state)
    whose = json.dumps([str(each) for each in told])
    folder = home() / "tune" / "engines" / hashlib.sha256(whose.encode()).hexdigest()[:12]
    there = EngineTrials(asked.engine, folder)
    return there, JobSpace.of(spec, asked.job, there.has_room)


def _others(asked: Asked) -> DataSet | None:
    """What other jobs did."""
    if asked.points is not None:
        local = asked.local or asked.points.with_suffix(".local.json")
        return DataSet(read_points(asked.points), read_local(local))
    return read_data() if (SHIPPED / "points.csv").exists() else None


def _local_run(
    job: TrainingJob, spec: Spec, others: DataSet | None, tell: Callable[[News], None]
) -> LocalJob:
    """The job's local run: as it comes with the data, else as it was kept, else made now."""
    given = others.local.get(job.name) if others is not None else None
    if given is not None and {run.batch for run in given.runs} == set(job.batches):
        tell(f"{job.name}: its local run comes with the data")
        return given
    path = _kept_at(job)
    told = _kept(path)
    if told is None:
        count = 2 * len(job.batches)
        tell(f"{job.name} has no local run yet: it runs here {count} times for {spec.window:g} s, unlimited")
        told = run_locally(job, spec).plain()
        write_whole(path, json.dumps(told) + "\n")
    else:
        tell(f"{job.name}: its local run is in {path}; remove that when its code has changed")
    return local_job(str(path), job.name, told)


def _kept_at(job: TrainingJob) -> Path:
    """Where its local run is kept: another command, folder or batch makes it another job."""
    told = json.dumps([job.command, str(job.folder), job.batches])
    return home() / "tune" / f"{job.name}-{hashlib.sha256(told.encode()).hexdigest()[:16]}.local.json"


def _kept(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
