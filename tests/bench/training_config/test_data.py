"""What the bench says of the data itself."""

from dataclasses import replace

import numpy as np
import pytest
from trimtab_bench.training_config.data import noise

from trimtab.predict.jobs.training import Points, read_data


@pytest.fixture(scope="module")
def points() -> Points:
    return read_data().points


def test_shapes_of_equal_cpus_that_take_equally_long_have_no_noise(points: Points) -> None:
    alike = replace(points, step_seconds=np.where(points.ok, points.where.cpus, np.nan))
    assert noise(alike) == pytest.approx(0.0, abs=1e-12)


def test_noise_is_how_far_they_differ(points: Points) -> None:
    off = np.random.default_rng(0).normal(0.0, 0.2, len(points))
    assert noise(replace(points, step_seconds=points.where.cpus * np.exp(off))) == pytest.approx(0.2, rel=0.1)
    assert 0.0 < noise(points) < 0.1
