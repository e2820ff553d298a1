"""Ordinary models on the thesis' features."""

import numpy as np
import pytest

from trimtab.predict.jobs.training import BASELINES, DataSet, ForestClassifier, top_labels

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
