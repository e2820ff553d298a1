from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.core import BadInputError
from trimtab.predict.fewshot.case import METRICS, Case, metrics_table, settings_table
from trimtab.predict.fewshot.curves import CurveModel, Curves, FittedCurves, fit_curves, squashed, unsquashed
from trimtab.predict.fewshot.rules import MeanOfKnown

PRIOR = 10.0  # applications
CPUS = np.arange(6.0)[:, None]


def _laws(cases: int, noise: float, seed: int = 0) -> np.ndarray:
    """Log seconds of applications with a level and a slope of their own around a common curve."""
    random = np.random.default_rng(seed)
    level, slope = random.normal(2.0, 1.0, (cases, 1)), random.normal(-0.4, 0.2, (cases, 1))
    return level + slope * CPUS.T + noise * random.normal(size=(cases, len(CPUS)))


@pytest.fixture(scope="module")
def times() -> np.ndarray:
    return _laws(30, 0.02)


@pytest.fixture(scope="module")
def model(times: np.ndarray) -> CurveModel:
    return fit_curves(times, CPUS, PRIOR)


def test_the_mean_curve_is_that_of_the_applications(times: np.ndarray, model: CurveModel) -> None:
    np.testing.assert_allclose(model.mean, times.mean(axis=0), atol=0.05)


def test_the_covariance_is_one(model: CurveModel) -> None:
    np.testing.assert_allclose(model.covariance, model.covariance.T, atol=1e-10)
    assert np.linalg.eigvalsh(model.covariance).min() > -1e-9
    assert model.noise > 0
    assert (model.curve_noise > 0).all()


def test_two_numbers_of_an_application_tell_the_others(model: CurveModel) -> None:
    """A level and a slope are all there is, so two times leave next to nothing open about the rest."""
    known = [0, 5]
    shown = model.covariance[:, known]
    gain = np.linalg.solve(shown[known] + model.noise * np.eye(2), shown.T).T
    left = np.diag(model.covariance - gain @ shown.T)
    assert (left < 0.01 * np.diag(model.covariance)).all()


def test_noisier_measurements_are_found_out() -> None:
    quiet, loud = (fit_curves(_laws(30, noise), CPUS, PRIOR).noise for noise in (0.02, 0.3))
    assert np.sqrt(loud) == pytest.approx(0.3, rel=0.4)
    assert quiet < loud / 4


def test_what_was_measured_is_kept_and_gaps_are_filled(times: np.ndarray, model: CurveModel) -> None:
    np.testing.assert_array_equal(model.curves, times)
    gappy = times.copy()
    random = np.random.default_rng(1)
    for row in range(20):
        gappy[row, random.choice(6, 3, replace=False)] = np.nan
    filled = fit_curves(gappy, CPUS, PRIOR).curves
    measured = ~np.isnan(gappy)
    np.testing.assert_array_equal(filled[measured], times[measured])
    assert np.abs(filled - times)[~measured].mean() < 0.1


def test_an_application_unlike_its_law_has_more_noise_of_its_own(times: np.ndarray) -> None:
    odd = times.copy()
    odd[0] += 0.5 * np.array([1, -1, 1, -1, 1, -1])
    noise = fit_curves(odd, CPUS, PRIOR).curve_noise
    assert noise[0] > 2 * noise[1:].max()


def test_one_application_and_one_configuration_are_enough() -> None:
    for shape in ((1, 6), (5, 1), (1, 1)):
        result = fit_curves(np.full(shape, 1.5), np.arange(float(shape[1]))[:, None], PRIOR)
        np.testing.assert_allclose(result.mean, 1.5, atol=1e-6)
        assert np.isfinite(result.covariance).all()
        assert (np.diag(result.covariance) > 0).all()


def test_a_configuration_nobody_measured_follows_its_settings(times: np.ndarray) -> None:
    gappy = times.copy()
    gappy[:, 3] = np.nan
    result = fit_curves(gappy, CPUS, PRIOR)
    assert np.abs(result.curves[:, 3] - times[:, 3]).mean() < 0.5 * times[:, 3].std()


def test_all_times_a_factor_longer_move_the_mean_alone(times: np.ndarray, model: CurveModel) -> None:
    longer = fit_curves(times + 3.0, CPUS, PRIOR)
    np.testing.assert_allclose(longer.mean, model.mean + 3.0, atol=1e-4)
    np.testing.assert_allclose(longer.covariance, model.covariance, atol=1e-4)


MakeCase = Callable[..., Case]
GRID = tuple(product((1.0, 2.0, 4.0), (4.0, 8.0, 16.0, 32.0)))  # CPUs, GiB
CPUS_CURVES, MEMORY = (np.array(column) for column in zip(*GRID, strict=True))
NAMES = tuple(f"{cpus:g} CPUs, {memory:g} GiB" for cpus, memory in GRID)
SETTINGS = settings_table(len(GRID), cpus=CPUS_CURVES, memory_bytes=MEMORY * 2.0**30)


