import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from trimtab_bench import fewshot_protocol as protocol
from trimtab_bench.fewshot_protocol import backtest, read_serverless
from trimtab_bench.fewshot_trees import Trees

from trimtab.core import BadInputError
from trimtab.predict.fewshot.blend import RULES
from trimtab.predict.fewshot.case import Case, metrics_table, settings_table
from trimtab.predict.fewshot.datasets import read_multicloud
from trimtab.predict.fewshot.predictor import Predictor
from trimtab.predict.fewshot.rules import (
    MEDIAN_RATIO,
    NEAREST_WORKLOADS,
    SCALED_PROFILE,
    Interpolation,
    MatrixRule,
    MeanOfKnown,
    NearestKnown,
    Stretch,
    cpu_share,
    nearest_workloads,
)

MakeCase = Callable[..., Case]
PREDICTORS: tuple[Predictor, ...] = (*RULES.values(), Trees(rounds=3, smallest_leaf=1))
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
    np.testing.assert_array_equal(first, fitted.predict(case.known_at(known), known))


@pytest.mark.parametrize("predictor", PREDICTORS, ids=lambda p: p.name)
def test_a_prediction_needs_a_known_time(make_case: MakeCase, predictor: Predictor) -> None:
    fitted = predictor.fit(_training(make_case))
    with pytest.raises(BadInputError, match="no configuration"):
        fitted.predict(make_case(), np.array([], dtype=np.intp))
    with pytest.raises(BadInputError, match="256MB"):
        fitted.predict(make_case((1.0, float("nan"), 1.0)), np.array([0, 1]))


@pytest.mark.parametrize(
    "predictor", [MEDIAN_RATIO, SCALED_PROFILE, NEAREST_WORKLOADS, Trees()], ids=lambda p: p.name
)
def test_who_learns_needs_something_to_learn_from(predictor: Predictor) -> None:
    with pytest.raises(BadInputError, match=re.escape(predictor.name)):
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
    assert _predict(MEDIAN_RATIO, training, make_case((6.0, 5.0)), 0) == [6.0, 2.0]


def test_the_profile_of_the_others_is_scaled_to_the_known(make_case: MakeCase) -> None:
    training = [make_case((8.0, 2.0)), make_case((80.0, 20.0))]
    assert _predict(SCALED_PROFILE, training, make_case((12.0, 1.0)), 0) == [12.0, 3.0]


def test_the_nearest_workloads_are_those_with_similar_times(make_case: MakeCase) -> None:
    training = [make_case((10.0, 10.0)), make_case((11.0, 11.0)), make_case((1000.0, 10.0))]
    assert _predict(
        MatrixRule("2", partial(nearest_workloads, neighbours=2)), training, make_case((12.0, 99.0)), 0
    ) == [12.0, 12.0]


def test_what_nobody_measured_beside_the_known_takes_as_long_as_the_known(make_case: MakeCase) -> None:
    training = [make_case((4.0, 2.0)), make_case((4.0, 2.0, 1.0)).only([2])]
    for predictor in (MEDIAN_RATIO, NEAREST_WORKLOADS):
        assert _predict(predictor, training, make_case((6.0, 5.0, 4.0)), 0)[:2] == [6.0, 3.0]
    assert _predict(MEDIAN_RATIO, training, make_case((6.0, 5.0, 4.0)), 0)[2] == 6.0


def _percent(predictor: Predictor, folds: list[protocol.Fold]) -> list[float]:
    return [round(100 * scores.mean_ape, 1) for scores in backtest(predictor, folds).values()]


def test_the_rules_score_on_functions_what_is_published_for_them(shared_data: Path) -> None:
    folds = protocol.synthetic_to_real(read_serverless(shared_data))
    assert _percent(NearestKnown(), folds) == [93.2, 55.7, 48.0]
    assert _percent(Interpolation(), folds)[1:] == [43.1, 33.6]
    assert _percent(MEDIAN_RATIO, folds) == [93.6, 51.9, 43.4]


