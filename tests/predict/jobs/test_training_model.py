"""Seconds of a training step: the rule, the Gaussian process, the model, the chance to fit, the guard."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab.core import BadInputError
from trimtab.predict.guard import MODEL, RULE
from trimtab.predict.jobs.training_data import Configurations, DataSet, LocalJob, LocalJobRun, RunSeries
from trimtab.predict.jobs.training_model import (
    SHARED,
    TRIAL,
    Backtest,
    Fitting,
    Rows,
    StepTimeModel,
    StepTimeProcess,
    StepTimeRule,
    StepTrial,
    forecast,
    measured_rows,
    ring_share,
    rows_of,
)
from trimtab.predict.tables import take_rows


def _where(cpus: float, workers: float, batch: float, memory: float = 1e9) -> Configurations:
    one = np.ones(1)
    return Configurations(("a",), cpus * one, memory * one, workers * one, batch * one, 0.01 * one)


def test_lines_find_what_the_runs_are_made_of(data: DataSet) -> None:
    rule = StepTimeRule.of(data.job("dense"))
    assert rule.cpu.fixed == pytest.approx(2.0e-3)
    assert rule.cpu.sample == pytest.approx(0.06e-3)
    assert rule.cpu.exchange == pytest.approx(16e-3)
    assert rule.gradient_bytes == pytest.approx(16e6)


def test_a_step_takes_its_cpu_seconds_over_the_quota_but_not_less_than_without_limits(
    data: DataSet,
) -> None:
    rule = StepTimeRule.of(data.job("words"))
    cpu = 3.0e-3 + 16 * 0.02e-3
    assert rule.step_seconds(_where(0.1, 1, 16)) == pytest.approx([cpu / 0.1])
    assert rule.step_seconds(_where(8.0, 1, 16)) == pytest.approx([1.05 * cpu])
    four = rule.step_seconds(_where(0.1, 4, 16))
    assert four == pytest.approx([(cpu + 1.5 * 4e-3) / 0.1])


def test_memory_is_the_local_peak(data: DataSet) -> None:
    rule = StepTimeRule.of(data.job("pictures"))
    assert rule.memory_bytes(_where(0.1, 1, 64)) == pytest.approx([380 * 2**20])
    assert rule.fits(_where(0.1, 1, 64, memory=381 * 2**20)) == [1.0]
    assert rule.fits(_where(0.1, 1, 64, memory=379 * 2**20)) == [0.0]


@given(st.floats(1e-4, 0.1), st.floats(0, 0.01), st.floats(0, 0.1), st.integers(1, 64), st.floats(0.05, 4.0))
def test_more_work_never_takes_less_and_more_cpus_never_more(
    fixed: float, sample: float, exchange: float, batch: int, cpus: float
) -> None:
    runs = []
    for size in (8.0, 32.0):
        for workers in (1.0, 2.0):
            cpu = fixed + sample * size + exchange * float(ring_share(workers))
            runs.append(
                LocalJobRun(
                    batch=size,
                    workers=workers,
                    step_seconds=cpu,
                    cpu_seconds_step=cpu,
                    memory_peak_bytes=1e8,
                    bytes_step=0.0,
                    series=RunSeries(cpu=(1.0,), memory=(1.0,), received=(0.0,), sent=(0.0,)),
                )
            )
    rule = StepTimeRule.of(LocalJob(name="j", runs=tuple(runs)))
    here = rule.step_seconds(_where(cpus, 2, batch))[0]
    assert rule.step_seconds(_where(cpus, 2, batch + 1))[0] >= here * (1 - 1e-9)
    assert rule.step_seconds(_where(cpus, 4, batch))[0] >= here * (1 - 1e-9)
    assert rule.step_seconds(_where(2 * cpus, 2, batch))[0] <= here * (1 + 1e-9)


def test_one_run_is_not_enough(data: DataSet) -> None:
    job = data.job("words")
    with pytest.raises(BadInputError, match="words"):
        StepTimeRule.of(job.model_copy(update={"runs": job.runs[:1]}))


def test_points_of_many_jobs_are_those_of_each(data: DataSet) -> None:
    ran = data.points.only(data.points.ok)
    measured = measured_rows(data.points, data.local)
    rows = measured.rows
    assert rows.shared.shape == (len(ran), len(SHARED))
    assert rows.job.tolist() == list(ran.job)
    assert np.abs(rows.shared).max() < 10
    for job in ran.jobs:
        points, rule = ran.of(job), StepTimeRule.of(data.job(job))
        assert rows.shared[rows.job == job] == pytest.approx(
            rows_of(data.job(job), rule, points.where).shared
        )
        ratio = points.step_seconds / rule.step_seconds(points.where)
        assert measured.values[rows.job == job] == pytest.approx(np.log(ratio))


def _rows(jobs: int, count: int, random: np.random.Generator) -> Rows:
    names = np.repeat(np.arange(jobs), count).astype(str)
    return Rows(random.normal(size=(len(names), 2)), random.normal(size=(len(names), 1)), names)


def test_known_values_are_met_and_doubt_shrinks_there() -> None:
    random = np.random.default_rng(1)
    rows = _rows(3, 8, random)
    values = 0.5 * rows.shared[:, 0] + random.normal(scale=0.01, size=len(rows))
    process = StepTimeProcess.fitted(rows, values, np.ones(len(rows)))
    mean, covariance = process.given(rows, values, np.ones(len(rows)), rows)
    assert mean == pytest.approx(values, abs=0.1)
    assert (np.diag(covariance) < np.diag(process.covariance(rows, rows))).all()


def test_what_jobs_share_helps_a_new_one_and_its_own_rows_help_more() -> None:
    random = np.random.default_rng(2)
    rows = _rows(5, 12, random)
    level = np.repeat(random.normal(scale=0.3, size=5), 12)
    values = rows.shared[:, 0] + level + random.normal(scale=0.02, size=len(rows))
    new = rows.job == "4"
    process = StepTimeProcess.fitted(take_rows(rows, ~new), values[~new], np.ones(48))
    alone, doubt = process.given(take_rows(rows, ~new), values[~new], np.ones(48), take_rows(rows, new))
    assert np.corrcoef(alone, values[new])[0, 1] > 0.9
    known = ~new
    known[np.flatnonzero(new)[:2]] = True
    after, less = process.given(
        take_rows(rows, known), values[known], np.ones(known.sum()), take_rows(rows, new)
    )
    assert np.abs(after - values[new]).mean() < 0.5 * np.abs(alone - values[new]).mean()
    assert np.diag(less).mean() < np.diag(doubt).mean()


def test_without_anything_known_it_is_the_prior() -> None:
    rows = _rows(1, 3, np.random.default_rng(3))
    process = StepTimeProcess(np.full(6, -2.0), np.full(4, -2.0), -3.0)
    nobody = take_rows(rows, np.zeros(3, dtype=bool))
    mean, covariance = process.given(nobody, np.zeros(0), np.zeros(0), rows)
    assert mean.tolist() == [0.0, 0.0, 0.0]
    assert covariance == pytest.approx(process.covariance(rows, rows))


def test_it_learns_that_jobs_need_more_than_their_local_peak() -> None:
    room = np.linspace(-1.0, 1.0, 80)
    learned = Fitting.learned(room, room > 0.25)
    assert 0.15 < learned.shift < 0.3
    assert learned.chance(np.array([0.5]))[0] > 0.9
    assert learned.chance(np.array([0.0]))[0] < 0.2


@given(st.lists(st.floats(-2, 2), min_size=2, max_size=20), st.booleans())
def test_more_room_never_fits_worse_also_after_a_trial(room: list[float], fitted: bool) -> None:
    places = np.sort(np.array(room))
    chance = Fitting().after(places, np.array([len(places) // 2]), np.array([fitted]))
    assert (np.diff(chance) >= 0).all()
    assert chance[len(places) // 2] == fitted


@pytest.fixture
def without_speech(data: DataSet) -> StepTimeModel:
    return StepTimeModel.fitted(data.points.without("speech"), data.local)


def test_an_unseen_job_is_forecast_better_than_by_the_rule(
    data: DataSet, without_speech: StepTimeModel
) -> None:
    request, job = data.points.of("speech"), data.job("speech")
    ran = request.ok
    belief = without_speech.belief(job, request.where)
    off = np.abs(np.exp(belief.mean) / request.step_seconds - 1)[ran].mean()
    rule = np.abs(StepTimeRule.of(job).step_seconds(request.where) / request.step_seconds - 1)[ran].mean()
    assert off < 0.5 * rule
    low, _, high = belief.step_seconds
    assert ((request.step_seconds >= low) & (request.step_seconds <= high))[ran].mean() > 0.8
    assert belief.fits[ran].min() > belief.fits[~ran].max()


def test_trials_move_the_belief_and_narrow_it(data: DataSet, without_speech: StepTimeModel) -> None:
    request, job = data.points.of("speech"), data.job("speech")
    before = without_speech.belief(job, request.where)
    slower = float(np.exp(before.mean[0]) * 1.5)
    after = without_speech.belief(job, request.where, [StepTrial(0, slower)])
    assert after.mean[0] > before.mean[0] + 0.5 * np.log(1.5)
    assert (after.mean > before.mean).mean() > 0.9
    assert (after.deviation <= before.deviation + 1e-9).all()
    short = without_speech.belief(job, request.where, [StepTrial(0, slower, fidelity=0.1)])
    assert before.mean[0] < short.mean[0] < after.mean[0]


def test_a_trial_that_ran_out_of_memory_says_what_else_will(
    data: DataSet, without_speech: StepTimeModel
) -> None:
    request, job = data.points.of("speech"), data.job("speech")
    medium = next(
        row
        for row in range(len(request))
        if request.where.shape[row] == "medium" and request.where.batch[row] == 8
    )
    belief = without_speech.belief(job, request.where, [StepTrial(medium, float("nan"), ok=False)])
    small = [shape == "small" for shape in request.where.shape]
    assert belief.fits[medium] == 0.0
    assert belief.fits[small].max() < 0.01


def test_a_seen_job_is_told_by_its_own_points(data: DataSet) -> None:
    points = data.points.only(data.points.ok)
    request = np.arange(len(points)) % 5 == 0
    without_speech = StepTimeModel.fitted(points.only(~request), data.local)
    for job in points.jobs:
        own = points.only(request & (np.array(points.job) == job))
        belief = without_speech.belief(data.job(job), own.where)
        assert np.exp(belief.mean) == pytest.approx(own.step_seconds, rel=0.06)


def test_it_is_the_same_every_time(data: DataSet, without_speech: StepTimeModel) -> None:
    again = StepTimeModel.fitted(data.points.without("speech"), data.local)
    assert again.process.shared.tolist() == without_speech.process.shared.tolist()
    assert again.margins == without_speech.margins


def test_what_says_nothing_is_refused(data: DataSet) -> None:
    with pytest.raises(BadInputError, match="ok"):
        StepTimeModel.fitted(data.points.only(~data.points.ok), data.local)
    with pytest.raises(BadInputError, match="nan"):
        StepTrial(0, float("nan"))
    with pytest.raises(BadInputError, match="fidelity 0"):
        StepTrial(0, 1.0, fidelity=0.0)


@pytest.fixture
def without_words(data: DataSet) -> StepTimeModel:
    return StepTimeModel.fitted(data.points.without("words"), data.local)


def test_the_model_answers_for_a_job_like_others_and_says_how_good_it_was(
    data: DataSet, without_words: StepTimeModel
) -> None:
    request = data.points.of("words")
    result = forecast(without_words, data.job("words"), request.where)
    assert set(result.by) == {MODEL}
    assert f"{without_words.backtest.model:.1%}" in result.reasons[0]
    assert (result.low < result.value).all()
    assert (result.value < result.high).all()
    assert result.rule == pytest.approx(StepTimeRule.of(data.job("words")).step_seconds(request.where))


def test_a_trial_speaks_for_itself(data: DataSet, without_words: StepTimeModel) -> None:
    request = data.points.of("words")
    trial = StepTrial(4, float(request.step_seconds[4]))
    result = forecast(without_words, data.job("words"), request.where, [trial])
    assert result.by[4] == TRIAL
    assert result.low[4] < result.value[4] == trial.step_seconds < result.high[4]
    assert result.by[3] == MODEL


def test_the_rule_answers_where_it_won(data: DataSet, without_words: StepTimeModel) -> None:
    beaten = replace(without_words, backtest=Backtest(0.2, 0.1, without_words.backtest.unlike))
    result = forecast(beaten, data.job("words"), data.points.of("words").where)
    assert set(result.by) == {RULE}
    assert result.value == pytest.approx(result.rule)
    assert "20.0%" in result.reasons[0]
    assert "10.0%" in result.reasons[0]


def test_the_rule_answers_for_what_is_unlike_everything(data: DataSet, without_words: StepTimeModel) -> None:
    job = data.job("words")
    huge = tuple(
        run.model_copy(
            update={"cpu_seconds_step": 1e4 * run.cpu_seconds_step, "step_seconds": 1e4 * run.step_seconds}
        )
        for run in job.runs
    )
    result = forecast(without_words, job.model_copy(update={"runs": huge}), data.points.of("words").where)
    assert set(result.by) == {RULE}
    assert f"limit {2 * without_words.backtest.unlike:.1f}" in result.reasons[0]


def test_one_job_teaches_nobody_how_good_a_model_is(data: DataSet) -> None:
    alone = StepTimeModel.fitted(data.points.of("dense"), data.local)
    result = forecast(alone, data.job("words"), data.points.of("words").where)
    assert set(result.by) == {RULE}
    assert result.reasons[0]
    assert np.isfinite(result.high).all()
