"""A job of a SPEC, and where what is known of it lies: other jobs' points, its local run, its trials."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.core import BadInputError, StorageError, home
from trimtab.kernel import write_whole
from trimtab.observe.shapes import Spec, TrainingJob, run_locally
from trimtab.predict.training import SHIPPED, DataSet, LocalJob, local_job, read_data, read_local, read_points
from trimtab.recommend.tuning.engine_trials import EngineTrials
from trimtab.recommend.tuning.job_space import JobSpace
from trimtab.recommend.tuning.trials import Place, ThisMachine


@dataclass(frozen=True, slots=True)
class JobSource:
    """Which job, where its trials run and are kept, and what else is learned from.

    Without `points`, that is what Trimtab measured itself; without `engine`, trials run on this machine.
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

    def others(self) -> DataSet | None:
        """What other jobs did, and the local runs that come with it."""
        if self.points is not None:
            local = self.local or self.points.with_suffix(".local.json")
            return DataSet(read_points(self.points), read_local(local))
        return read_data() if (SHIPPED / "points.csv").exists() else None

    def place_and_space(self, spec: Spec, objective: str) -> tuple[Place, JobSpace]:
        """Where trials run, and the configurations that there is room for."""
        if self.engine is None:
            spec.check_host()
            return ThisMachine(), JobSpace.of(
                spec, self.job, lambda setup: setup.shape in spec.shapes_of(setup.workers)
            )
        told = (self.engine, self.spec.resolve(), self.job, objective, self.state)
        whose = json.dumps([str(each) for each in told])
        folder = home() / "tune" / "engines" / hashlib.sha256(whose.encode()).hexdigest()[:12]
        there = EngineTrials(self.engine, folder)
        return there, JobSpace.of(spec, self.job, there.has_room)


def local_run(job: TrainingJob, spec: Spec, others: DataSet | None, tell: Callable[[str], None]) -> LocalJob:
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