def _machine_case(seconds: np.ndarray, **fields: Any) -> Case:
    given: dict[str, Any] = {
        "corpus": "made up",
        "application": "sort",
        "name": "sort-0",
        "environment": "cloud",
        "configurations": NAMES,
        "settings": SETTINGS,
        "metrics": metrics_table(len(GRID)),
        "seconds": seconds,
        "ok": ~np.isnan(seconds),
    }
    return Case(**{**given, **fields})


def _population(count: int, seed: int) -> list[Case]:
    """Applications with a level and a slope over CPUs and over memory of their own."""
    random = np.random.default_rng(seed)
    cases = []
    for i in range(count):
        level, by_cpus, by_memory = random.normal([3.0, -0.5, -0.15], [1.0, 0.2, 0.1])
        log_seconds = level + by_cpus * np.log2(CPUS_CURVES) + by_memory * np.log2(MEMORY)
        noisy = np.exp(log_seconds + random.normal(0.0, 0.02, len(GRID)))
        busy = metrics_table(len(GRID), cpu_user=-by_cpus, bytes_read=1e6 * np.exp(by_memory))
        cases.append(_machine_case(noisy, application=f"app{seed}-{i}", metrics=busy))
    return cases


@pytest.fixture(scope="module")
def fitted() -> FittedCurves:
    return Curves().fit(_population(24, seed=0))


@pytest.fixture(scope="module")
def unseen() -> list[Case]:
    return _population(8, seed=1)


def _error(predicted: np.ndarray, case: Case, known: list[int]) -> float:
    hidden = np.setdiff1d(np.arange(len(case)), known)
    return float(np.abs(predicted / case.seconds - 1.0)[hidden].mean())


@pytest.mark.parametrize(("known", "part"), [([0], 0.5), ([0, 11], 0.3), ([0, 3, 8], 0.15)], ids=str)
def test_applications_alike_tell_far_more_than_the_mean_of_the_known(
    fitted: FittedCurves, unseen: list[Case], known: list[int], part: float
) -> None:
    rows = np.array(known)
    own = np.mean([_error(fitted.predict(c.known_at(rows), rows), c, known) for c in unseen])
    plain = np.mean([_error(MeanOfKnown().predict(c.known_at(rows), rows), c, known) for c in unseen])
    assert own < part * plain


def test_the_spread_is_narrower_the_more_is_known(fitted: FittedCurves, unseen: list[Case]) -> None:
    widths = []
    for known in ([0], [0, 11], [0, 3, 8]):
        spread = fitted.spread(unseen[0], np.array(known))
        widths.append(float((spread.quantile(0.95) - spread.quantile(0.05)).mean()))
    assert widths[0] > widths[1] > widths[2] > 0


def test_a_known_time_is_about_what_is_answered_there(fitted: FittedCurves, unseen: list[Case]) -> None:
    known = np.array([0, 5, 11])
    for case in unseen:
        np.testing.assert_allclose(fitted.predict(case, known)[known], case.seconds[known], rtol=0.15)


def _up_and_down(**only_up: Any) -> list[Case]:
    """Half of the applications take twice as long on twice the CPUs, half of them half as long."""
    cases = []
    for i in range(12):
        up = i % 2 == 0
        log_seconds = 1.0 + 0.01 * i + (0.7 if up else -0.7) * (np.log2(CPUS_CURVES) - 1.0)
        fields = {"data": "text" if up else "images", **(only_up if up else {})}
        cases.append(_machine_case(np.exp(log_seconds), application=f"app{i}", **fields))
    return cases


MIDDLE = np.array([5])  # where those that rise and those that fall take as long


def _rise(fitted: FittedCurves, case: Case) -> float:
    """The log ratio of the times on four CPUs and on one."""
    spread = fitted.spread(case, MIDDLE)
    mean = (spread.log_seconds * spread.weights).sum(axis=1)
    return float(mean[-1] - mean[0])


def test_who_works_on_the_same_data_counts_for_more() -> None:
    fitted = Curves().fit(_up_and_down())
    case = _machine_case(np.full(len(GRID), np.exp(1.05)), application="new")
    rises = {data: _rise(fitted, replace(case, data=data)) for data in ("text", "images", "", "sound")}
    assert rises["text"] > 0.5
    assert rises["images"] < -0.5
    assert abs(rises[""]) < 0.3
    assert rises["sound"] == rises[""], "data that nobody works on tells nothing"


def test_who_shows_the_same_metrics_counts_for_more() -> None:
    busy, calm = (metrics_table(len(GRID), cpu_user=user, disk_busy=0.5) for user in (0.9, 0.1))
    training = [c if c.data == "text" else replace(c, metrics=calm) for c in _up_and_down(metrics=busy)]
    fitted = Curves().fit(training)
    case = _machine_case(np.full(len(GRID), np.exp(1.05)), application="new")
    assert _rise(fitted, replace(case, metrics=busy)) > 0.5
    assert _rise(fitted, replace(case, metrics=calm)) < -0.5
    assert abs(_rise(fitted, case)) < 0.3


