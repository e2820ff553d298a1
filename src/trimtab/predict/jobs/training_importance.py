"""Which features estimates for training jobs rest on (thesis, table 4.1, section 4.5.2.2 and figure 4.8).

The thesis' features: application (the composition of the model and its training), infrastructure (workers,
shape, CPU, memory), and the local run's CPU, memory and network over time. Of a random forest on them: how
much each feature lowers the error inside the trees. Of the model: how much worse its answers for a held-out
job get when a coordinate is shuffled among its configurations.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.core import MissingDependencyError
from trimtab.predict.fewshot.case import Array
from trimtab.predict.jobs.training_data import SERIES, Local, Points
from trimtab.predict.jobs.training_model import SHARED, MeasuredRatios, StepTimeModel, measured_rows

MOMENTS = 10
"""Points of a series: one for each of the thesis' ten minutes."""

_SCALES = ("parameters", "trainable", "learning_rate", "epochs", "layers", "input_size", "output_size")
APPLICATION, INFRASTRUCTURE = "application", "infrastructure"
GROUPS = (APPLICATION, INFRASTRUCTURE, *(f"local {name}" for name in SERIES))


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """Numbers with zero mean and deviation one over the training rows.

    All rows of a job have the same series, so they are stored once per job: `job` is the index.
    """

    names: tuple[str, ...]  # of the columns of `static`
    groups: tuple[str, ...]  # of the columns of `flat`
    static: Array  # (rows, columns)
    series: Array  # (jobs, moments, SERIES)
    job: NDArray[np.intp]  # (rows,)

    @property
    def flat(self) -> Array:
        """Everything in one table, for models without a notion of time."""
        by_series = self.series.transpose(0, 2, 1).reshape(len(self.series), -1)
        return np.concatenate([self.static, by_series[self.job]], axis=1)

    @property
    def flat_names(self) -> tuple[str, ...]:
        return (*self.names, *(f"{name} at {moment + 1}" for name in SERIES for moment in range(MOMENTS)))


