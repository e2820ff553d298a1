"""How the times of an application under two configurations go together, learned from other applications.

The log times of an application are taken as a draw from a Gaussian process over the configurations. Its
covariance is first a kernel on their settings, fitted by marginal likelihood, then moved towards what the
training applications show on the configurations they share.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.predict.fewshot.schema import Array

# Where fitting starts, and what it is pulled back to by a log-normal prior of width one.
_SLOPE, _LENGTH, _WIGGLE, _NOISE, _LEAST_LEVEL = 0.1, 3.0, 0.15, 0.12, 0.3
_ITERATIONS = 15
_SWEEPS = 10
_EM_STEPS = 8
_MEAN_STRENGTH = 2.0  # as many pseudo-applications speak for the first mean
_NOISE_STRENGTH = 10.0  # and so many pseudo-observations for the common noise


@dataclass(frozen=True, slots=True, eq=False)
class CurveModel:
    """Mean and covariance of log times over the configurations, and the training applications' own curves."""

    mean: Array  # (configurations,)
    covariance: Array  # (configurations, configurations)
    noise: float  # variance of one measurement
    curves: Array  # (cases, configurations), gaps filled
    curve_noise: Array  # (cases,)


def fit_curves(log_seconds: Array, coordinates: Array, prior_strength: float) -> CurveModel:
    """From the cases' log times, NaN where not measured, and the coordinates of the configurations."""
    measured = [np.flatnonzero(~np.isnan(row)) for row in log_seconds]
    mean, level = _two_way_mean(log_seconds)
    kernel, noise = _fit_kernel(log_seconds, measured, mean, level, coordinates)
    mean, covariance = _learn_covariance(log_seconds, measured, mean, kernel, noise, prior_strength)
    curves, curve_noise = _fill_gaps(log_seconds, measured, mean, covariance, noise)
    return CurveModel(mean, covariance, noise, curves, curve_noise)


def _two_way_mean(log_seconds: Array) -> tuple[Array, Array]:
    """The mean curve after taking out each case's level, and those levels."""
    count = (~np.isnan(log_seconds)).sum(axis=0)
    level = np.nanmean(log_seconds, axis=1)
    curve = np.zeros(log_seconds.shape[1])
    for _ in range(_SWEEPS):
        curve = np.nansum(log_seconds - level[:, None], axis=0) / (count + 1)
        curve -= curve.mean()
        level = np.nanmean(log_seconds - curve, axis=1)
    return curve + level.mean(), level


def _fit_kernel(
    log_seconds: Array, measured: Sequence[NDArray[np.intp]], mean: Array, level: Array, coordinates: Array
) -> tuple[Array, float]:
    """A level, a slope in every coordinate and a smooth wiggle; their sizes by marginal likelihood."""
    from scipy.linalg import cho_factor, cho_solve
    from scipy.optimize import minimize

    deviation = coordinates.std(axis=0)
    places = (coordinates - coordinates.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    width = places.shape[1]
    apart = ((places[:, None] - places[None]) ** 2).transpose(2, 0, 1)
    products = np.einsum("ip,jp->pij", places, places)
    start = np.log(
        [*[_SLOPE] * width, *[_LENGTH] * width, _WIGGLE, _NOISE, max(float(level.std()), _LEAST_LEVEL)]
    )

    def parts(logs: Array) -> tuple[Array, Array, float]:
        wiggle = np.exp(
            2 * logs[2 * width] - 0.5 * np.tensordot(np.exp(-2 * logs[width : 2 * width]), apart, 1)
        )
        slopes = np.tensordot(np.exp(2 * logs[:width]), products, 1)
        return wiggle, slopes, float(np.exp(2 * logs[2 * width + 2]))

    def loss(logs: Array) -> tuple[float, Array]:
        logs = np.clip(logs, -8, 4)
        wiggle, slopes, common = parts(logs)
        noise = np.exp(2 * logs[2 * width + 1])
        kernel = wiggle + slopes + common
        by_kernel, by_noise, value = np.zeros_like(kernel), 0.0, 0.0
        for rows, times in zip(measured, log_seconds, strict=True):
            factor = cho_factor(kernel[np.ix_(rows, rows)] + (noise + 1e-8) * np.eye(len(rows)), lower=True)
            inverse = cho_solve(factor, np.eye(len(rows)))
            rest = times[rows] - mean[rows]
            pull = inverse @ rest
            value += 0.5 * rest @ pull + np.log(np.diag(factor[0])).sum()
            slope = 0.5 * (inverse - np.outer(pull, pull))
            by_kernel[np.ix_(rows, rows)] += slope
            by_noise += np.trace(slope)
        gradient = np.empty_like(logs)
        gradient[:width] = 2 * np.exp(2 * logs[:width]) * np.tensordot(products, by_kernel, 2)
        gradient[width : 2 * width] = np.exp(-2 * logs[width : 2 * width]) * np.tensordot(
            apart, by_kernel * wiggle, 2
        )
        gradient[2 * width :] = (
            2 * (by_kernel * wiggle).sum(),
            2 * noise * by_noise,
            2 * common * by_kernel.sum(),
        )
        return value + 0.5 * ((logs - start) ** 2).sum(), gradient + (logs - start)

    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": _ITERATIONS}).x
    found = np.clip(found, -8, 4)
    wiggle, slopes, common = parts(found)
    return wiggle + slopes + common, float(np.exp(2 * found[2 * width + 1]))


def _learn_covariance(
    log_seconds: Array,
    measured: Sequence[NDArray[np.intp]],
    first_mean: Array,
    kernel: Array,
    noise: float,
    prior_strength: float,
) -> tuple[Array, Array]:
    """Expectation-maximisation for a Gaussian with gaps; the kernel counts as `prior_strength` cases."""
    mean, covariance = first_mean, kernel
    for _ in range(_EM_STEPS):
        expected = np.empty_like(log_seconds)
        scatter = prior_strength * kernel
        for case, (rows, times) in enumerate(zip(measured, log_seconds, strict=True)):
            seen = covariance[:, rows]
            gain = np.linalg.solve(seen[rows] + noise * np.eye(len(rows)), seen.T).T
            expected[case] = mean + gain @ (times[rows] - mean[rows])
            scatter = scatter + covariance - gain @ seen.T
        mean = (expected.sum(axis=0) + _MEAN_STRENGTH * first_mean) / (len(expected) + _MEAN_STRENGTH)
        rest = expected - mean
        covariance = (scatter + rest.T @ rest) / (len(expected) + prior_strength)
    return mean, covariance


def _fill_gaps(
    log_seconds: Array, measured: Sequence[NDArray[np.intp]], mean: Array, covariance: Array, noise: float
) -> tuple[Array, Array]:
    """Every case's curve with its gaps filled, and its own noise from its leave-one-out residuals."""
    curves, own_noise = np.empty_like(log_seconds), np.empty(len(log_seconds))
    for case, (rows, times) in enumerate(zip(measured, log_seconds, strict=True)):
        inverse = np.linalg.inv(covariance[np.ix_(rows, rows)] + noise * np.eye(len(rows)))
        pull = inverse @ (times[rows] - mean[rows])
        surprise = float((pull**2 / np.diag(inverse)).sum())
        own_noise[case] = noise * (surprise + _NOISE_STRENGTH) / (len(rows) + _NOISE_STRENGTH)
        curves[case] = np.where(np.isnan(times), mean + covariance[:, rows] @ pull, times)
    return curves, own_noise
