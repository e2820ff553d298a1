"""Applications alike: the new one's curve over the configurations is like one that was seen before.

Every training application is an expert: a Gaussian process around its own curve, with the covariance learned
from all of them, narrowed. One more expert knows only the mean curve. The known runs say how likely each
expert is, by time, by system metrics and by the data it works on, and move its curve; together they are the
spread. It suits configurations that many applications share, as in a catalog of machine types.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.predict.fewshot.case import Case
from trimtab.predict.fewshot.covariance import CurveModel, fit_curves
from trimtab.predict.fewshot.matrix import TimeMatrix, coordinates
from trimtab.predict.fewshot.predictor import Rows, known_log_seconds, need_cases
from trimtab.predict.fewshot.schema import METRIC_MEANINGS, METRICS, Array
from trimtab.predict.fewshot.spread import Spread
from trimtab.predict.gaussian_process import condition

_DRAWS = 11  # samples that stand for one Gaussian
_LEAST_VARIANCE = 1e-4
_MOST_EXPERTS = 40  # of more than that, only the most likely are heard
_UNRELATED = 2.0  # expected squared distance of two unrelated applications' standardised metrics
_FRACTIONS = tuple(
    name for name, meaning in METRIC_MEANINGS.items() if "fraction" in meaning or " over " in meaning
)


@dataclass(frozen=True, slots=True)
class Curves:
    """How much to trust what was seen before; chosen in nested backtests on public data."""

    prior_strength: float = 10.0  # of the kernel on settings, in applications
    nearness: float = 0.3  # an expert's covariance as a part of the population's
    temperature: float = 0.7  # power of the likelihood of the known runs
    newcomer: float = 0.2  # prior weight of the expert that knows only the mean
    same_data: float = 2.0  # log weight of experts that work on the same data
    metrics: float = 1.5  # how much unlike metrics count against an expert
    caution: float = 0.7  # power of 1/y in the point that is answered

    @property
    def name(self) -> str:
        return "curves"

    def suits(self, cases: Sequence[Case]) -> bool:
        """Made for any cases: with nothing in common between them, it falls back on the mean curve."""
        return True

    def fit(self, cases: Sequence[Case]) -> "FittedCurves":
        cases = [case for case in cases if not np.isnan(case.seconds).all()]
        need_cases(cases, self.name)
        matrix = TimeMatrix.of(cases)
        places = coordinates(matrix.settings)
        model = fit_curves(matrix.log_seconds, _informative(places), self.prior_strength)
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

    def predict(self, case: Case, known: Rows) -> Array:
        return np.exp(self.spread(case, known).point(self.settings.caution))

    def spread(self, case: Case, known: Rows) -> Spread:
        """A Gaussian mixture for every configuration of the case."""
        log_seconds = known_log_seconds(case, known)
        columns = self.matrix.columns(case)
        means, variances, log_weights = self._mixture(
            columns, columns[known], log_seconds, self._prior(case, known, columns)
        )
        weights = np.exp(log_weights - log_weights.max())
        kept = np.argsort(-weights, kind="stable")[:_MOST_EXPERTS]
        means, deviations, weights = means[kept], np.sqrt(variances[kept]), weights[kept]
        samples = means[:, None] + deviations[:, None] * _normal_quantiles()[None, :, None]
        shares = np.repeat(weights / _DRAWS, _DRAWS)
        return Spread.of(samples.reshape(-1, len(columns)).T, np.tile(shares, (len(columns), 1)))

    def unlikeness(self, case: Case, known: Rows) -> float:
        """How far the known runs are from those of the most alike training case, in standard deviations.

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

    def _prior(self, case: Case, known: Rows, columns: NDArray[np.intp]) -> Array:
        """Log weights of the experts before the known times are looked at; their mean weight is one."""
        prior = np.zeros(len(self.data))
        if case.data:
            prior += self.settings.same_data * (np.array(self.data) == case.data)
        seen = squashed(case.metrics[known])
        apart = ((self.metrics[:, columns[known]] - seen) / self.metric_scale) ** 2
        informative = ~np.isnan(seen) & (self.metric_scale < np.inf)
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
    is_fraction = np.array([name in _FRACTIONS for name in METRICS])
    return np.where(is_fraction, metrics, np.log1p(np.maximum(metrics, 0.0)))


def _informative(places: Array) -> Array:
    """Coordinates that are known of every configuration and differ between them."""
    known = places[:, ~np.isnan(places).any(axis=0)]
    differing = known[:, np.ptp(known, axis=0) > 0]
    return differing if differing.size else np.zeros((len(places), 1))


def _scale(metrics: Array) -> Array:
    """How much each metric differs between cases under the same configuration; infinite where unknown."""
    known = ~np.isnan(metrics)
    count = known.sum(axis=0)
    mean = np.where(known, metrics, 0.0).sum(axis=0) / np.maximum(count, 1)
    squares = np.where(known, (metrics - mean) ** 2, 0.0).sum(axis=(0, 1))
    total = known.sum(axis=(0, 1))
    deviation = np.sqrt(squares / np.maximum(total, 1))
    return np.where((total > 1) & (deviation > 0), deviation, np.inf)


def _normal_quantiles() -> Array:
    from statistics import NormalDist

    return np.array([NormalDist().inv_cdf((draw + 0.5) / _DRAWS) for draw in range(_DRAWS)])
