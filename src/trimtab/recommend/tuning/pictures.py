"""Which picture of the workload is right, and what it says: Gaussian processes, weighed by the trials.

Around every relative's picture there is a Gaussian process; two more are around the mean of all of them, for
a workload like none, one as wide as workloads differ and one wider. The level is free in all of them: how
long a workload takes in all says little about what it is like. Trials say how likely each is and move its
curve.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.predict.fewshot import METRICS, Array, Case
from trimtab.recommend.tuning.observation import Observation
from trimtab.recommend.tuning.relatives import Relatives, nearness, space_places, trend
from trimtab.recommend.tuning.space import Space

_NEAR = 0.15  # a relative's covariance as a part of the population's
_WIDE = 4.0  # that of the widest newcomer
_NEWCOMER = 0.1  # prior weight of either newcomer
_STRETCH = 0.7  # how far pictures are likely to be stretched, as a power of two
_WORDS = 0.5  # log weight of a word shared with a relative
_METRICS = 1.5  # log weight of a squared distance between metrics
_UNRELATED = 2.0  # expected squared distance between two workloads' metrics
_TEMPERATURE = 0.7  # power of the trials' likelihood
_NOISE = 0.02  # variance of the log seconds of a full trial
_KERNEL = 10.0  # as many workloads speak for the covariance by settings alone
_SMOOTH, _SLOPE = 0.1, 0.08  # its variances
_LEAST_LEVEL = 0.3
_NO_LEVEL = 100.0  # variance of the level where no other workload is known


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """A mixture of Gaussians for the log seconds of every configuration: rows are components."""

    means: Array
    deviations: Array
    weights: Array


@dataclass(frozen=True, slots=True, eq=False)
class Pictures:
    """All components before any trial."""

    relatives: Relatives
    metrics: Array  # (others, configurations, metrics), squashed and scaled; NaN where unknown
    metric_scale: Array
    curves: Array  # relatives first, then the two newcomers
    covariances: tuple[Array, ...]  # of a relative, of either newcomer
    log_prior: Array

    @classmethod
    def of(cls, space: Space, others: Sequence[Case], found: Relatives) -> "Pictures":
        here = space_places(space, others)
        covariance = _SMOOTH * nearness(here, here) + _SLOPE * trend(here, here)
        mean, level, level_variance = np.zeros(len(space)), 0.0, _NO_LEVEL
        plain = found.log_seconds[found.as_they_are()]
        if len(plain):
            levels = plain.mean(axis=1, keepdims=True)
            mean, level = (plain - levels).mean(axis=0), float(levels.mean())
            apart = plain - levels - mean
            covariance = (_KERNEL * covariance + apart.T @ apart) / (_KERNEL + len(plain))
            level_variance = max(float(levels.var()), _LEAST_LEVEL)
        newcomer = mean + level
        curves = np.where(found.completed[:, None], found.log_seconds, newcomer)
        metrics, scale = _metrics(space, others)
        return cls(
            found,
            metrics,
            scale,
            np.vstack([curves.reshape(-1, len(space)), newcomer, newcomer]),
            tuple(part * covariance + level_variance for part in (_NEAR, 1.0, _WIDE)),
            prior(found, _WORDS),
        )

    def given(self, seen: Sequence[Observation]) -> Posterior:
        """What trials that completed leave of it; less of one means more noise."""
        rows = np.array([one.row for one in seen], dtype=np.intp)
        shown = np.log([one.seconds for one in seen])
        noise = _NOISE / np.array([one.fidelity for one in seen])
        log_prior = self.log_prior + self._likeness(rows, seen)
        newcomers = np.log(_NEWCOMER) if len(log_prior) else np.log(0.5)
        priors = np.concatenate([_normal(log_prior) + np.log1p(-2 * _NEWCOMER), [newcomers, newcomers]])
        last = len(self.curves) - 2
        means, deviations, logs = [], [], []
        for curves, covariance in zip(
            (self.curves[:last], self.curves[last : last + 1], self.curves[last + 1 :]),
            self.covariances,
            strict=True,
        ):
            among = covariance[np.ix_(rows, rows)] + np.diag(noise)
            gain = np.linalg.solve(among, covariance[rows]).T
            rest = shown - curves[:, rows]
            means.append(curves + rest @ gain.T)
            variance = np.diag(covariance) - (gain * covariance[:, rows]).sum(axis=1)
            deviations.append(np.tile(np.sqrt(np.maximum(variance, 0.0) + _NOISE), (len(curves), 1)))
            surprise = (rest @ np.linalg.inv(among) * rest).sum(axis=1) + np.linalg.slogdet(among)[1]
            logs.append(-0.5 * _TEMPERATURE * surprise)
        weights = np.exp(_normal(priors + np.concatenate(logs)))
        return Posterior(np.vstack(means), np.vstack(deviations), weights)

    def _likeness(self, rows: NDArray[np.intp], seen: Sequence[Observation]) -> Array:
        """Log weights of the relatives by what the trials showed beside their times."""
        shown = np.array([[one.metrics.get(name, np.nan) for name in METRICS] for one in seen])
        shown = shown.reshape(-1, len(METRICS))
        counted = ~np.isnan(shown) & (self.metric_scale > 0)
        if not counted.any() or not len(self.metrics):
            return np.zeros(len(self.log_prior))
        scale = np.where(self.metric_scale > 0, self.metric_scale, 1.0)
        apart = ((self.metrics[:, rows] - _squashed(shown)) / scale) ** 2
        apart = np.where(np.isnan(apart), _UNRELATED, apart)
        distance = (apart * counted).sum(axis=(1, 2)) / counted.sum()
        return np.asarray(-_METRICS * np.sqrt(len(seen)) * distance[self.relatives.case])


def prior(found: Relatives, words: float) -> Array:
    """Log weights of the relatives before anything is tried: `words` is that of a shared word."""
    return words * found.shared_words - 0.5 * (found.stretch / _STRETCH) ** 2


def _normal(logs: Array) -> Array:
    """Log weights whose weights sum to one."""
    if not len(logs):
        return logs
    return np.asarray(logs - logs.max() - np.log(np.exp(logs - logs.max()).sum()))


def _metrics(space: Space, others: Sequence[Case]) -> tuple[Array, Array]:
    """What the others' runs showed in the space's configurations, and how much that differs."""
    found = np.full((len(others), len(space), len(METRICS)), np.nan)
    row_of = {name: row for row, name in enumerate(space.names)}
    for number, case in enumerate(others):
        for own, name in enumerate(case.configurations):
            if name in row_of:
                found[number, row_of[name]] = _squashed(case.metrics[own])
    known = ~np.isnan(found)
    count = np.maximum(known.sum(axis=(0, 1)), 1)
    mean = np.where(known, found, 0.0).sum(axis=(0, 1)) / count
    return found, np.sqrt(np.where(known, (found - mean) ** 2, 0.0).sum(axis=(0, 1)) / count)


def _squashed(metrics: Array) -> Array:
    """Amounts as logarithms; small ones, such as fractions, stay about what they are."""
    return np.log1p(np.maximum(metrics, 0.0))
