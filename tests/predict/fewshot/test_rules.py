from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.core import BadInputError
from trimtab.predict.fewshot import RULES, Case, Predictor, Trees, backtest, multicloud, protocol, serverless
from trimtab.predict.fewshot.rules import (
    Interpolation,
    MeanOfKnown,
    MedianRatio,
    NearestKnown,
    NearestWorkloads,
    ScaledProfile,
)

MakeCase = Callable[..., Case]
PREDICTORS: tuple[Predictor, ...] = (*RULES, Trees(rounds=3, smallest_leaf=1))
times = st.floats(1e-3, 1e4)


def _training(make_case: MakeCase) -> list[Case]:
    curves = ((8.0, 4.0, 2.0, 1.0), (8.0, 8.0, 8.0, 8.0), (100.0, 60.0, 30.0, 29.0), (0.3, 0.2, 0.2, 0.1))
    return [make_case(curve, application=f"app{i}") for i, curve in enumerate(curves)]


@pytest.mark.parametrize("predictor", PREDICTORS, ids=lambda p: p.name)
@settings(max_examples=25)
@given(data=st.data())
def test_nobody_sees_what_has_not_been_run(
    make_case: MakeCase, predictor: Predictor, data: st.DataObject
) -> None:
    known = np.array(sorted(data.draw(st.sets(st.integers(0, 3), min_size=1, max_size=3))))
    seconds = np.array(data.draw(st.lists(times, min_size=4, max_size=4)))
    hidden = np.setdiff1d(np.arange(4), known)
    case = make_case(seconds)
    changed, metrics, ok = seconds.copy(), case.metrics.copy(), case.ok.copy()
    changed[hidden] = data.draw(st.lists(times, min_size=len(hidden), max_size=len(hidden)))
    metrics[hidden] = 7.0
    ok[hidden] = False
    fitted = predictor.fit(_training(make_case))
    first = fitted.predict(case, known)
    assert first.shape == (4,)
    assert (first > 0).all()
    np.testing.assert_array_equal(first, fitted.predict(make_case(changed, metrics=metrics, ok=ok), known))
    np.testing.assert_array_equal(first, fitted.predict(case.seen_at(known), known))


@pytest.mark.parametrize("predictor", PREDICTORS, ids=lambda p: p.name)
def test_a_prediction_needs_a_known_time(make_case: MakeCase, predictor: Predictor) -> None:
    fitted = predictor.fit(_training(make_case))
    with pytest.raises(BadInputError, match="no configuration is known"):
        fitted.predict(make_case(), np.array([], dtype=np.intp))
    with pytest.raises(BadInputError, match="256MB: known, but without a time"):
        fitted.predict(make_case((1.0, float("nan"), 1.0)), np.array([0, 1]))


@pytest.mark.parametrize(
    "predictor", [MedianRatio(), ScaledProfile(), NearestWorkloads(), Trees()], ids=lambda p: p.name
)
def test_who_learns_needs_something_to_learn_from(predictor: Predictor) -> None:
    with pytest.raises(BadInputError, match="needs at least one case"):
        predictor.fit([])


def _predict(predictor: Predictor, training: Sequence[Case], case: Case, *known: int) -> list[float]:
    return predictor.fit(training).predict(case, np.array(known)).round(6).tolist()


def test_the_nearest_known_answers_and_of_two_as_near_the_smaller(make_case: MakeCase) -> None:
    assert _predict(NearestKnown(), [], make_case((8.0, 4.0, 2.0)), 0, 2) == [8.0, 8.0, 2.0]
    assert _predict(NearestKnown(), [], make_case((8.0, 4.0, 2.0)), 2, 0) == [8.0, 8.0, 2.0]


def test_interpolation_is_a_power_law_between_and_flat_outside(make_case: MakeCase) -> None:
    assert _predict(Interpolation(), [], make_case((8.0, 5.0, 2.0, 1.0)), 0, 2) == [8.0, 4.0, 2.0, 2.0]
    assert _predict(Interpolation(), [], make_case((8.0, 5.0, 2.0, 1.0)), 1) == [5.0] * 4


def test_the_mean_of_the_known_is_geometric(make_case: MakeCase) -> None:
    assert _predict(MeanOfKnown(), [], make_case((8.0, 5.0, 2.0)), 0, 2) == [4.0] * 3


def test_the_median_ratio_carries_a_time_over(make_case: MakeCase) -> None:
    training = [make_case((4.0, 2.0)), make_case((9.0, 3.0)), make_case((10.0, 1.0))]
    assert _predict(MedianRatio(), training, make_case((6.0, 5.0)), 0) == [6.0, 2.0]


def test_the_profile_of_the_others_is_scaled_to_the_known(make_case: MakeCase) -> None:
    training = [make_case((8.0, 2.0)), make_case((80.0, 20.0))]
    assert _predict(ScaledProfile(), training, make_case((12.0, 1.0)), 0) == [12.0, 3.0]


def test_the_nearest_workloads_are_those_with_similar_times(make_case: MakeCase) -> None:
    training = [make_case((10.0, 10.0)), make_case((11.0, 11.0)), make_case((1000.0, 10.0))]
    assert _predict(NearestWorkloads(2), training, make_case((12.0, 99.0)), 0) == [12.0, 12.0]


def test_what_nobody_measured_beside_the_known_takes_as_long_as_the_known(make_case: MakeCase) -> None:
    training = [make_case((4.0, 2.0)), make_case((4.0, 2.0, 1.0)).only([2])]
    for predictor in (MedianRatio(), NearestWorkloads()):
        assert _predict(predictor, training, make_case((6.0, 5.0, 4.0)), 0)[:2] == [6.0, 3.0]
    assert _predict(MedianRatio(), training, make_case((6.0, 5.0, 4.0)), 0)[2] == 6.0


def _percent(predictor: Predictor, folds: list[protocol.Fold]) -> list[float]:
    return [round(100 * scores.mean_ape, 1) for scores in backtest(predictor, folds).values()]


def test_the_rules_score_on_functions_what_is_published_for_them(shared_data: Path) -> None:
    folds = protocol.synthetic_to_real(serverless.read(shared_data))
    assert _percent(NearestKnown(), folds) == [93.2, 55.7, 48.0]
    assert _percent(Interpolation(), folds)[1:] == [43.1, 33.6]
    assert _percent(MedianRatio(), folds) == [93.6, 51.9, 43.4]


def test_the_rules_score_on_clouds_what_is_published_but_for_the_draw(shared_data: Path) -> None:
    folds = protocol.leave_application_out(multicloud.read(shared_data, completed_only=True))
    published = {
        MeanOfKnown(): (42.4, 37.5, 35.2),
        ScaledProfile(): (31.1, 28.6, 26.7),
        NearestWorkloads(): (29.2, 26.7, 24.5),
    }
    for predictor, figures in published.items():
        assert _percent(predictor, folds) == pytest.approx(figures, abs=2.5)