def test_the_rules_score_on_clouds_what_is_published_but_for_the_draw(shared_data: Path) -> None:
    folds = protocol.leave_application_out(read_multicloud(shared_data, completed_only=True))
    published = {
        MeanOfKnown(): (42.4, 37.5, 35.2),
        SCALED_PROFILE: (31.1, 28.6, 26.7),
        NEAREST_WORKLOADS: (29.2, 26.7, 24.5),
    }
    for predictor, figures in published.items():
        assert _percent(predictor, folds) == pytest.approx(figures, abs=2.5)


SHARES = np.array([0.07, 0.14, 0.29, 0.58, 1.2])


def _settings(cpus: object) -> np.ndarray:
    return settings_table(5, memory_bytes=2.0 ** np.arange(27, 32), cpus=cpus)


def _lawful(make_case: MakeCase, idle: float, work: float, **fields: object) -> Case:
    """Waits for `idle` seconds and computes for `work` seconds of a whole CPU."""
    seconds = idle + work / np.minimum(SHARES, 1.0)
    metrics = metrics_table(5, cpu_user=0.75 * work / seconds, cpu_system=0.25 * work / seconds)
    given: dict[str, object] = {"settings": _settings(SHARES), "metrics": metrics}
    return make_case(seconds, **{**given, **fields})


@given(st.floats(0.0, 100.0), st.floats(1e-3, 100.0), st.integers(0, 4))
def test_one_run_tells_all_where_idle_time_stays_and_work_stretches(
    make_case: MakeCase, idle: float, work: float, known: int
) -> None:
    case = _lawful(make_case, idle, work)
    result = Stretch().fit([]).predict(case.known_at(np.array([known])), np.array([known]))
    np.testing.assert_allclose(result, case.seconds, rtol=1e-6)


@given(
    st.floats(1e-3, 100.0),
    st.floats(1e-3, 100.0),
    st.sets(st.integers(0, 4), min_size=2, max_size=3).map(sorted),
)
def test_from_two_runs_on_no_metric_is_needed(
    make_case: MakeCase, idle: float, work: float, known: list[int]
) -> None:
    case = _lawful(make_case, idle, work, metrics=metrics_table(5))
    result = Stretch().predict(case.known_at(np.array(known)), np.array(known))
    np.testing.assert_allclose(result, case.seconds, rtol=1e-6)


def test_without_a_cpu_metric_all_of_one_run_is_taken_for_work(make_case: MakeCase) -> None:
    case = _lawful(make_case, 3.0, 1.0, metrics=metrics_table(5))
    result = Stretch().predict(case, np.array([2]))
    np.testing.assert_allclose(result, case.seconds[2] * 0.29 / np.minimum(SHARES, 1.0))


def test_either_of_the_two_cpu_metrics_will_do(make_case: MakeCase) -> None:
    seconds = 3.0 + 1.0 / np.minimum(SHARES, 1.0)
    for metric in ("cpu_user", "cpu_system"):
        case = make_case(
            seconds, settings=_settings(SHARES), metrics=metrics_table(5, **{metric: 1.0 / seconds})
        )
        np.testing.assert_allclose(Stretch().predict(case, np.array([1])), seconds)


def test_more_cpu_time_than_the_share_allows_leaves_no_idle_time(make_case: MakeCase) -> None:
    case = _lawful(make_case, 0.0, 1.0, metrics=metrics_table(5, cpu_user=3.0))
    np.testing.assert_allclose(Stretch().predict(case, np.array([0])), case.seconds)


def test_runs_that_fit_no_law_still_get_positive_times_that_never_rise_with_the_share(
    make_case: MakeCase,
) -> None:
    case = make_case((1.0, 2.0, 3.0, 4.0, 5.0), settings=_settings(SHARES))
    result = Stretch().predict(case, np.array([0, 2, 4]))
    assert (result > 0).all()
    assert (np.diff(result) <= 1e-9).all()


