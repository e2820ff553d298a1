"""Young's and Daly's rules: where they agree, and where only one holds."""

import math

import pytest

from trimtab.core import daly_interval, young_interval


def test_young_and_daly_agree_where_saving_is_cheap() -> None:
    assert young_interval(30.0, 1 / 86_400) == pytest.approx(math.sqrt(2 * 30 * 86_400))
    assert daly_interval(1.0, 1e-6) == pytest.approx(young_interval(1.0, 1e-6), rel=1e-3)


def test_without_interruptions_nothing_need_be_saved() -> None:
    assert young_interval(30.0, 0.0) == daly_interval(30.0, 0.0) == math.inf


def test_where_saving_outlasts_the_machine_the_interval_is_the_time_between_losses() -> None:
    assert daly_interval(400.0, 1 / 100.0) == 100.0


def test_columns_are_answered_by_columns() -> None:
    assert daly_interval([[10.0], [20.0]], [1e-5, 1e-4, 0.0]).shape == (2, 3)
