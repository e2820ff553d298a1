"""What is known before the first trial, and who answers."""

from pathlib import Path

import numpy as np
import pytest
from measured_jobs import JOBS, write_measured, write_spec

from trimtab.collect import read_spec
from trimtab.predict.jobs.training_data import DataSet, read_local, read_points
from trimtab.tune.job_forecast import JobForecast
from trimtab.tune.job_space import JobSpace
from trimtab.tune.searcher import Choice, Searcher
from trimtab.tune.space import Observation


@pytest.fixture
def data(tmp_path: Path) -> DataSet:
    points, local = write_measured(tmp_path)
    return DataSet(read_points(points), read_local(local))


@pytest.fixture
def space(tmp_path: Path) -> JobSpace:
    return JobSpace.of(read_spec(write_spec(tmp_path)), "tune-me", lambda setup: True)


def forecast_of(space: JobSpace, data: DataSet, others: DataSet | None) -> JobForecast:
    return JobForecast.of(space.space, space.where, space.steps, data.local["tune-me"], others)


def truth(space: JobSpace) -> np.ndarray:
    physics = JOBS["tune-me"]
    steps = [physics.seconds(s.shape.cpus, s.batch, s.workers) for s in space.setups]
    return np.array(steps) * space.steps


def test_the_model_answers_where_other_jobs_are_known(space: JobSpace, data: DataSet) -> None:
    forecast = forecast_of(space, data, data)
    believed = forecast.belief([])
    assert set(believed.by) == {"model"}
    assert "3 other jobs" in forecast.note
    assert np.abs(believed.value / truth(space) - 1).max() < 0.1
    assert np.abs(forecast.rule_seconds / truth(space) - 1).min() > 0.1, "the rule is off, by construction"


def test_the_rule_answers_where_they_are_not(space: JobSpace, data: DataSet) -> None:
    alone = DataSet(data.points.of("tune-me"), data.local)
    for others in (None, alone):
        forecast = forecast_of(space, data, others)
        believed = forecast.belief([])
        assert set(believed.by) == {"rule"}
        assert "nothing is known of other jobs" in forecast.note
        assert believed.value == pytest.approx(forecast.rule_seconds)
        moved = forecast.belief([Observation(0, 2 * float(forecast.rule_seconds[0]))])
        assert (moved.value > believed.value).all()


def test_memory_that_a_trial_lacked_is_lacking_elsewhere_too(space: JobSpace, data: DataSet) -> None:
    forecast = forecast_of(space, data, data)
    small = space.space.names.index("1 × small, batch 8")
    said = Observation(small, float("nan"), ok=False, metrics={"memory_fraction": 1.0})
    runs = forecast.belief([said]).runs
    assert runs[space.space.names.index("1 × wide, batch 8")] < 0.5, "it has no more memory"
    burnt = forecast.belief([Observation(small, float("nan"), ok=False)]).runs
    assert burnt[small] == 0
    assert burnt[space.space.names.index("1 × wide, batch 8")] > 0.5


@pytest.mark.parametrize("known", [True, False], ids=["model", "rule"])
def test_a_search_goes_on_from_every_trial(space: JobSpace, data: DataSet, known: bool) -> None:
    search = Searcher(space.space, "time", forecast_of(space, data, data if known else None))
    seen: list[Observation] = []
    for _ in range(3):
        choice = search.next(seen)
        assert isinstance(choice, Choice)
        assert choice.row not in [one.row for one in seen]
        believed = search.knowledge.belief(seen)
        assert believed is not None
        assert (believed.low <= believed.value).all()
        assert (believed.value <= believed.high).all()
        assert (believed.low > 0).all()
        seen.append(Observation(choice.row, float(truth(space)[choice.row])))
    best = search.recommended(seen)
    assert best is not None
    assert truth(space)[best] <= 1.1 * truth(space).min()
