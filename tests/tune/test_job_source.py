"""What trials of one job teach about the next."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from measured_jobs import JOBS, MIB, Physics, local_runs, write_measured, write_spec

from trimtab.collect import read_spec
from trimtab.core import home
from trimtab.tune import JobSource
from trimtab.tune.job_source import local_run_file, tried_jobs
from trimtab.tune.job_space import JobSpace
from trimtab.tune.state import Identity, Subject, open_state
from trimtab.tune.trials import Trial, TrialWindow

OK = Trial("1 × wide, batch 32", "ok", 1.0, 5.0, 0.001, 1e9, 40, 0.02, 0.01, 21 * MIB)
SHORT = Trial("2 × roomy, batch 8", "out-of-memory", 1 / 3, 5.0, 0.001, 1e9, reason="too large")


@pytest.fixture
def space(tmp_path: Path) -> JobSpace:
    return JobSpace.of(read_spec(write_spec(tmp_path)), "tune-me", lambda setup: True)


def keep(space: JobSpace, *trials: Trial, where: str = "this machine", objective: str = "cost") -> Path:
    """The state of a session with these trials, and the job's local run beside it."""
    identity = Identity.of_job(space, objective, where, TrialWindow(0.5, 20.0), "2026-11-15")
    with open_state(identity) as state:
        local = local_run_file(space.job)
        state.about(Subject(space.setups, space.job.length, "2026-11-15", local.name))
        for trial in trials:
            state.add(trial)
    told = {"facts": {}, "runs": local_runs(JOBS["tune-me"])}
    local.write_text(json.dumps(told))
    return local


def test_its_trials_are_points_of_a_job_for_all_others(space: JobSpace) -> None:
    keep(space, OK, SHORT, replace(OK, step_seconds=0.03))
    found = tried_jobs("another")
    assert found is not None
    points = found.points
    assert points.jobs == ("tune-me",)
    assert dict(zip(points.where.shape, points.status, strict=True)) == {"wide": "ok", "roomy": SHORT.status}
    row = points.where.shape.index("wide")
    assert points.step_seconds[row] == 0.03, "the last trial counts"
    assert points.seconds[row] == pytest.approx(space.job.steps(32, 1) * 0.03)
    assert points.cost[row] == pytest.approx(points.seconds[row] * 0.018 / 3600)
    assert np.isnan(points.step_seconds[1 - row])
    assert found.job("tune-me").runs[0].cpu_seconds_step == local_runs(JOBS["tune-me"])[0]["cpu_seconds_step"]


def test_it_does_not_learn_from_itself_twice(space: JobSpace) -> None:
    keep(space, OK)
    assert tried_jobs("tune-me") is None


def test_what_is_of_elsewhere_or_damaged_is_passed_over(space: JobSpace) -> None:
    local = keep(space, OK, where="slurm://")
    assert tried_jobs("another") is None
    keep(space, OK)
    (home() / "tune" / "foreign-cost-0.json").write_text('{"version": 1, "trials": [')
    assert tried_jobs("another") is not None
    local.write_text('{"runs": []}')
    assert tried_jobs("another") is None
    local.unlink()
    assert tried_jobs("another") is None


def test_a_new_job_is_told_of_measured_and_of_tried_ones(space: JobSpace, tmp_path: Path) -> None:
    keep(space, OK)
    folder = tmp_path / "data"
    folder.mkdir()
    measured = {"other": JOBS["other"], "third": JOBS["third"]}
    points, local = write_measured(folder, measured)
    others = JobSource(tmp_path / "spec.yaml", "new", points=points, local=local).others()
    assert set(others.points.jobs) == {"other", "third", "tune-me"} == set(others.local)
    assert len(others.points) == 25
    both = {**measured, "tune-me": Physics(1.0, 1.0, MIB)}
    points, local = write_measured(folder, both)
    others = JobSource(tmp_path / "spec.yaml", "new", points=points, local=local).others()
    assert len(others.points) == 36, "what was collected counts where there are both"
