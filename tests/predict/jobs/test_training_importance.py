"""Which features estimates rest on."""

import numpy as np
import pytest

from trimtab.predict.jobs.training_data import DataSet
from trimtab.predict.jobs.training_importance import (
    GROUPS,
    MOMENTS,
    FeatureEncoder,
    forest_importance,
    model_importance,
    resampled,
)
from trimtab.predict.jobs.training_model import SHARED


def test_training_rows_have_no_mean_and_one_deviation(data: DataSet) -> None:
    training = data.points.without("pictures")
    features = FeatureEncoder.of(training, data.local).encode(training, data.local)
    assert features.flat.shape == (len(training), len(features.flat_names))
    assert len(features.groups) == len(features.flat_names)
    assert features.static.mean(axis=0) == pytest.approx(0.0, abs=1e-9)
    deviation = features.static.std(axis=0)
    assert np.all((np.abs(deviation - 1) < 1e-9) | (deviation < 1e-9))
    assert set(features.groups) == set(GROUPS)


def test_what_training_did_not_have_is_none_of_what_it_had(data: DataSet) -> None:
    training = data.points.only([shape != "large" for shape in data.points.where.shape])
    encoder = FeatureEncoder.of(training.without("dense").without("pictures"), data.local)
    assert encoder.optimizers == ("SGD",)
    assert "shape large" not in encoder.encode(data.points, data.local).names
    assert np.isfinite(encoder.encode(data.points, data.local).flat).all()


def test_the_asked_rows_have_no_part_in_the_encoding(data: DataSet) -> None:
    training = data.points.without("speech")
    encoder = FeatureEncoder.of(training, data.local)
    alone = encoder.encode(data.points.of("speech"), data.local).flat
    among = encoder.encode(data.points, data.local).flat
    assert alone == pytest.approx(among[np.array(data.points.job) == "speech"])


def test_series_become_so_many_moments() -> None:
    assert resampled(np.arange(20.0)) == pytest.approx(np.arange(0.5, 20.0, 2.0))
    assert resampled(np.array([1.0, 3.0]), 3) == pytest.approx([1.0, 2.0, 3.0])
    assert len(resampled(np.ones(1))) == MOMENTS


pytest.importorskip("sklearn", reason="the forest needs scikit-learn")


def test_parts_of_the_forest_sum_to_one_by_feature_and_by_group(data: DataSet) -> None:
    result = forest_importance(data.points, data.local, "cost")
    assert sum(result.features.values()) == pytest.approx(1.0)
    assert sum(result.groups.values()) == pytest.approx(1.0)
    assert tuple(result.groups) == GROUPS
    assert list(result.features.values()) == sorted(result.features.values(), reverse=True)
    assert result.groups["infrastructure"] > result.groups["local memory"]


def test_the_model_names_every_coordinate(data: DataSet) -> None:
    assert set(model_importance(data.points, data.local).features) == set(SHARED)