@dataclass(frozen=True, slots=True, eq=False)
class FeatureEncoder:
    """Turns points into standardised numbers, with categories, means and deviations of the training rows."""

    optimizers: tuple[str, ...]
    kinds: tuple[str, ...]
    shapes: tuple[str, ...]
    mean: Array  # also stands for an unknown number
    deviation: Array
    series_mean: Array
    series_deviation: Array

    @classmethod
    def of(cls, training: Points, local: Local) -> "FeatureEncoder":
        """Fit to training rows and their jobs' local runs."""
        facts = [local[job].facts for job in training.jobs]
        categories = (
            tuple(sorted({fact.optimizer for fact in facts})),
            tuple(sorted({kind for fact in facts for kind in fact.layer_kinds})),
            tuple(sorted(set(training.where.shape))),
        )
        columns = _static(training, local, *categories).values()
        table = np.stack([values for group in columns for values in group.values()], axis=1)
        known = ~np.isnan(table)
        mean = np.where(known, table, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        deviation = np.where(known, table, mean).std(axis=0)
        series = _series(training, local)
        spread = series.std(axis=(0, 1))
        return cls(*categories, mean, _or_one(deviation), series.mean(axis=(0, 1)), _or_one(spread))

    def encode(self, points: Points, local: Local) -> Features:
        """Encode any rows; an optimizer, layer or shape that training did not have is all zeros."""
        raw = _static(points, local, self.optimizers, self.kinds, self.shapes)
        columns = raw[APPLICATION] | raw[INFRASTRUCTURE]
        table = np.stack(list(columns.values()), axis=1)
        static = (np.where(np.isnan(table), self.mean, table) - self.mean) / self.deviation
        series = (_series(points, local) - self.series_mean) / self.series_deviation
        groups = [group for group, members in raw.items() for _ in members]
        groups += [f"local {name}" for name in SERIES for _ in range(MOMENTS)]
        jobs = {job: row for row, job in enumerate(points.jobs)}
        job = np.array([jobs[job] for job in points.job])
        return Features(tuple(columns), tuple(groups), static, series, job)


def _static(
    points: Points,
    local: Local,
    optimizers: tuple[str, ...],
    kinds: tuple[str, ...],
    shapes: tuple[str, ...],
) -> dict[str, dict[str, Array]]:
    """Columns by group and name: scales as logarithms, names as ones and zeros, NaN where unknown."""
    facts, where = [local[job].facts for job in points.job], points.where
    scales = {name: np.array([getattr(fact, name) for fact in facts]) for name in _SCALES}
    return {
        APPLICATION: {
            **{name: np.log(np.where(values > 0, values, np.nan)) for name, values in scales.items()},
            "batch": np.log(where.batch),
            **{f"optimizer {name}": _is(name, [fact.optimizer for fact in facts]) for name in optimizers},
            **{f"layers {k}": np.log1p([fact.layer_kinds.get(k, 0.0) for fact in facts]) for k in kinds},
        },
        INFRASTRUCTURE: {
            "workers": where.workers,
            "cpus": where.cpus,
            "memory": np.log(where.memory_bytes),
            **{f"shape {name}": _is(name, where.shape) for name in shapes},
        },
    }


def _is(name: str, values: Any) -> Array:
    return np.array([value == name for value in values], dtype=float)


def resampled(values: Array, moments: int = MOMENTS) -> Array:
    """Means over equal parts of a series; a shorter series is interpolated linearly."""
    if len(values) < moments:
        return np.interp(np.linspace(0, len(values) - 1, moments), np.arange(len(values)), values)
    return np.array([part.mean() for part in np.array_split(values, moments)])


def _series(points: Points, local: Local) -> Array:
    """(jobs, moments, SERIES); bytes as logarithms."""
    rows = []
    for job in points.jobs:
        series = local[job].typical.series
        values = np.stack([resampled(np.array(getattr(series, name))) for name in SERIES], axis=1)
        values[:, 1:] = np.log1p(np.maximum(values[:, 1:], 0.0))
        rows.append(values)
    return np.stack(rows)


def _or_one(deviation: Array) -> Array:
    return np.where(deviation > 1e-9, deviation, 1.0)


_SHUFFLES = 5


@dataclass(frozen=True, slots=True)
class Importance:
    """Importance by feature, the largest first, and by group: parts of one, or percentage points of error."""

    features: Mapping[str, float]
    groups: Mapping[str, float]


def forest_importance(points: Points, local: Local, objective: str) -> Importance:
    """Importance in a random forest that learned dollars or seconds of all points that ran."""
    ran = points.only(points.ok)
    features = FeatureEncoder.of(ran, local).encode(ran, local)
    return importance_in(random_forest().fit(features.flat, ran.target(objective)), features)


def importance_in(forest: Any, features: Features) -> Importance:
    """Importance of features in a forest of scikit-learn that learned from them."""
    weights = np.asarray(forest.feature_importances_)
    groups = np.array(features.groups)
    return Importance(
        _largest_first(dict(zip(features.flat_names, weights.tolist(), strict=True))),
        {group: float(weights[groups == group].sum()) for group in GROUPS},
    )


def random_forest(seed: int = 0) -> Any:
    """An unfitted forest of 300 trees."""
    try:
        from sklearn.ensemble import RandomForestRegressor
    except ImportError as error:
        raise MissingDependencyError(f"{error.name} is missing: pip install 'trimtab[learn]'") from None
    return RandomForestRegressor(300, max_features=0.5, random_state=seed, n_jobs=1)


def model_importance(points: Points, local: Local, seed: int = 0) -> Importance:
    """Percentage points of a step's error that shuffling a coordinate adds, mean over jobs left out."""
    random = np.random.default_rng(seed)
    worse: dict[str, list[float]] = {name: [] for name in SHARED}
    for job in points.jobs:
        model = StepTimeModel.fitted(points.without(job), local)
        measured = measured_rows(points.of(job), local)
        before = _error(model, measured)
        for column, name in enumerate(SHARED):
            for _ in range(_SHUFFLES):
                shared = measured.rows.shared.copy()
                shared[:, column] = random.permutation(shared[:, column])
                shuffled = replace(measured, rows=replace(measured.rows, shared=shared))
                worse[name].append(_error(model, shuffled) - before)
    means = {name: 100 * float(np.mean(differences)) for name, differences in worse.items()}
    return Importance(_largest_first(means), {})


def _error(model: StepTimeModel, measured: MeasuredRatios) -> float:
    return float(np.abs(np.expm1(model.predict(measured.rows) - measured.values)).mean())


def _largest_first(by_name: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(by_name.items(), key=lambda item: -item[1]))
