"""A space of configurations: what it refuses, what its objective is, where its configurations are."""

import math
from dataclasses import replace

import numpy as np
import pytest
from searched_spaces import grid

from trimtab.core import BadInputError
from trimtab.predict.fewshot.case import settings_table
from trimtab.tune.space import Observation, Space, Trials


def test_a_space_without_a_configuration_is_refused() -> None:
    with pytest.raises(BadInputError, match="configuration"):
        Space((), settings_table(0), np.zeros(0))


def test_a_configuration_comes_once() -> None:
    with pytest.raises(BadInputError, match="one "):
        Space(("one", "two", "one"), settings_table(3), np.ones(3))


@pytest.mark.parametrize("price", [0.0, -1.0, np.nan, np.inf])
def test_a_price_that_is_none_is_refused(price: float) -> None:
    with pytest.raises(BadInputError, match="two costs"):
        Space(("one", "two"), settings_table(2), np.array([1.0, price]))


def test_columns_that_do_not_fit_are_refused() -> None:
    with pytest.raises(BadInputError, match="settings"):
        replace(grid(), settings=settings_table(2))


def test_objectives_are_seconds_dollars_and_their_product() -> None:
    space = grid()
    seconds = np.arange(1.0, len(space) + 1)
    assert space.values("time", seconds).tolist() == seconds.tolist()
    assert np.allclose(space.values("cost", seconds), seconds * space.price_per_second)
    assert np.allclose(space.values("balanced", seconds), seconds**2 * space.price_per_second)


def test_coordinates_are_scaled_and_only_those_that_differ() -> None:
    places = grid().coordinates()
    assert places.shape[1] == 4
    assert places.min() == 0
    assert places.max() == 1


def test_a_single_configuration_still_has_a_place() -> None:
    assert Space(("only",), settings_table(1, cpus=2.0), np.ones(1)).coordinates().tolist() == [[0.0]]


def test_an_unknown_setting_is_halfway() -> None:
    space = Space(("a", "b", "c"), settings_table(3, cpus=[1.0, 4.0, np.nan]), np.ones(3))
    assert space.coordinates()[:, 0].tolist() == [0.0, 1.0, 0.5]


@pytest.mark.parametrize(
    ("row", "seconds", "fidelity"),
    [(-1, 1.0, 1.0), (0, 0.0, 1.0), (0, math.nan, 1.0), (0, math.inf, 1.0), (0, 1.0, 0.0), (0, 1.0, 1.5)],
)
def test_what_cannot_be_is_refused(row: int, seconds: float, fidelity: float) -> None:
    with pytest.raises(BadInputError):
        Observation(row, seconds, fidelity=fidelity)


def test_a_failed_trial_needs_no_time() -> None:
    assert not Observation(0, math.nan, ok=False).ok


def test_a_trial_of_no_configuration_is_refused() -> None:
    with pytest.raises(BadInputError, match="row 12 "):
        Trials.of(grid(), "cost", [Observation(12, 1.0)])
