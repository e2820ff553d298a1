import numpy as np
import pytest

from trimtab.predict.fewshot.covariance import CurveModel, fit_curves

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
    seen = model.covariance[:, known]
    gain = np.linalg.solve(seen[known] + model.noise * np.eye(2), seen.T).T
    left = np.diag(model.covariance - gain @ seen.T)
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
        found = fit_curves(np.full(shape, 1.5), np.arange(float(shape[1]))[:, None], PRIOR)
        np.testing.assert_allclose(found.mean, 1.5, atol=1e-6)
        assert np.isfinite(found.covariance).all()
        assert (np.diag(found.covariance) > 0).all()


def test_a_configuration_nobody_measured_follows_its_settings(times: np.ndarray) -> None:
    gappy = times.copy()
    gappy[:, 3] = np.nan
    found = fit_curves(gappy, CPUS, PRIOR)
    assert np.abs(found.curves[:, 3] - times[:, 3]).mean() < 0.5 * times[:, 3].std()


def test_all_times_a_factor_longer_move_the_mean_alone(times: np.ndarray, model: CurveModel) -> None:
    longer = fit_curves(times + 3.0, CPUS, PRIOR)
    np.testing.assert_allclose(longer.mean, model.mean + 3.0, atol=1e-4)
    np.testing.assert_allclose(longer.covariance, model.covariance, atol=1e-4)
