"""What is known before the first trial, and who answers."""

from pathlib import Path

import numpy as np
import pytest
from measured_jobs import JOBS, write_measured, write_spec

from trimtab.collect.shapes import read_spec
from trimtab.core import NotFoundError
from trimtab.predict.jobs.training import DataSet, read_local, read_points
from trimtab.tune import METHODS, Choice, Observation
from trimtab.tune.job_space import JobSpace
from trimtab.tune.prior import begin, cases_of


@pytest.fixture
def data(tmp_path: Path) -> DataSet:
    points, local = write_measured(tmp_path)
    return DataSet(read_points(points), read_local(local))


@pytest.fixture
def space(tmp_path: Path) -> JobSpace:
    return JobSpace.of(read_spec(write_spec(tmp_path)), "tune-me", lambda setup: True)


def truth(space: JobSpace) -> np.ndarray:
    physics = JOBS["tune-me"]
    steps = [physics.seconds(s.shape.cpus, s.batch, s.workers) for s in space.setups]
    return np.array(steps) * space.steps


def test_the_model_answers_where_other_jobs_are_known(space: JobSpace, data: DataSet) -> None:
    prior = begin("trimtab", space, "cost", data.local["tune-me"], data)
    believed = prior.believed(space, "cost", [])
    assert set(believed.by) == {"model"}
    assert "3 other jobs" in prior.note
    assert np.abs(believed.value / truth(space) - 1).max() < 0.1
    assert np.abs(prior.rule_seconds / truth(space) - 1).min() > 0.1, "the rule is off, by construction"


def test_the_rule_answers_where_they_are_not(space: JobSpace, data: DataSet) -> None:
    alone = DataSet(data.points.of("tune-me"), data.local)
    for others in (None, alone):
        prior = begin("trimtab", space, "cost", data.local["tune-me"], others)
        believed = prior.believed(space, "cost", [])
        assert set(believed.by) == {"rule"}
        assert "nothing is known of other jobs" in prior.note
        assert believed.value == pytest.approx(prior.rule_seconds)
        moved = prior.believed(space, "cost", [Observation(0, 2 * float(prior.rule_seconds[0]))])
        assert (moved.value > believed.value).all()


def test_memory_that_a_trial_lacked_is_lacking_elsewhere_too(space: JobSpace, data: DataSet) -> None:
    prior = begin("trimtab", space, "cost", data.local["tune-me"], data)
    small = space.space.names.index("1 × small, batch 8")
    said = Observation(small, float("nan"), ok=False, metrics={"memory_fraction": 1.0})
    runs = prior.believed(space, "cost", [said]).runs
    assert runs[space.space.names.index("1 × wide, batch 8")] < 0.5, "it has no more memory"
    burnt = prior.believed(space, "cost", [Observation(small, float("nan"), ok=False)]).runs
    assert burnt[small] == 0
    assert burnt[space.space.names.index("1 × wide, batch 8")] > 0.5


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_begins_and_goes_on(space: JobSpace, data: DataSet, method: str) -> None:
    prior = begin(method, space, "time", data.local["tune-me"], data)
    seen: list[Observation] = []
    for _ in range(3):
        choice = prior.search.next(seen)
        assert isinstance(choice, Choice)
        assert choice.row not in [one.row for one in seen]
        believed = prior.believed(space, "time", seen)
        assert (believed.low <= believed.value).all()
        assert (believed.value <= believed.high).all()
        assert (believed.low > 0).all()
        seen.append(Observation(choice.row, float(truth(space)[choice.row])))


def test_an_unknown_method_is_refused(space: JobSpace, data: DataSet) -> None:
    with pytest.raises(
        NotFoundError, match=r"no method is called .*did you mean random.*there are trimtab, "
    ):
        begin("randon", space, "cost", data.local["tune-me"], data)


def test_other_jobs_become_cases_by_the_rank_of_their_batches(space: JobSpace, data: DataSet) -> None:
    cases = cases_of(space, data)
    assert [case.application for case in cases] == ["other", "third", "fourth"]
    third = cases[1]
    assert set(third.configurations) <= set(space.space.names)
    assert not third.ok[third.configurations.index("1 × small, batch 8")], "it does not fit"
    assert third.ok[third.configurations.index("1 × roomy, batch 8")]
