from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab.predict.fewshot import METRICS, SETTINGS, Case
from trimtab.predict.fewshot.features import Columns, Encoder
from trimtab.predict.fewshot.schema import metrics_table

MakeCase = Callable[..., Case]


def _encoder(make_case: MakeCase) -> tuple[Encoder, list[Case]]:
    cases = [
        make_case((8.0, 4.0, 2.0, 1.0)),
        make_case((80.0, 60.0, 50.0), metrics=metrics_table(3, cpu_user=[0.1, np.nan, 0.3], heap_used=1e6)),
    ]
    return Encoder.of(cases), cases


def test_what_varies_has_mean_zero_and_spread_one() -> None:
    values = np.random.default_rng(0).lognormal(3.0, 2.0, (1000, 2))
    encoded = Columns.of(values).encode(values)
    np.testing.assert_allclose(np.median(encoded, axis=0), 0.0, atol=0.5)
    assert encoded.shape == (1000, 2)
    assert np.abs(encoded).max() <= 4.0


def test_unknown_is_the_mean_and_a_column_says_so() -> None:
    columns = Columns.of(np.array([[1.0, 5.0], [np.nan, 7.0], [3.0, 9.0]]))
    encoded = columns.encode(np.array([[np.nan, 7.0], [2.0, 7.0]]))
    np.testing.assert_allclose(encoded, [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])


def test_a_column_that_was_constant_or_absent_in_training_is_left_out_whatever_it_is_later() -> None:
    columns = Columns.of(np.array([[1.0, 5.0, np.nan], [2.0, 5.0, np.nan]]))
    assert columns.width == 1
    np.testing.assert_array_equal(
        columns.encode(np.array([[1.0, 5.0, np.nan]])), columns.encode(np.array([[1.0, 1e300, -7.0]]))
    )


def test_the_widths_are_as_announced_for_any_number_of_episodes(make_case: MakeCase) -> None:
    encoder, _ = _encoder(make_case)
    settings = np.full((5, 2, 3, len(SETTINGS)), 2.0)
    metrics = np.full((5, 2, 3, len(METRICS)), np.nan)
    assert encoder.targets(settings).shape == (5, 2, 3, encoder.target_width)
    seen = encoder.observations(settings, np.zeros((5, 2, 3)), metrics)
    assert seen.shape == (5, 2, 3, encoder.observation_width)
    assert np.isfinite(seen).all()


def test_many_episodes_at_once_are_the_same_as_one_by_one(make_case: MakeCase) -> None:
    encoder, (first, second) = _encoder(make_case)
    rows = [0, 2]
    together = encoder.observations(
        np.stack([case.settings[rows] for case in (first, second)]),
        np.stack([np.log(case.seconds[rows]) for case in (first, second)]),
        np.stack([case.metrics[rows] for case in (first, second)]),
    )
    for case, seen in zip((first, second), together, strict=True):
        alone = encoder.observations(case.settings[rows], np.log(case.seconds[rows]), case.metrics[rows])
        np.testing.assert_array_equal(seen, alone)


def test_a_time_is_seen_among_all_and_among_the_known_of_its_application(make_case: MakeCase) -> None:
    encoder, (case, _) = _encoder(make_case)
    seen = encoder.observations(case.settings, np.log(case.seconds), case.metrics)
    assert (np.diff(seen[:, -2:], axis=0) < 0).all()
    assert seen[:, -1].sum() == pytest.approx(0.0)
    alone = encoder.observations(case.settings[:1], np.log(case.seconds[:1]), case.metrics[:1])
    assert alone[0, -1] == 0.0


@given(value=st.floats(-1e100, 1e100) | st.just(float("nan")))
def test_nothing_a_run_shows_makes_a_feature_infinite(make_case: MakeCase, value: float) -> None:
    encoder, (case, _) = _encoder(make_case)
    seen = encoder.observations(case.settings, np.log(case.seconds), np.full_like(case.metrics, value))
    assert np.isfinite(seen).all()


def test_cases_without_a_time_still_make_an_encoder(make_case: MakeCase) -> None:
    encoder = Encoder.of([make_case((np.nan, np.nan))])
    assert encoder.observation_width == 2
