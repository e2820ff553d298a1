from collections.abc import Callable

import numpy as np

from trimtab.predict.fewshot import Case
from trimtab.predict.fewshot.matrix import TimeMatrix, column_means, column_medians, distances
from trimtab.predict.fewshot.schema import settings_table


def test_cases_line_up_by_configuration(make_case: Callable[..., Case]) -> None:
    matrix = TimeMatrix.of([make_case((8.0, 4.0)), make_case((9.0, 6.0, 3.0)).only([2, 1])])
    np.testing.assert_allclose(np.exp(matrix.log_seconds), [[8.0, 4.0, np.nan], [np.nan, 6.0, 3.0]])
    assert matrix.columns(make_case((1.0, 1.0, 1.0))).tolist() == [0, 1, 2]


def test_a_configuration_never_seen_takes_the_column_of_the_nearest(make_case: Callable[..., Case]) -> None:
    matrix = TimeMatrix.of([make_case((8.0, 4.0, 2.0))])
    elsewhere = make_case((1.0, 1.0), configurations=("first", "second")).only([1])
    assert matrix.columns(elsewhere).tolist() == [1]


def test_the_median_ratio_is_over_the_cases_that_have_both(make_case: Callable[..., Case]) -> None:
    matrix = TimeMatrix.of([make_case((8.0, 4.0)), make_case((6.0, 2.0)), make_case((5.0, 1.0, 1.0))])
    np.testing.assert_allclose(np.exp(matrix.median_log_ratio(0)), [1.0, 1 / 3, 0.2])
    only_second = TimeMatrix.of([make_case((8.0,)), make_case((6.0, 2.0)).only([1])])
    np.testing.assert_array_equal(only_second.median_log_ratio(0), [0.0, np.nan])


def test_a_doubling_a_switch_and_a_setting_one_lacks_are_each_one_apart() -> None:
    base = settings_table(1, memory_bytes=2.0**30, training=1.0)
    assert distances(base, base).item() == 0.0
    assert distances(base, settings_table(1, memory_bytes=2.0**31, training=1.0)).item() == 1.0
    assert distances(base, settings_table(1, memory_bytes=2.0**30, training=0.0)).item() == 1.0
    assert distances(base, settings_table(1, memory_bytes=2.0**30)).item() == 1.0


def test_a_column_without_a_value_stays_unknown() -> None:
    values = np.array([[1.0, np.nan], [4.0, np.nan], [7.0, np.nan]])
    np.testing.assert_array_equal(column_means(values), [4.0, np.nan])
    np.testing.assert_array_equal(column_medians(values), [4.0, np.nan])
