"""Mixture of Gaussian processes over configurations, one around the curve of each training application.

The log times of an application are a draw from a Gaussian process over the configurations. Its covariance is
first a kernel on their settings, fitted by marginal likelihood, then moved by expectation-maximisation
towards what the training applications show on the configurations they share.

Every training application is an expert: a Gaussian process around its own curve, with that covariance,
narrowed. One more expert knows only the mean curve. The known runs weight the experts, by time, by system
metrics and by the data they work on, and move their curves. It suits configurations that many applications
share, as in a catalog of machine types.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from trimtab.predict.fewshot.case import METRIC_MEANINGS, METRICS, Array, Case
from trimtab.predict.fewshot.predictor import (
    Arrays,
    PredictiveSample,
    Rows,
    TimeMatrix,
    Words,
    coordinates,
    known_log_seconds,
    need_cases,
)
from trimtab.predict.gaussian_process import TrendKernel, condition, fit_sizes

# Where fitting starts, and the center of its log-normal prior of width one.
_SLOPE, _LENGTH, _WIGGLE, _NOISE, _LEAST_LEVEL = 0.1, 3.0, 0.15, 0.12, 0.3
_ITERATIONS = 15
_BOUNDS = (-8.0, 4.0)  # of the logarithms of sizes
_JITTER = 1e-8
_SWEEPS = 10
_EM_STEPS = 8
_MEAN_STRENGTH = 2.0  # pseudo-applications with the first mean
_NOISE_STRENGTH = 10.0  # pseudo-observations with the common noise


@dataclass(frozen=True, slots=True, eq=False)
class CurveModel:
    """Mean and covariance of log times over the configurations, and the training applications' own curves."""

    mean: Array  # (configurations,)
    covariance: Array  # (configurations, configurations)
    noise: float  # variance of one measurement
    curves: Array  # (cases, configurations), gaps filled
    curve_noise: Array  # (cases,)


def fit_curves(log_seconds: Array, coordinates: Array, prior_strength: float) -> CurveModel:
    """Fit to the cases' log times, NaN where not measured, and the coordinates of the configurations."""
    measured = [np.flatnonzero(~np.isnan(row)) for row in log_seconds]
    # The mean curve after taking out each case's level, and those levels.
    count = (~np.isnan(log_seconds)).sum(axis=0)
    level, curve = np.nanmean(log_seconds, axis=1), np.zeros(log_seconds.shape[1])
    for _ in range(_SWEEPS):
        curve = np.nansum(log_seconds - level[:, None], axis=0) / (count + 1)
        curve -= curve.mean()
        level = np.nanmean(log_seconds - curve, axis=1)
    mean = curve + level.mean()
    kernel, noise = _fit_kernel(log_seconds, measured, mean, level, coordinates)
    mean, covariance = _learn_covariance(log_seconds, measured, mean, kernel, noise, prior_strength)
    # Every case's curve with its gaps filled, and its own noise from its leave-one-out residuals.
    curves, own_noise = np.empty_like(log_seconds), np.empty(len(log_seconds))
    for case, (rows, times) in enumerate(zip(measured, log_seconds, strict=True)):
        given = condition(covariance[np.ix_(rows, rows)], times[rows] - mean[rows], noise)
        residuals, variances = given.leave_one_out
        surprise = float((residuals**2 / variances).sum())
        own_noise[case] = noise * (surprise + _NOISE_STRENGTH) / (len(rows) + _NOISE_STRENGTH)
        curves[case] = np.where(np.isnan(times), mean + given.mean(covariance[:, rows]), times)
    return CurveModel(mean, covariance, noise, curves, own_noise)


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
            given = condition(covariance[np.ix_(rows, rows)], times[rows] - mean[rows], noise + _JITTER)
            value -= float(given.log_likelihood)
            slope = given.loss_gradient
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
            across = covariance[:, rows]
            given = condition(across[rows], times[rows] - mean[rows], noise)
            expected[case] = mean + given.mean(across)
            scatter = scatter + given.covariance(covariance, across)
        mean = (expected.sum(axis=0) + _MEAN_STRENGTH * first_mean) / (len(expected) + _MEAN_STRENGTH)
        rest = expected - mean
        covariance = (scatter + rest.T @ rest) / (len(expected) + prior_strength)
    return mean, covariance


_DRAWS = 11  # samples that stand for one Gaussian
_LEAST_VARIANCE = 1e-4
_MOST_EXPERTS = 40  # the most likely ones; others are dropped
_UNRELATED = 2.0  # expected squared distance of two unrelated applications' standardised metrics
_IS_FRACTION = np.array(
    ["fraction" in meaning or " over " in meaning for meaning in METRIC_MEANINGS.values()]
)
_MODEL = ("mean", "covariance", "curves", "curve_noise")


