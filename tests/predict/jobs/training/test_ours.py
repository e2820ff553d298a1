"""What is learned on top of the rule: from other jobs, from trials, and from the job's own points."""

import numpy as np
import pytest

from trimtab.core import BadInputError
from trimtab.predict.jobs.training import DataSet, Ours, Rule, Trial


@pytest.fixture
def ours(data: DataSet) -> Ours:
    return Ours.fitted(data.points.without("speech"), data.local)


def test_an_unseen_job_is_forecast_better_than_by_the_rule(data: DataSet, ours: Ours) -> None:
    asked, job = data.points.of("speech"), data.job("speech")
    ran = asked.ok
    belief = ours.belief(job, asked.where)
    off = np.abs(np.exp(belief.mean) / asked.step_seconds - 1)[ran].mean()
    rule = np.abs(Rule.of(job).step_seconds(asked.where) / asked.step_seconds - 1)[ran].mean()
    assert off < 0.5 * rule
    low, _, high = belief.step_seconds
    assert ((asked.step_seconds >= low) & (asked.step_seconds <= high))[ran].mean() > 0.8
    assert belief.fits[ran].min() > belief.fits[~ran].max()


def test_trials_move_the_belief_and_narrow_it(data: DataSet, ours: Ours) -> None:
    asked, job = data.points.of("speech"), data.job("speech")
    before = ours.belief(job, asked.where)
    slower = float(np.exp(before.mean[0]) * 1.5)
    after = ours.belief(job, asked.where, [Trial(0, slower)])
    assert after.mean[0] > before.mean[0] + 0.5 * np.log(1.5)
    assert (after.mean > before.mean).mean() > 0.9
    assert (after.deviation <= before.deviation + 1e-9).all()
    short = ours.belief(job, asked.where, [Trial(0, slower, fidelity=0.1)])
    assert before.mean[0] < short.mean[0] < after.mean[0]


def test_a_trial_that_ran_out_of_memory_says_what_else_will(data: DataSet, ours: Ours) -> None:
    asked, job = data.points.of("speech"), data.job("speech")
    medium = next(
        row for row in range(len(asked)) if asked.where.shape[row] == "medium" and asked.where.batch[row] == 8
    )
    belief = ours.belief(job, asked.where, [Trial(medium, float("nan"), ok=False)])
    small = [shape == "small" for shape in asked.where.shape]
    assert belief.fits[medium] == 0.0
    assert belief.fits[small].max() < 0.01


def test_a_seen_job_is_told_by_its_own_points(data: DataSet) -> None:
    points = data.points.only(data.points.ok)
    asked = np.arange(len(points)) % 5 == 0
    ours = Ours.fitted(points.only(~asked), data.local)
    for job in points.jobs:
        mine = points.only(asked & (np.array(points.job) == job))
        belief = ours.belief(data.job(job), mine.where)
        assert np.exp(belief.mean) == pytest.approx(mine.step_seconds, rel=0.06)


def test_it_is_the_same_every_time(data: DataSet, ours: Ours) -> None:
    again = Ours.fitted(data.points.without("speech"), data.local)
    assert again.process.sizes.logs.tolist() == ours.process.sizes.logs.tolist()
    assert again.margins == ours.margins


def test_what_says_nothing_is_refused(data: DataSet) -> None:
    with pytest.raises(BadInputError, match="none of the measured points is ok"):
        Ours.fitted(data.points.only(~data.points.ok), data.local)
    with pytest.raises(BadInputError, match="steps of nan s"):
        Trial(0, float("nan"))
    with pytest.raises(BadInputError, match="fidelity 0"):
        Trial(0, 1.0, fidelity=0.0)
