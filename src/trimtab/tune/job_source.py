"""A job of a SPEC, and where what is known of it lies: other jobs' points, its local run, its trials."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from trimtab.collect import Spec
from trimtab.core import BadInputError, home
from trimtab.predict import DataSet, read_data, read_local, read_points
from trimtab.tune.engine_trials import EngineTrials
from trimtab.tune.job_local import LOCAL
from trimtab.tune.job_space import JobSpace
from trimtab.tune.seen import seen_jobs
from trimtab.tune.trials import Place, ThisMachine


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

    def others(self) -> DataSet:
        """What other jobs did, and their local runs: as measured, and as `trimtab tune` saw them here."""
        known = self._measured()
        seen = seen_jobs(self.job)
        return known if seen is None else known.joined(seen)

    def _measured(self) -> DataSet:
        if self.points is None:
            return read_data()
        local = self.local or self.points.with_suffix(LOCAL)
        return DataSet(read_points(self.points), read_local(local))

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
