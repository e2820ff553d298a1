"""The interface of few-shot predictors, rules and learned models alike, and two data structures they share.

`TimeMatrix` holds the training times, cases by configurations. `PredictiveSample` is a predictive
distribution: a weighted sample of log seconds for every configuration.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trimtab.core import BadInputError
from trimtab.predict.fewshot.case import SCALES, Array, Case

Rows = NDArray[np.intp]
Arrays = Mapping[str, NDArray[Any]]
"""Named arrays of a file of weights."""
Words = dict[str, Any]
"""Metadata of a file of weights beside its arrays, as JSON."""


class Fitted(Protocol):
    """A fitted predictor."""

    def predict(self, case: Case, known: Rows) -> Array:
        """Seconds under every configuration of the case.

        Of its seconds, metrics and `ok` only the rows in `known` are read; at those the answer is free.
        """
        ...


class Predictor(Protocol):
    """Learns from cases of other applications; a rule that has nothing to learn ignores them."""

    @property
    def name(self) -> str: ...

    def fit(self, cases: Sequence[Case]) -> Fitted: ...


def known_log_seconds(case: Case, known: Rows) -> Array:
    """The logarithms of the known times; there must be one at least, and a time in each."""
    seconds = case.seconds[known]
    if not seconds.size:
        raise BadInputError(f"{case.label}: no configuration is known; a prediction needs one at least")
    for row in np.asarray(known)[np.isnan(seconds)][:1]:
        raise BadInputError(f"{case.label}, {case.configurations[row]}: known, but without a time")
    return np.asarray(np.log(seconds))


def need_cases(cases: Sequence[Case], name: str) -> None:
    if not cases:
        raise BadInputError(f"{name} needs at least one case to learn from")


@dataclass(frozen=True, slots=True, eq=False)
class TimeMatrix:
    """`log_seconds` has a row per case and a column per configuration; NaN where it was not measured."""

    column_of: dict[str, int]
    settings: Array
    log_seconds: Array
    _ratios: dict[int, Array] = field(default_factory=dict)

    @classmethod
    def of(cls, cases: Sequence[Case]) -> "TimeMatrix":
        settings: dict[str, Array] = {}
        for case in reversed(cases):
            settings |= dict(zip(case.configurations, case.settings, strict=True))
        keys = dict.fromkeys(key for case in cases for key in case.configurations)
        column_of = {key: column for column, key in enumerate(keys)}
        log_seconds = np.full((len(cases), len(keys)), np.nan)
        for i, case in enumerate(cases):
            log_seconds[i, [column_of[key] for key in case.configurations]] = np.log(case.seconds)
        return cls(column_of, np.array([settings[key] for key in keys]), log_seconds)

    def columns(self, case: Case) -> NDArray[np.intp]:
        """The column of each of the case's configurations, or of the nearest to one that has none."""
        columns = np.array([self.column_of.get(key, -1) for key in case.configurations], dtype=np.intp)
        new = np.flatnonzero(columns < 0)
        if new.size:
            columns[new] = distances(case.settings[new], self.settings).argmin(axis=1)
        return columns

    def median_log_ratio(self, column: int) -> Array:
        """Over the cases, the median of log(seconds there / seconds in this column); NaN if none has both."""
        if column not in self._ratios:
            self._ratios[column] = column_medians(self.log_seconds - self.log_seconds[:, column, None])
        return self._ratios[column]


def distances(first: Array, second: Array) -> Array:
    """Distance of configurations by their settings, every one of `first` to every one of `second`.

    A factor of two in a setting counts one, and so does a different switch or a setting only one of them has.
    """
    one, other = coordinates(first)[:, None], coordinates(second)[None]
    only_one = np.isnan(one) != np.isnan(other)
    return np.asarray(np.where(only_one, 1.0, np.nan_to_num(np.abs(one - other))).sum(axis=-1))


def coordinates(settings: Array) -> Array:
    """Logarithms to base two of settings on a scale (zero counts as one half), switches as they are."""
    scales, switches = settings[:, : len(SCALES)], settings[:, len(SCALES) :]
    powers = np.log2(np.where(scales > 0, scales, np.where(scales == 0, 0.5, np.nan)))
    return np.concatenate([powers, switches], axis=1)


def column_medians(values: Array) -> Array:
    """Medians of the known values, NaN in a column without any."""
    medians = np.full(values.shape[1], np.nan)
    known = ~np.isnan(values).all(axis=0)
    medians[known] = np.nanmedian(values[:, known], axis=0)
    return medians


def column_means(values: Array) -> Array:
    """Means of the known values, NaN in a column without any."""
    count = (~np.isnan(values)).sum(axis=0)
    return np.where(count > 0, np.nansum(values, axis=0) / np.maximum(count, 1), np.nan)


@dataclass(frozen=True, slots=True, eq=False)
class PredictiveSample:
    """Log seconds that are possible, a row per configuration, with weights that sum to one in a row."""

    log_seconds: Array
    weights: Array

    @classmethod
    def of(cls, log_seconds: Array, weights: Array) -> "PredictiveSample":
        """Sorted and normalised."""
        order = np.argsort(log_seconds, axis=1)
        weights = np.take_along_axis(weights, order, axis=1)
        total = weights.sum(axis=1, keepdims=True)
        return cls(np.take_along_axis(log_seconds, order, axis=1), weights / total)

    @classmethod
    def blend(cls, samples: Sequence["PredictiveSample"], shares: Sequence[float]) -> "PredictiveSample":
        """All samples together, each part with its share of the weight."""
        used = [(sample, share) for sample, share in zip(samples, shares, strict=True) if share > 0]
        return cls.of(
            np.concatenate([sample.log_seconds for sample, _ in used], axis=1),
            np.concatenate([share * sample.weights for sample, share in used], axis=1),
        )

    def quantile(self, level: float) -> Array:
        """Log seconds below which a run stays with that probability."""
        return _weighed_quantile(self.log_seconds, self.weights, level)

    def point(self, caution: float) -> Array:
        """Point estimate in log seconds.

        The expected absolute percentage error |p/y - 1| is least at the median under weights 1/y: an answer
        twice too high costs 100 %, one twice too low 50 %. `caution` is the power of 1/y: 0 gives the plain
        median, 1 the least percentage error if the distribution is right.
        """
        tilt = -caution * (self.log_seconds - self.log_seconds.mean(axis=1, keepdims=True))
        return _weighed_quantile(self.log_seconds, self.weights * np.exp(np.clip(tilt, -50.0, 50.0)), 0.5)


def _weighed_quantile(values: Array, weights: Array, level: float) -> Array:
    """Where half of a sample's own weight and all before it make up `level` of the row; lines in between."""
    mass = np.cumsum(weights, axis=1)
    middle = (mass - 0.5 * weights) / mass[:, -1:]
    last = values.shape[1] - 1
    if last == 0:
        return np.asarray(values[:, 0])
    right = np.clip((middle < level).sum(axis=1), 1, last)
    row = np.arange(len(values))
    gap = np.maximum(middle[row, right] - middle[row, right - 1], 1e-12)
    part = np.clip((level - middle[row, right - 1]) / gap, 0.0, 1.0)
    left_value, right_value = values[row, right - 1], values[row, right]
    return np.asarray(left_value + part * (right_value - left_value))


def under(prefix: str, arrays: Arrays) -> Arrays:
    """The arrays whose name begins with the prefix, without it."""
    return {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
