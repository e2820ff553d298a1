"""The bench of training jobs: splits, jobs left out, trials, and what is put together."""

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from trimtab_bench.harness import BenchOptions, BenchPart, Kept, finish, two_processes
from trimtab_bench.training_config import goals, job_parts, seen, unseen

from trimtab.predict.jobs.training_data import DataSet, Points, read_data

pytest.importorskip("torch", reason="the thesis' networks need PyTorch")
pytest.importorskip("sklearn", reason="the baselines need scikit-learn")


@pytest.fixture(scope="module")
def data() -> DataSet:
    """Three of the shipped jobs."""
    whole = read_data()
    few = whole.points.jobs[:3]
    return DataSet(whole.points.only([job in few for job in whole.points.job]), whole.local)


def test_a_split_leaves_a_fifth_out_and_every_job_is_in_both_parts(data: DataSet) -> None:
    points = data.points.only(data.points.ok)
    training, asked = seen.split(points, 0)
    assert len(training) + len(asked) == len(points)
    assert len(asked) == round(0.2 * len(points))
    assert set(training.jobs) == set(asked.jobs) == set(points.jobs)
    keys = [{(p.job[i], p.where.name(i)) for i in range(len(p))} for p in (training, asked)]
    assert not keys[0] & keys[1]
    assert seen.split(points, 1)[1].job != asked.job or seen.split(points, 1)[1].cost[0] != asked.cost[0]


def test_who_knows_the_job_is_nearer_than_the_rule(data: DataSet) -> None:
    ours = seen.split_figures(data, "time", seen.OURS, 0)
    rule = seen.split_figures(data, "time", seen.RULE, 0)
    assert ours["mape"] < rule["mape"]
    assert ours["r2"] > 0.9


def test_advice_for_a_job_left_out_is_at_best_the_best(data: DataSet) -> None:
    job = data.points.jobs[0]
    for method in (seen.OURS, seen.RULE):
        found = unseen.job_figures(data, job, "cost", method)
        assert found["regret_0"] >= 1.0
        assert 0.5 < found["auc"] <= 1.0


def test_a_failed_recommendation_counts_as_the_dearest() -> None:
    assert unseen.worth(np.array([1.0, np.nan, 3.0])).tolist() == [1.0, 3.0, 3.0]


def test_searches_try_three_and_say_what_that_took(data: DataSet) -> None:
    job = data.points.jobs[1]
    asked = data.points.of(job)
    found = unseen.search_trials(data, job, "cost", "random", 3, range(3))
    least, most = np.sort(asked.trial_seconds)[[0, -1]]
    assert unseen.TRIALS * least <= found["seconds"] <= unseen.TRIALS * most
    assert found["dollars"] > 0
    assert unseen.our_trials(data, job, "cost")["regret_3"] <= found["regret_3"]
    assert len(unseen.space_of(asked)) == len(asked)
    for search in ("ernest", "cherrypick"):
        assert unseen.search_trials(data, job, "time", search, 4, [0])["regret_3"] >= 1.0


def test_a_quick_run_puts_all_together(data: DataSet) -> None:
    parts = job_parts(BenchOptions(quick=True), data)
    assert len({part.file for part in parts}) == len(parts)
    slow = {seen.THESIS, unseen.FOREST, "random forest, log", "importance", *unseen.RIVALS}
    slow |= {f"{name}, {unseen.MORE} trials" for name in unseen.RIVALS}
    found = {part.key: part.run() for part in parts if not slow & set(part.key)}
    figures = {"seen": seen.figures(found), "unseen": unseen.figures(found) | unseen.trial_figures(found)}
    assert all(math.isfinite(each["value"]) for each in goals(figures).values())
    found_tables = (*seen.tables(figures["seen"]), *unseen.trial_tables(figures["unseen"]))
    titles = [table.title for table in found_tables]
    assert titles[0].startswith("Seen jobs, cost")
    assert "after 3 trials" in titles[-1]


def test_goals_are_met_on_the_right_side() -> None:
    section = {"cost_rmse_over_mean": 0.1, "time_rmse_over_mean": 0.2, "cost_r2": 0.99, "time_r2": 0.9}
    other = {"regret_0": 1.0, "regret_3": 1.5, "auc_cost": 0.96, "auc_time": 0.9}
    met = {name: each["met"] for name, each in goals({"seen": section, "unseen": other}).items()}
    assert met == {
        "seen.cost_rmse_over_mean": True,
        "seen.time_rmse_over_mean": False,
        "seen.cost_r2": True,
        "seen.time_r2": False,
        "unseen.regret_0": True,
        "unseen.regret_3": False,
        "unseen.auc_cost": True,
        "unseen.auc_time": False,
    }


def test_parts_are_done_once_and_in_order(tmp_path: Path) -> None:
    kept, announced = Kept(tmp_path), list[object]()
    parts = [BenchPart((str(number),), partial(math.sqrt, number)) for number in (9, 4, 1)]
    with two_processes() as pool:
        results = finish(parts, kept, announced.append, pool)
        assert results == {("9",): 3.0, ("4",): 2.0, ("1",): 1.0}
        assert len(announced) == 3
        again = [BenchPart(part.key, partial(math.sqrt, -1)) for part in parts]
        assert finish(again, kept, announced.append, pool)[("9",)] == 3.0
        with pytest.raises(ValueError, match=r"domain|nonnegative"):
            finish([BenchPart(("new",), partial(math.sqrt, -1))], kept, announced.append, pool)


@pytest.fixture(scope="module")
def measured() -> Points:
    return read_data().points


def test_shapes_of_equal_cpus_that_take_equally_long_have_no_noise(measured: Points) -> None:
    alike = replace(measured, step_seconds=np.where(measured.ok, measured.where.cpus, np.nan))
    assert seen.noise(alike) == pytest.approx(0.0, abs=1e-12)


def test_noise_is_how_far_they_differ(measured: Points) -> None:
    off = np.random.default_rng(0).normal(0.0, 0.2, len(measured))
    assert seen.noise(replace(measured, step_seconds=measured.where.cpus * np.exp(off))) == pytest.approx(
        0.2, rel=0.1
    )
    assert 0.0 < seen.noise(measured) < 0.1
