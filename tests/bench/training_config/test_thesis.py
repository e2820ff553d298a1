"""The thesis' networks, ordinary models and top configurations."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from trimtab_bench.training_config.thesis import (
    BASELINES,
    COST,
    TIME,
    TOP_COST,
    TOP_TIME,
    ForestClassifier,
    NetworkSettings,
    ThesisNetwork,
    area_under_curve,
    is_top,
    top_importance,
    top_labels,
)
from trimtab_bench.training_config.unseen import chance_of_top

from trimtab.core import BadInputError
from trimtab.predict.jobs.training_data import DataSet
from trimtab.predict.jobs.training_model import StepBelief, StepTimeModel


def test_at_most_five_and_within_half_more_of_the_best() -> None:
    assert is_top(np.array([1.0, 1.4, 1.6, np.nan])).tolist() == [True, True, False, False]
    assert is_top(np.full(9, 2.0)).sum() == 5
    assert not is_top(np.array([np.nan, np.nan])).any()


@given(st.lists(st.floats(0.1, 100.0), min_size=1, max_size=30), st.floats(0.01, 100.0))
def test_the_best_is_a_top_one_and_the_unit_does_not_matter(values: list[float], unit: float) -> None:
    numbers = np.array(values)
    top = is_top(numbers)
    assert top[numbers.argmin()]
    assert 1 <= top.sum() <= 5
    assert numbers[top].max() <= 1.5 * numbers.min()
    assert numbers[~top].min(initial=np.inf) >= min(numbers[top].max(), 1.5 * numbers.min())


def test_every_job_is_ranked_by_itself(data: DataSet) -> None:
    labels = top_labels(data.points, "cost")
    for job in data.points.jobs:
        mine = np.array(data.points.job) == job
        assert labels[mine].tolist() == is_top(data.points.of(job).cost).tolist()
    assert (labels & ~data.points.ok).sum() == 0


def test_the_area_counts_pairs_in_the_right_order() -> None:
    labels = np.array([True, False, False, True])
    assert area_under_curve(labels, np.array([4.0, 1.0, 2.0, 3.0])) == 1.0
    assert area_under_curve(labels, np.zeros(4)) == 0.5
    assert area_under_curve(labels, np.array([1.0, 2.0, 0.0, 3.0])) == 0.75
    with pytest.raises(BadInputError):
        area_under_curve(np.ones(3, dtype=bool), np.zeros(3))


pytest.importorskip("sklearn", reason="the baselines need scikit-learn")


@pytest.mark.parametrize("objective", ["cost", "time"])
def test_each_does_better_than_the_mean_on_what_it_has_seen(data: DataSet, objective: str) -> None:
    points = data.points.only(data.points.ok)
    measured = points.target(objective)
    for model in BASELINES[objective]:
        answers = model.answers(points, points, data.local, objective)
        assert np.mean((answers - measured) ** 2) < measured.var(), model.name


def test_the_classifier_ranks_what_it_has_seen(data: DataSet) -> None:
    chances = ForestClassifier().answers(data.points, data.points, data.local, "cost")
    labels = top_labels(data.points, "cost")
    assert chances[labels].min() > chances[~labels].mean()


pytest.importorskip("torch", reason="the networks need PyTorch")


@pytest.mark.parametrize("settings", [COST, TIME], ids=["cost", "time"])
def test_values_are_never_negative_and_get_nearer_with_training(
    data: DataSet, settings: NetworkSettings
) -> None:
    points = data.points.only(data.points.ok)
    measured = points.target(settings.objective)
    errors = []
    for epochs in (1, 40):
        network = ThesisNetwork(replace(settings, epochs=epochs, learning_rate=2e-3))
        answers = network.answers(points, points, data.local)
        assert (answers >= 0).all()
        errors.append(float(np.mean((answers - measured) ** 2)))
    assert errors[1] < 0.5 * errors[0]


@pytest.mark.parametrize("settings", [TOP_COST, TOP_TIME], ids=["cost", "time"])
def test_a_classifier_gives_log_odds_and_repeats_itself(data: DataSet, settings: NetworkSettings) -> None:
    network = ThesisNetwork(replace(settings, epochs=2), seed=3)
    others, asked = data.points.without("words"), data.points.of("words")
    first = network.answers(others, asked, data.local)
    assert np.isfinite(first).all()
    assert len(set(first.tolist())) > 1
    assert network.answers(others, asked, data.local).tolist() == first.tolist()
    again = ThesisNetwork(network.settings, seed=4).answers(others, asked, data.local)
    assert again.tolist() != first.tolist()


def test_hyper_parameters_are_the_thesis() -> None:
    assert (COST.loss, COST.learning_rate, COST.huber_delta) == ("huber", 1e-4, 1.0)
    assert (TIME.loss, TIME.learning_rate) == ("poisson", 8e-4)
    assert {each.batch for each in (COST, TIME, TOP_COST, TOP_TIME)} == {32}
    assert {each.epochs for each in (COST, TIME, TOP_COST, TOP_TIME)} == {400}
    assert {TOP_COST.learning_rate, TOP_TIME.learning_rate} == {1e-4}


def _belief(seconds: list[float], fits: list[float] | None = None) -> StepBelief:
    rows = len(seconds)
    return StepBelief(np.log(seconds), np.eye(rows) * 0.01, 1e-6, 1.6, np.array(fits or [1.0 - 1e-6] * rows))


def test_the_chance_of_a_top_place_follows_the_values() -> None:
    chance = chance_of_top(_belief([1.0, 1.01, 1.2, 3.0]), np.full(4, 100.0))
    assert chance[:2].min() > 0.9
    assert chance[3] < 0.05
    assert chance.tolist() == sorted(chance.tolist(), reverse=True)
    failing = chance_of_top(_belief([1.0, 1.01, 1.2, 3.0], fits=[0.01, 1, 1, 1]), np.full(4, 100.0))
    assert failing[0] < 0.1


def test_an_unseen_jobs_top_configurations_are_found(data: DataSet) -> None:
    asked = data.points.of("words")
    model = StepTimeModel.fitted(data.points.without("words"), data.local)
    belief = model.belief(data.job("words"), asked.where)
    chance = chance_of_top(belief, asked.where.steps(1e6) * asked.where.price_per_second)
    assert chance[is_top(asked.cost)].mean() > 3 * chance[~is_top(asked.cost)].mean()


def test_importance_for_top_configurations_sums_to_one(data: DataSet) -> None:
    found = top_importance(data.points, data.local, "cost")
    assert sum(found.features.values()) == pytest.approx(1.0)
    assert sum(found.groups.values()) == pytest.approx(1.0)
