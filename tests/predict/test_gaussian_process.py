import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.predict.gaussian_process import TrendKernel, condition, fit_sizes

SIZES = TrendKernel.sizes(0.5, 0.3, 0.8, 1.5, 2)


def _problem(seed: int, points: int, targets: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    known, targets = random.normal(size=(points, 2)), random.normal(size=(targets, 2))
    among = TrendKernel(known, known).covariance(SIZES)
    across = TrendKernel(targets, known).covariance(SIZES)
    return among, across, TrendKernel(targets, targets).covariance(SIZES), random.normal(size=points)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), points=st.integers(1, 8), targets=st.integers(1, 5))
def test_conditioning_is_the_textbook_formula(seed: int, points: int, targets: int) -> None:
    among, across, prior, values = _problem(seed, points, targets)
    noise = np.linspace(0.1, 0.4, points)
    inverse = np.linalg.inv(among + np.diag(noise))
    result = condition(among, values, noise)
    np.testing.assert_allclose(result.mean(across), across @ inverse @ values, atol=1e-9)
    np.testing.assert_allclose(
        result.covariance(prior, across), prior - across @ inverse @ across.T, atol=1e-9
    )
    np.testing.assert_allclose(
        result.variance(np.diag(prior), across), np.diag(prior - across @ inverse @ across.T), atol=1e-9
    )
    sign, log_determinant = np.linalg.slogdet(2 * np.pi * (among + np.diag(noise)))
    assert sign == 1
    assert result.log_likelihood == pytest.approx(-0.5 * (log_determinant + values @ inverse @ values))


def test_leave_one_out_in_closed_form_equals_refits() -> None:
    among, _, _, values = _problem(3, 6, 1)
    residuals, variances = condition(among, values, 0.2).leave_one_out
    for left_out in range(6):
        rest = np.delete(np.arange(6), left_out)
        refit = condition(among[np.ix_(rest, rest)], values[rest], 0.2)
        across = among[[left_out]][:, rest]
        assert residuals[left_out] == pytest.approx(values[left_out] - refit.mean(across)[0])
        own = among[left_out, left_out] + 0.2
        assert variances[left_out] == pytest.approx(refit.variance(np.array([own]), across)[0])


def test_batches_are_conditioned_one_by_one() -> None:
    among, across, prior, _ = _problem(5, 4, 3)
    noise, values = np.array([[0.1], [0.5]]), np.arange(8.0).reshape(2, 4)
    together = condition(np.stack([among, 2 * among]), values, noise)
    for batch, factor in enumerate((1.0, 2.0)):
        alone = condition(factor * among, values[batch], noise[batch, 0])
        np.testing.assert_allclose(together.mean(across)[batch], alone.mean(across))
        np.testing.assert_allclose(
            together.variance(np.diag(prior), across)[batch], alone.variance(np.diag(prior), across)
        )
        assert together.log_likelihood[batch] == pytest.approx(alone.log_likelihood)


def test_one_covariance_serves_many_vectors_of_values() -> None:
    among, across, _, _ = _problem(6, 4, 3)
    values = np.arange(12.0).reshape(3, 4)
    many = condition(among, values, 0.3)
    for row, item in enumerate(values):
        alone = condition(among, item, 0.3)
        np.testing.assert_allclose(many.mean(across)[row], alone.mean(across))
        assert many.log_likelihood[row] == pytest.approx(alone.log_likelihood)


def test_without_values_the_prior_stays() -> None:
    nothing = condition(np.zeros((0, 0)), [], [])
    np.testing.assert_array_equal(nothing.mean(np.zeros((3, 0))), np.zeros(3))
    np.testing.assert_array_equal(nothing.covariance(np.eye(3), np.zeros((3, 0))), np.eye(3))
    assert nothing.log_likelihood == 0.0


def test_a_singular_covariance_is_mended_and_an_indefinite_one_refused() -> None:
    twice = condition(np.ones((2, 2)), [1.0, 1.0])
    assert twice.mean(np.ones((1, 2)))[0] == pytest.approx(1.0, abs=1e-4)
    with pytest.raises(np.linalg.LinAlgError, match="indefinite"):
        condition(np.array([[1.0, 2.0], [2.0, 1.0]]), [1.0, 1.0])


def test_gradients_of_likelihood_and_kernel_are_those_of_finite_differences() -> None:
    random = np.random.default_rng(0)
    places, values = random.normal(size=(7, 2)), random.normal(size=7)
    kernel = TrendKernel(places, places)

    def loss(sizes: np.ndarray) -> tuple[float, np.ndarray]:
        result = condition(kernel.covariance(sizes), values, 0.1)
        return -float(result.log_likelihood), kernel.gradient(sizes, result.loss_gradient)

    _, gradient = loss(SIZES)
    for place in range(len(SIZES)):
        step = np.zeros(len(SIZES))
        step[place] = 1e-6
        assert gradient[place] == pytest.approx(
            (loss(SIZES + step)[0] - loss(SIZES - step)[0]) / 2e-6, abs=1e-5
        )
    fitted = fit_sizes(loss, SIZES, 20, (-9.0, 4.0))
    assert loss(fitted)[0] < loss(SIZES)[0]
