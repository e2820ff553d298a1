from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays

from trimtab.predict.fewshot.case import Case, settings_table
from trimtab.predict.fewshot.predictor import (
    PredictiveSample,
    TimeMatrix,
    column_means,
    column_medians,
    distances,
)


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


levels = st.floats(0.0, 1.0)
cautions = st.floats(0.0, 1.0)


@st.composite
def spreads(draw: st.DrawFn, rows: int | None = None) -> PredictiveSample:
    shape = (rows or draw(st.integers(1, 4)), draw(st.integers(1, 12)))
    values = draw(arrays.arrays(float, shape, elements=st.floats(-5.0, 5.0)))
    weights = draw(arrays.arrays(float, shape, elements=st.floats(0.01, 1.0)))
    return PredictiveSample.of(values, weights)


@given(spreads())
def test_a_spread_is_in_order_and_its_weights_sum_to_one(spread: PredictiveSample) -> None:
    assert (np.diff(spread.log_seconds, axis=1) >= 0).all()
    np.testing.assert_allclose(spread.weights.sum(axis=1), 1.0)


def test_every_sample_keeps_its_weight_when_they_are_put_in_order() -> None:
    spread = PredictiveSample.of(np.array([[3.0, 1.0, 2.0]]), np.array([[2.0, 1.0, 5.0]]))
    assert spread.log_seconds.tolist() == [[1.0, 2.0, 3.0]]
    assert spread.weights.tolist() == [[0.125, 0.625, 0.25]]


@given(spreads(), levels, levels)
def test_quantiles_rise_and_stay_within_the_samples(
    spread: PredictiveSample, one: float, other: float
) -> None:
    low, high = spread.quantile(min(one, other)), spread.quantile(max(one, other))
    assert (low <= high + 1e-9).all()
    assert (spread.log_seconds[:, 0] <= low + 1e-9).all()
    assert (high <= spread.log_seconds[:, -1] + 1e-9).all()


def test_quantiles_of_many_equal_samples_are_those_of_the_sample() -> None:
    values = np.random.default_rng(0).normal(size=(3, 2000))
    spread = PredictiveSample.of(values, np.ones_like(values))
    for level in (0.05, 0.5, 0.95):
        np.testing.assert_allclose(spread.quantile(level), np.quantile(values, level, axis=1), atol=0.01)


@given(spreads(), levels)
def test_a_quantile_leaves_no_more_than_its_level_below(spread: PredictiveSample, level: float) -> None:
    below = spread.log_seconds < spread.quantile(level)[:, None] - 1e-9
    largest = np.where(below, spread.weights, 0.0).max(axis=1)
    assert (np.where(below, spread.weights, 0.0).sum(axis=1) - 0.5 * largest <= level + 1e-6).all()


def test_one_sample_is_every_quantile_and_every_answer() -> None:
    spread = PredictiveSample.of(np.array([[1.5], [-2.0]]), np.ones((2, 1)))
    for result in (spread.quantile(0.0), spread.quantile(0.9), spread.point(0.0), spread.point(1.0)):
        assert result.tolist() == [1.5, -2.0]


@given(st.integers(1, 3).flatmap(lambda rows: st.tuples(spreads(rows), spreads(rows))), levels, cautions)
def test_a_blend_with_all_the_share_in_one_is_that_one(
    both: tuple[PredictiveSample, PredictiveSample], level: float, caution: float
) -> None:
    for at, shares in enumerate(((1.0, 0.0), (0.0, 1.0))):
        blended = PredictiveSample.blend(both, shares)
        np.testing.assert_allclose(blended.quantile(level), both[at].quantile(level), atol=1e-9)
        np.testing.assert_allclose(blended.point(caution), both[at].point(caution), atol=1e-9)


@given(st.integers(1, 3).flatmap(lambda rows: st.tuples(spreads(rows), spreads(rows))), st.floats(0.01, 0.99))
def test_a_blend_has_all_samples_each_with_its_share(
    both: tuple[PredictiveSample, PredictiveSample], share: float
) -> None:
    blended = PredictiveSample.blend(both, (share, 1 - share))
    assert blended.log_seconds.shape[1] == sum(spread.log_seconds.shape[1] for spread in both)
    means = [(s.log_seconds * s.weights).sum(axis=1) for s in (blended, *both)]
    np.testing.assert_allclose(means[0], share * means[1] + (1 - share) * means[2], atol=1e-9)


def test_a_blend_takes_one_share_for_every_spread() -> None:
    spread = PredictiveSample.of(np.zeros((1, 2)), np.ones((1, 2)))
    with pytest.raises(ValueError, match="zip"):
        PredictiveSample.blend([spread, spread], [1.0])


@given(spreads())
def test_without_caution_the_answer_is_the_median(spread: PredictiveSample) -> None:
    np.testing.assert_allclose(spread.point(0.0), spread.quantile(0.5), atol=1e-9)


@given(spreads(), cautions, cautions)
def test_more_caution_never_answers_with_more(spread: PredictiveSample, one: float, other: float) -> None:
    assert (spread.point(max(one, other)) <= spread.point(min(one, other)) + 1e-9).all()


@given(spreads(rows=1))
def test_full_caution_answers_beside_the_sample_with_the_least_percentage_error(
    spread: PredictiveSample,
) -> None:
    values = np.unique(np.round(spread.log_seconds[0], 9))  # what is this close is one value
    errors = [float((spread.weights[0] * np.abs(np.expm1(p - spread.log_seconds[0]))).sum()) for p in values]
    best = int(np.argmin(errors))
    point = float(spread.point(1.0)[0])
    assert values[max(best - 1, 0)] - 1e-6 <= point <= values[min(best + 1, len(values) - 1)] + 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_full_caution_has_the_least_percentage_error_of_all_answers(seed: int) -> None:
    random = np.random.default_rng(seed)
    values = random.normal(size=300) * random.uniform(0.1, 1.0)
    weights = random.uniform(0.1, 1.0, 300)
    spread = PredictiveSample.of(values[None], weights[None])

    def expected_error(answer: float) -> float:
        return float((weights * np.abs(np.expm1(answer - values))).sum() / weights.sum())

    least = min(expected_error(answer) for answer in np.linspace(values.min(), values.max(), 2001))
    assert expected_error(float(spread.point(1.0)[0])) <= least * 1.001
    assert expected_error(float(spread.point(0.0)[0])) > least


@given(spreads(), st.floats(-4.0, 4.0), levels, cautions)
def test_all_times_a_factor_longer_make_every_answer_that_factor_longer(
    spread: PredictiveSample, log_factor: float, level: float, caution: float
) -> None:
    longer = PredictiveSample.of(spread.log_seconds + log_factor, spread.weights)
    np.testing.assert_allclose(longer.quantile(level), spread.quantile(level) + log_factor, atol=1e-6)
    np.testing.assert_allclose(longer.point(caution), spread.point(caution) + log_factor, atol=1e-6)


@given(spreads(), st.floats(0.1, 100.0), levels, cautions)
def test_only_the_ratios_of_the_weights_count(
    spread: PredictiveSample, factor: float, level: float, caution: float
) -> None:
    other = PredictiveSample.of(spread.log_seconds, factor * spread.weights)
    np.testing.assert_allclose(other.quantile(level), spread.quantile(level), atol=1e-6)
    np.testing.assert_allclose(other.point(caution), spread.point(caution), atol=1e-6)