@dataclass(frozen=True, slots=True)
class Curves:
    """Weights of the training applications; chosen in nested backtests on public data."""

    prior_strength: float = 10.0  # of the kernel on settings, in applications
    nearness: float = 0.3  # covariance of an expert as a part of the population's
    temperature: float = 0.7  # power of the likelihood of the known runs
    newcomer: float = 0.2  # prior weight of the expert that knows only the mean
    same_data: float = 2.0  # log weight of experts that work on the same data
    metrics: float = 1.5  # how much unlike metrics count against an expert
    caution: float = 0.7  # power of 1/y in the point estimate

    @property
    def name(self) -> str:
        return "curves"

    def suits(self, cases: Sequence[Case]) -> bool:
        """True: without common configurations, it falls back on the mean curve."""
        return True

    def fit(self, cases: Sequence[Case]) -> "FittedCurves":
        cases = [case for case in cases if not np.isnan(case.seconds).all()]
        need_cases(cases, self.name)
        matrix = TimeMatrix.of(cases)
        # Coordinates that are known of every configuration and differ between them.
        places = coordinates(matrix.settings)
        places = places[:, ~np.isnan(places).any(axis=0)]
        places = places[:, np.ptp(places, axis=0) > 0]
        places = places if places.size else np.zeros((len(matrix.settings), 1))
        model = fit_curves(matrix.log_seconds, places, self.prior_strength)
        metrics = np.full((*matrix.log_seconds.shape, len(METRICS)), np.nan)
        for row, case in enumerate(cases):
            metrics[row, [matrix.column_of[key] for key in case.configurations]] = squashed(case.metrics)
        return FittedCurves(self, matrix, model, metrics, _scale(metrics), tuple(case.data for case in cases))


