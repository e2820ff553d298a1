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
from trimtab.predict.gaussian_process import TrendKernel, condition, fit_sizes

# Where fitting starts, and what it is pulled back to by a log-normal prior of width one.
_SLOPE, _LENGTH, _WIGGLE, _NOISE, _LEAST_LEVEL = 0.1, 3.0, 0.15, 0.12, 0.3
_ITERATIONS = 15
_BOUNDS = (-8.0, 4.0)  # of the logarithms of sizes
_JITTER = 1e-8
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
    """Covariance and noise variance whose sizes have the largest marginal likelihood."""
    deviation = coordinates.std(axis=0)
    places = (coordinates - coordinates.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    kernel = TrendKernel(places, places)
    levels = max(float(level.std()), _LEAST_LEVEL)
    start = np.append(TrendKernel.sizes(levels, _SLOPE, _WIGGLE, _LENGTH, places.shape[1]), np.log(_NOISE))

    def loss(sizes: Array) -> tuple[float, Array]:
        covariance, noise = kernel.covariance(sizes[:-1]), float(np.exp(2 * sizes[-1]))
        by_covariance, by_noise, value = np.zeros_like(covariance), 0.0, 0.0
        for rows, times in zip(measured, log_seconds, strict=True):
            found = condition(covariance[np.ix_(rows, rows)], times[rows] - mean[rows], noise + _JITTER)
            value -= float(found.log_likelihood)
            slope = found.loss_gradient
            by_covariance[np.ix_(rows, rows)] += slope
            by_noise += float(np.trace(slope))
        return value, np.append(kernel.gradient(sizes[:-1], by_covariance), 2 * noise * by_noise)

    sizes = fit_sizes(loss, start, _ITERATIONS, _BOUNDS)
    return kernel.covariance(sizes[:-1]), float(np.exp(2 * sizes[-1]))


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
            found = condition(seen[rows], times[rows] - mean[rows], noise)
            expected[case] = mean + found.mean(seen)
            scatter = scatter + found.covariance(covariance, seen)
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
        found = condition(covariance[np.ix_(rows, rows)], times[rows] - mean[rows], noise)
        residuals, variances = found.leave_one_out
        surprise = float((residuals**2 / variances).sum())
        own_noise[case] = noise * (surprise + _NOISE_STRENGTH) / (len(rows) + _NOISE_STRENGTH)
        curves[case] = np.where(np.isnan(times), mean + found.mean(covariance[:, rows]), times)
    return curves, own_noise