@pytest.mark.parametrize("cpus", [0.5, np.array([1.0, 1.0, 2.0, 4.0, 8.0]), np.nan], ids=str)
@pytest.mark.parametrize("known", [[1], [0, 3]], ids=str)
def test_where_no_thread_gets_more_cpu_the_line_through_the_known_is_taken(
    make_case: MakeCase, cpus: object, known: list[int]
) -> None:
    case = make_case((8.0, 5.0, 4.0, 2.0, 1.0), settings=_settings(cpus))
    np.testing.assert_allclose(
        Stretch().predict(case, np.array(known)), Interpolation().predict(case, np.array(known))
    )


def test_a_thread_has_one_cpu_at_most(make_case: MakeCase) -> None:
    case = make_case((1.0,) * 5, settings=_settings(SHARES))
    assert cpu_share(case).tolist() == [0.07, 0.14, 0.29, 0.58, 1.0]


@given(st.data())
def test_hidden_runs_are_never_read(make_case: MakeCase, data: st.DataObject) -> None:
    known = np.array(sorted(data.draw(st.sets(st.integers(0, 4), min_size=1, max_size=4))))
    times = np.array(data.draw(st.lists(st.floats(1e-3, 1e3), min_size=5, max_size=5)))
    case = make_case(times, settings=_settings(SHARES))
    hidden = np.setdiff1d(np.arange(5), known)
    changed, metrics = times.copy(), case.metrics.copy()
    changed[hidden], metrics[hidden] = 77.0, 0.9
    result = Stretch().predict(case, known)
    other = make_case(changed, settings=case.settings, metrics=metrics)
    np.testing.assert_array_equal(result, Stretch().predict(other, known))
    np.testing.assert_array_equal(result, Stretch().predict(case.known_at(known), known))


def test_the_order_of_the_known_makes_no_difference(make_case: MakeCase) -> None:
    cpus = np.array([0.25, 0.5, 1.0, 2.0, 4.0])
    case = make_case((8.0, 5.0, 3.0, 2.5, 2.0), settings=_settings(cpus))
    one, other = (Stretch().predict(case, np.array(known)) for known in ([3, 4], [4, 3]))
    np.testing.assert_allclose(one, other)


def test_a_prediction_needs_a_known_run(make_case: MakeCase) -> None:
    with pytest.raises(BadInputError, match="no configuration"):
        Stretch().predict(make_case(), np.array([], dtype=np.intp))


def _swapping(make_case: MakeCase, cpus: object, **metrics: float) -> Case:
    """Ten seconds in the second size, one of them on the CPU, and nothing but swapping otherwise."""
    shown = {"cpu_user": 0.1, "context_switches": 5000.0, "memory_fraction": 0.9, **metrics}
    return make_case([10.0] * 5, settings=_settings(cpus), metrics=metrics_table(5, **shown))


@pytest.mark.parametrize("cpus", [1.0, np.array([1.0, 1.0, 1.0, 2.0, 0.5])], ids=["same", "different"])
def test_where_a_run_swapped_more_memory_leaves_only_its_work(make_case: MakeCase, cpus: object) -> None:
    result = Stretch().predict(_swapping(make_case, cpus), np.array([1]))
    work = 1.0 / np.minimum(np.broadcast_to(cpus, 5), 1.0)
    np.testing.assert_allclose(result, [10.0, 10.0, *work[2:]])


@pytest.mark.parametrize(
    "unlike",
    [{"context_switches": 100.0}, {"memory_fraction": 0.01}, {"cpu_user": 0.6}, {"memory_fraction": np.nan}],
    ids=str,
)
def test_waiting_for_others_stays_however_much_memory_there_is(
    make_case: MakeCase, unlike: dict[str, float]
) -> None:
    result = Stretch().predict(_swapping(make_case, 1.0, **unlike), np.array([1]))
    np.testing.assert_allclose(result, 10.0)


def test_of_several_known_runs_the_largest_says_whether_more_memory_helps(
    make_case: MakeCase,
) -> None:
    case = _swapping(make_case, 1.0)
    np.testing.assert_allclose(Stretch().predict(case, np.array([0, 2])), [10.0, 10.0, 10.0, 1.0, 1.0])
