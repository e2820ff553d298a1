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

from trimtab.predict import METRICS, Array, Case
from trimtab.tune.methods.relatives import Relatives, nearness, space_places, trend
from trimtab.tune.observation import Observation
from trimtab.tune.space import Space

_NEAR = 0.15  # a relative's covariance as a part of the population's
_WIDE = 4.0  # that of the widest newcomer
_NEWCOMER = 0.1  # prior weight of either newcomer
_STRETCH = 0.7  # how far pictures are likely to be stretched, as a power of two
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
class _Group:
    """Pictures with the same covariance, a row each."""

    curves: Array
    covariance: Array

    def given(self, rows: NDArray[np.intp], shown: Array, noise: Array) -> tuple[Array, Array, Array]:
        """Means, standard deviations of another run, and how well each picture explains what was shown."""
        towards = self.covariance[:, rows]
        among = towards[rows] + np.diag(noise)
        gain = np.linalg.solve(among, towards.T).T
        rest = shown - self.curves[:, rows]
        variance = np.diag(self.covariance) - (gain * towards).sum(axis=1)
        deviation = np.sqrt(np.maximum(variance, 0.0) + _NOISE)
        surprise = (rest @ np.linalg.inv(among) * rest).sum(axis=1) + np.linalg.slogdet(among)[1]
        return self.curves + rest @ gain.T, np.tile(deviation, (len(self.curves), 1)), -0.5 * surprise


@dataclass(frozen=True, slots=True, eq=False)
class Pictures:
    """All of them before any trial: the relatives, then the two newcomers."""

    relatives: Relatives
    metrics: Array  # (others, configurations, metrics), squashed; NaN where unknown
    metric_scale: Array
    groups: tuple[_Group, ...]

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
        newcomer = (mean + level)[None]
        groups = (
            _Group(
                np.where(found.completed[:, None], found.log_seconds, newcomer),
                _NEAR * covariance + level_variance,
            ),
            _Group(newcomer, covariance + level_variance),
            _Group(newcomer, _WIDE * covariance + level_variance),
        )
        return cls(found, *_metrics(space, others), groups)

    def given(self, seen: Sequence[Observation]) -> Posterior:
        """What trials that completed leave of it; less of one means more noise."""
        rows = np.array([one.row for one in seen], dtype=np.intp)
        shown = np.log([one.seconds for one in seen])
        noise = _NOISE / np.array([one.fidelity for one in seen])
        means, deviations, fits = zip(
            *(group.given(rows, shown, noise) for group in self.groups), strict=True
        )
        alike = _normal(prior(self.relatives) + self._likeness(rows, seen)) + np.log1p(-2 * _NEWCOMER)
        priors = np.append(alike, np.log([_NEWCOMER] * 2))
        weights = np.exp(_normal(priors + _TEMPERATURE * np.concatenate(fits)))
        return Posterior(np.vstack(means), np.vstack(deviations), weights)

    def _likeness(self, rows: NDArray[np.intp], seen: Sequence[Observation]) -> Array:
        """Log weights of the relatives by what the trials showed beside their times."""
        shown = np.array([[one.metrics.get(name, np.nan) for name in METRICS] for one in seen])
        shown = shown.reshape(-1, len(METRICS))
        counted = ~np.isnan(shown) & (self.metric_scale > 0)
        if not counted.any() or not len(self.metrics):
            return np.zeros(len(self.relatives.case))
        scale = np.where(self.metric_scale > 0, self.metric_scale, 1.0)
        apart = ((self.metrics[:, rows] - _squashed(shown)) / scale) ** 2
        apart = np.where(np.isnan(apart), _UNRELATED, apart)
        distance = (apart * counted).sum(axis=(1, 2)) / counted.sum()
        return np.asarray(-_METRICS * np.sqrt(len(seen)) * distance[self.relatives.case])


def prior(found: Relatives, words: float = 0.0) -> Array:
    """Log weights of the relatives; `words` is that of a shared word, as long as no trial says more."""
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
