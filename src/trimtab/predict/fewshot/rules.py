"""The rules a learned predictor must beat, from the simplest to those that look at other applications.

All think in logarithms: a time is off by a factor, whichever way, and a mean of times is the geometric one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.predict.fewshot.case import Case
from trimtab.predict.fewshot.matrix import TimeMatrix, column_means, distances
from trimtab.predict.fewshot.predictor import Predictor, Rows, known_log_seconds, need_cases
from trimtab.predict.fewshot.schema import Array


@dataclass(frozen=True, slots=True)
class NearestKnown:
    """The time under the nearest known configuration; of two as near, that with less memory."""

    name: str = "nearest known"

    def fit(self, cases: Sequence[Case]) -> "NearestKnown":
        return self

    def predict(self, case: Case, known: Rows) -> Array:
        log_seconds = known_log_seconds(case, known)
        smallest_first = np.argsort(case.setting("memory_bytes")[known], kind="stable")
        known, log_seconds = np.asarray(known)[smallest_first], log_seconds[smallest_first]
        nearest = distances(case.settings, case.settings[known]).argmin(axis=1)
        return np.asarray(np.exp(log_seconds[nearest]))


@dataclass(frozen=True, slots=True)
class Interpolation:
    """A line through the known times, both axes logarithmic, over memory; flat outside of what is known.

    With one memory size known, or none, it is the nearest known.
    """

    name: str = "interpolation"

    def fit(self, cases: Sequence[Case]) -> "Interpolation":
        return self

    def predict(self, case: Case, known: Rows) -> Array:
        log_seconds = known_log_seconds(case, known)
        memory = case.setting("memory_bytes")
        sizes, position = np.unique(memory[known], return_inverse=True)
        if len(sizes) < 2 or np.isnan(memory).any():
            return NearestKnown().predict(case, known)
        at_size = np.bincount(position, log_seconds) / np.bincount(position)
        return np.exp(np.interp(np.log2(memory), np.log2(sizes), at_size))


@dataclass(frozen=True, slots=True)
class MeanOfKnown:
    """The mean of the known times, whatever the configuration."""

    name: str = "mean of the known"

    def fit(self, cases: Sequence[Case]) -> "MeanOfKnown":
        return self

    def predict(self, case: Case, known: Rows) -> Array:
        return np.full(len(case), np.exp(known_log_seconds(case, known).mean()))


@dataclass(frozen=True, slots=True)
class MedianRatio:
    """From every known time by the median ratio of the training cases; the mean where several are known."""

    name: str = "median ratio"

    def fit(self, cases: Sequence[Case]) -> "FittedMedianRatio":
        need_cases(cases, self.name)
        return FittedMedianRatio(TimeMatrix.of(cases))


@dataclass(frozen=True, slots=True)
class FittedMedianRatio:
    matrix: TimeMatrix

    def predict(self, case: Case, known: Rows) -> Array:
        log_seconds = known_log_seconds(case, known)
        columns = self.matrix.columns(case)
        ratios = np.array([self.matrix.median_log_ratio(c)[columns] for c in columns[known].tolist()])
        return _seconds(column_means(log_seconds[:, None] + ratios), log_seconds)


@dataclass(frozen=True, slots=True)
class ScaledProfile:
    """Collaborative: the mean profile of the training cases over the configurations, scaled to the known."""

    name: str = "scale by known"

    def fit(self, cases: Sequence[Case]) -> "FittedScaledProfile":
        need_cases(cases, self.name)
        return FittedScaledProfile.of(TimeMatrix.of(cases))


@dataclass(frozen=True, slots=True)
class FittedScaledProfile:
    matrix: TimeMatrix
    profile: Array

    @classmethod
    def of(cls, matrix: TimeMatrix) -> "FittedScaledProfile":
        level = column_means(matrix.log_seconds.T)
        return cls(matrix, column_means(matrix.log_seconds - level[:, None]))

    def predict(self, case: Case, known: Rows) -> Array:
        log_seconds = known_log_seconds(case, known)
        shape = self.profile[self.matrix.columns(case)]
        return _seconds(shape + _offset(log_seconds - shape[known]), log_seconds)


@dataclass(frozen=True, slots=True)
class NearestWorkloads:
    """The mean of the training cases whose times are nearest under the known configurations, each scaled."""

    neighbours: int = 5

    @property
    def name(self) -> str:
        return f"{self.neighbours} nearest workloads"

    def fit(self, cases: Sequence[Case]) -> "FittedNearestWorkloads":
        need_cases(cases, self.name)
        return FittedNearestWorkloads(ScaledProfile().fit(cases), self.neighbours)


@dataclass(frozen=True, slots=True)
class FittedNearestWorkloads:
    profile: FittedScaledProfile
    neighbours: int

    def predict(self, case: Case, known: Rows) -> Array:
        log_seconds = known_log_seconds(case, known)
        matrix = self.profile.matrix
        times = matrix.log_seconds[:, matrix.columns(case)]
        apart = times[:, known] - log_seconds
        distance = column_means((apart**2).T)
        nearest = np.argsort(distance, kind="stable")[: self.neighbours]
        nearest = nearest[~np.isnan(distance[nearest])]
        scaled = times[nearest] - column_means(apart[nearest].T)[:, None]
        mean = column_means(scaled)
        return np.where(np.isnan(mean), self.profile.predict(case, known), np.exp(mean))


def _offset(log_ratios: Array) -> float:
    """The mean of what is known of them; 0 where nothing is."""
    known = log_ratios[~np.isnan(log_ratios)]
    return float(known.mean()) if known.size else 0.0


def _seconds(log_seconds: Array, known: Array) -> Array:
    """What nobody in training measured together with the known takes as long as the known."""
    return np.exp(np.where(np.isnan(log_seconds), known.mean(), log_seconds))


RULES: tuple[Predictor, ...] = (
    NearestKnown(),
    Interpolation(),
    MeanOfKnown(),
    MedianRatio(),
    ScaledProfile(),
    NearestWorkloads(),
)