def test_missing_metrics_are_fine_on_either_side(fitted: FittedCurves, unseen: list[Case]) -> None:
    known = np.array([0, 11])
    blind = Curves().fit([replace(c, metrics=metrics_table(12)) for c in _population(10, seed=0)])
    for case in unseen[:3]:
        blank = replace(case, metrics=metrics_table(12))
        for result in (fitted.predict(blank, known), blind.predict(case, known), blind.predict(blank, known)):
            assert _error(result, case, [0, 11]) < 0.3


def test_configurations_never_seen_are_answered_like_the_nearest(
    fitted: FittedCurves, unseen: list[Case]
) -> None:
    case, known = unseen[0], np.array([0, 11])
    larger = settings_table(12, cpus=CPUS_CURVES, memory_bytes=1.1 * MEMORY * 2.0**30)
    elsewhere = replace(case, configurations=tuple(f"new {name}" for name in NAMES), settings=larger)
    np.testing.assert_allclose(fitted.predict(elsewhere, known), fitted.predict(case, known))


def test_a_single_configuration_met_by_nobody_is_answered(fitted: FittedCurves, make_case: MakeCase) -> None:
    result = fitted.predict(make_case((5.0,)), np.array([0]))
    assert result[0] == pytest.approx(5.0, rel=0.2)


def test_one_training_case_lends_its_shape() -> None:
    only, new = _population(2, seed=3)
    scaled = replace(only, application=new.application, seconds=1.5 * only.seconds)
    result = Curves().fit([only]).predict(scaled.known_at(np.array([5])), np.array([5]))
    assert _error(result, scaled, [5]) < 0.3


def test_cases_measured_under_different_configurations_learn_together(unseen: list[Case]) -> None:
    random = np.random.default_rng(0)
    gappy = [case.only(np.sort(random.choice(12, 7, replace=False))) for case in _population(24, seed=0)]
    fitted, known = Curves().fit(gappy), [0, 3, 8]
    errors = [_error(fitted.predict(c.known_at(np.array(known)), np.array(known)), c, known) for c in unseen]
    assert np.mean(errors) < 0.12


@settings(max_examples=25)
@given(data=st.data())
def test_hidden_runs_are_never_read(fitted: FittedCurves, unseen: list[Case], data: st.DataObject) -> None:
    case = data.draw(st.sampled_from(unseen))
    known = np.array(sorted(data.draw(st.sets(st.integers(0, 11), min_size=1, max_size=3))))
    hidden = np.setdiff1d(np.arange(12), known)
    seconds, metrics, ok = case.seconds.copy(), case.metrics.copy(), case.ok.copy()
    times = st.lists(st.floats(1e-3, 1e4), min_size=len(hidden), max_size=len(hidden))
    seconds[hidden], metrics[hidden], ok[hidden] = data.draw(times), data.draw(st.floats(0.0, 1e6)), False
    result = fitted.predict(case, known)
    np.testing.assert_array_equal(
        result, fitted.predict(replace(case, seconds=seconds, metrics=metrics, ok=ok), known)
    )
    np.testing.assert_array_equal(result, fitted.predict(case.known_at(known), known))


@settings(max_examples=20)
@given(st.permutations(range(12)))
def test_the_order_of_the_configurations_makes_no_difference(
    fitted: FittedCurves, unseen: list[Case], order: list[int]
) -> None:
    case, known = unseen[0], np.array([2, 9])
    moved = np.array([order.index(row) for row in known])
    result = fitted.predict(case.only(order), moved)
    np.testing.assert_allclose(result, fitted.predict(case, known)[order], rtol=1e-9)


def test_rates_are_compared_by_ratio_and_fractions_by_difference() -> None:
    result = dict(zip(METRICS, squashed(np.full((1, len(METRICS)), 0.5))[0], strict=True))
    assert result["disk_busy"] == result["throttled"] == result["memory_fraction"] == 0.5
    assert result["bytes_read"] == result["memory_used"] == pytest.approx(np.log(1.5))


@pytest.mark.filterwarnings("error")
def test_squashed_metrics_are_restored_without_overflow_of_large_ratios() -> None:
    metrics = np.full((2, len(METRICS)), 4.6e6)
    np.testing.assert_allclose(unsquashed(squashed(metrics)), metrics)


@pytest.mark.filterwarnings("ignore:Mean of empty slice")
def test_a_training_case_without_any_time_teaches_nothing(unseen: list[Case]) -> None:
    empty = _machine_case(np.full(12, np.nan), application="failed everywhere")
    fitted = Curves().fit([*_population(10, seed=0), empty])
    assert _error(fitted.predict(unseen[0], np.array([0, 3, 8])), unseen[0], [0, 3, 8]) < 0.3


def test_it_needs_a_known_run_and_a_case_to_learn_from(fitted: FittedCurves, unseen: list[Case]) -> None:
    with pytest.raises(BadInputError, match="no configuration"):
        fitted.predict(unseen[0], np.array([], dtype=np.intp))
    with pytest.raises(BadInputError, match="curves"):
        Curves().fit([])
