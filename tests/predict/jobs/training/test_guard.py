"""Who answers for a job: rule, model or trial, and why."""

from dataclasses import replace

import numpy as np
import pytest

from trimtab.predict.guard import MODEL, RULE
from trimtab.predict.jobs.training import TRIAL, DataSet, Ours, Rule, Trial, forecast
from trimtab.predict.jobs.training.ours import Backtest


@pytest.fixture
def ours(data: DataSet) -> Ours:
    return Ours.fitted(data.points.without("words"), data.local)


def test_the_model_answers_for_a_job_like_others_and_says_how_good_it_was(data: DataSet, ours: Ours) -> None:
    asked = data.points.of("words")
    found = forecast(ours, data.job("words"), asked.where)
    assert set(found.by) == {MODEL}
    assert found.reasons[0].startswith("on jobs left out the model was off by")
    assert (found.low < found.value).all()
    assert (found.value < found.high).all()
    assert found.rule == pytest.approx(Rule.of(data.job("words")).step_seconds(asked.where))


def test_a_trial_speaks_for_itself(data: DataSet, ours: Ours) -> None:
    asked = data.points.of("words")
    trial = Trial(4, float(asked.step_seconds[4]))
    found = forecast(ours, data.job("words"), asked.where, [trial])
    assert (found.by[4], found.reasons[4]) == (TRIAL, "it was tried")
    assert found.low[4] < found.value[4] == trial.step_seconds < found.high[4]
    assert found.by[3] == MODEL


def test_the_rule_answers_where_it_won(data: DataSet, ours: Ours) -> None:
    beaten = replace(ours, backtest=Backtest(0.2, 0.1, ours.backtest.unlike))
    found = forecast(beaten, data.job("words"), data.points.of("words").where)
    assert set(found.by) == {RULE}
    assert found.value == pytest.approx(found.rule)
    assert "the model was off by 20.0%, the rule by 10.0%" in found.reasons[0]


def test_the_rule_answers_for_what_is_unlike_everything(data: DataSet, ours: Ours) -> None:
    job = data.job("words")
    huge = tuple(
        replace(run, cpu_seconds_step=1e4 * run.cpu_seconds_step, step_seconds=1e4 * run.step_seconds)
        for run in job.runs
    )
    found = forecast(ours, replace(job, runs=huge), data.points.of("words").where)
    assert set(found.by) == {RULE}
    assert "unlike the 3 learned from" in found.reasons[0]


def test_one_job_teaches_nobody_how_good_a_model_is(data: DataSet) -> None:
    alone = Ours.fitted(data.points.of("dense"), data.local)
    found = forecast(alone, data.job("words"), data.points.of("words").where)
    assert set(found.by) == {RULE}
    assert "only one job to learn from" in found.reasons[0]
    assert np.isfinite(found.high).all()