@dataclass(frozen=True, slots=True, eq=False)
class FittedCurves:
    """The experts."""

    settings: Curves
    matrix: TimeMatrix
    model: CurveModel
    metrics: Array
    metric_scale: Array
    data: tuple[str, ...]
    kind: ClassVar[str] = "curves"  # in a file of weights

    def predict(self, case: Case, known: Rows) -> Array:
        return np.exp(self.spread(case, known).point(self.settings.caution))

    def spread(self, case: Case, known: Rows) -> PredictiveSample:
        """A Gaussian mixture for every configuration of the case."""
        log_seconds = known_log_seconds(case, known)
        columns = self.matrix.columns(case)
        prior = self._prior(case, known, columns)
        means, variances, log_weights = self._mixture(columns, columns[known], log_seconds, prior)
        weights = np.exp(log_weights - log_weights.max())
        kept = np.argsort(-weights, kind="stable")[:_MOST_EXPERTS]
        means, deviations, weights = means[kept], np.sqrt(variances[kept]), weights[kept]
        quantiles = np.array([NormalDist().inv_cdf((draw + 0.5) / _DRAWS) for draw in range(_DRAWS)])
        samples = means[:, None] + deviations[:, None] * quantiles[None, :, None]
        shares = np.repeat(weights / _DRAWS, _DRAWS)
        return PredictiveSample.of(samples.reshape(-1, len(columns)).T, np.tile(shares, (len(columns), 1)))

    def unlikeness(self, case: Case, known: Rows) -> float:
        """Distance of the known runs from those of the most alike training case, in standard deviations.

        Over the known times and metrics, the root of the mean squared distance; times are compared with the
        spread of all training cases under the same configuration.
        """
        columns = self.matrix.columns(case)[known]
        times = self.matrix.log_seconds
        spread = np.nanstd(times, axis=0)[columns]
        in_time = (times[:, columns] - known_log_seconds(case, known)) / np.where(spread > 0, spread, 1.0)
        in_metrics = (self.metrics[:, columns] - squashed(case.metrics[known])) / self.metric_scale
        apart = np.concatenate([in_time[:, :, None], in_metrics], axis=2) ** 2
        usable = ~np.isnan(apart) & np.append(True, self.metric_scale < np.inf)
        count = usable.sum(axis=(1, 2))
        distance = np.where(usable, apart, 0.0).sum(axis=(1, 2)) / np.maximum(count, 1)
        return float(np.sqrt(distance[count > 0].min())) if (count > 0).any() else float("inf")

    def refit(self, cases: Sequence[Case]) -> "FittedCurves":
        return self.settings.fit(cases)

    def to_weights(self) -> tuple[Arrays, Words]:
        arrays = {name: getattr(self.model, name) for name in _MODEL} | {
            "log_seconds": self.matrix.log_seconds,
            "settings": self.matrix.settings,
            "metrics": self.metrics,
            "metric_scale": self.metric_scale,
        }
        words = {
            "settings": asdict(self.settings),
            "noise": self.model.noise,
            "configurations": list(self.matrix.column_of),
            "data": list(self.data),
        }
        return arrays, words

    @classmethod
    def from_weights(cls, arrays: Arrays, words: Words) -> "FittedCurves":
        double = {name: array.astype(np.float64) for name, array in arrays.items()}
        columns = {key: column for column, key in enumerate(words["configurations"])}
        return cls(
            Curves(**words["settings"]),
            TimeMatrix(columns, double["settings"], double["log_seconds"]),
            CurveModel(noise=words["noise"], **{name: double[name] for name in _MODEL}),
            double["metrics"],
            double["metric_scale"],
            tuple(words["data"]),
        )

    def training_cases(self, corpus: str, environment: str) -> tuple[Case, ...]:
        """The training cases, each as an application of its own in one environment."""
        keys = np.array(list(self.matrix.column_of))
        cases = []
        for row, log_seconds in enumerate(self.matrix.log_seconds):
            run = np.flatnonzero(~np.isnan(log_seconds))
            if run.size:
                cases.append(
                    Case(
                        corpus=corpus,
                        application=f"{corpus} {row}",
                        name=f"{corpus} {row}",
                        environment=environment,
                        configurations=tuple(keys[run].tolist()),
                        settings=self.matrix.settings[run],
                        metrics=unsquashed(self.metrics[row, run]),
                        seconds=np.exp(log_seconds[run]),
                        ok=np.ones(run.size, dtype=bool),
                        data=self.data[row],
                    )
                )
        return tuple(cases)

    def _prior(self, case: Case, known: Rows, columns: NDArray[np.intp]) -> Array:
        """Log prior weights of the experts, by data and metrics; their mean weight is one."""
        prior = np.zeros(len(self.data))
        if case.data:
            prior += self.settings.same_data * (np.array(self.data) == case.data)
        metrics = squashed(case.metrics[known])
        apart = ((self.metrics[:, columns[known]] - metrics) / self.metric_scale) ** 2
        informative = ~np.isnan(metrics) & (self.metric_scale < np.inf)
        if informative.any():
            apart = np.where(np.isnan(apart), _UNRELATED, apart)
            distance = (apart * informative).sum(axis=(1, 2)) / informative.sum()
            weight = self.settings.metrics * (distance.min() - distance)
            prior += weight - np.log(np.exp(weight).mean())
        return prior

    def _mixture(
        self, columns: NDArray[np.intp], known: NDArray[np.intp], log_seconds: Array, prior: Array
    ) -> tuple[Array, Array, Array]:
        """Means and variances, an expert per row, and log weights, all given the known times."""
        model, chosen = self.model, self.settings
        across = model.covariance[np.ix_(columns, known)]
        among = model.covariance[np.ix_(known, known)]
        own = np.diag(model.covariance)[columns]
        near = condition(
            np.broadcast_to(chosen.nearness * among, (len(prior), *among.shape)),
            log_seconds - model.curves[:, known],
            model.curve_noise[:, None],
        )
        means = model.curves[:, columns] + near.mean(chosen.nearness * across)
        variances = near.variance(chosen.nearness * own, chosen.nearness * across)
        log_weights = chosen.temperature * near.log_likelihood + prior

        newcomer = condition(among, log_seconds - model.mean[known], model.noise)
        mean = model.mean[columns] + newcomer.mean(across)
        variance = np.maximum(newcomer.variance(own, across), _LEAST_VARIANCE) + model.noise
        odds = np.log(chosen.newcomer / (1 - chosen.newcomer) * len(prior))
        return (
            np.vstack([means, mean]),
            np.vstack([np.maximum(variances, _LEAST_VARIANCE) + model.curve_noise[:, None], variance]),
            np.append(log_weights, chosen.temperature * newcomer.log_likelihood + odds),
        )


def squashed(metrics: Array) -> Array:
    """Fractions as they are, rates and amounts as logarithms."""
    return np.where(_IS_FRACTION, metrics, np.log1p(np.maximum(metrics, 0.0)))


def unsquashed(values: Array) -> Array:
    """The inverse of `squashed`; fractions are not exponentiated, since large ratios would overflow."""
    metrics = values.copy()
    metrics[..., ~_IS_FRACTION] = np.expm1(values[..., ~_IS_FRACTION])
    return metrics


def _scale(metrics: Array) -> Array:
    """Deviation of each metric between cases under the same configuration; infinite where unknown."""
    known = ~np.isnan(metrics)
    mean = np.where(known, metrics, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    total = known.sum(axis=(0, 1))
    squares = np.where(known, (metrics - mean) ** 2, 0.0).sum(axis=(0, 1))
    deviation = np.sqrt(squares / np.maximum(total, 1))
    return np.where((total > 1) & (deviation > 0), deviation, np.inf)
