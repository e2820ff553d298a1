"""The thesis' networks: they learn, repeat themselves by seed, and answer in the right unit."""

from dataclasses import replace

import numpy as np
import pytest

from trimtab.predict.jobs.training import (
    COST,
    TIME,
    TOP_COST,
    TOP_TIME,
    DataSet,
    NetworkSettings,
    ThesisNetwork,
)

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
