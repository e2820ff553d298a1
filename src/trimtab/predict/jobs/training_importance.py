"""Which features estimates for training jobs rest on (thesis, table 4.1, section 4.5.2.2 and figure 4.8).

The thesis' features: application (what the model is made of and how it is trained), infrastructure (workers,
shape, CPU, memory), and the local run's CPU, memory and network over time. Of a random forest on them: how
much each feature lowers the error inside the trees. Of the model: how much worse its answers for a held-out
job get when a coordinate is shuffled among its configurations.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.core import MissingDependencyError
from trimtab.predict.fewshot import Array
from trimtab.predict.jobs.training_data import SERIES, Facts, Local, Points
from trimtab.predict.jobs.training_model import SHARED, Rows, StepTimeModel, measured_rows

MOMENTS = 10
"""Points of a series: one for each of the thesis' ten minutes."""

_SCALES = ("parameters", "trainable", "learning_rate", "epochs", "layers", "input_size", "output_size")
APPLICATION, INFRASTRUCTURE = "application", "infrastructure"
GROUPS = (APPLICATION, INFRASTRUCTURE, *(f"local {name}" for name in SERIES))


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """Numbers with zero mean and deviation one over the training rows.

    The series are the same for all rows of a job, so they are kept once per job: `job` says which.
    """

    names: tuple[str, ...]  # of the columns of `static`
    groups: tuple[str, ...]  # of the columns of `flat`
    static: Array  # (rows, columns)
    series: Array  # (jobs, moments, SERIES)
    job: NDArray[np.intp]  # (rows,)

    @property
    def flat(self) -> Array:
        """Everything in one table, for models that know of no time."""
        by_series = self.series.transpose(0, 2, 1).reshape(len(self.series), -1)
        return np.concatenate([self.static, by_series[self.job]], axis=1)

    @property
    def flat_names(self) -> tuple[str, ...]:
        """Of the columns of `flat`."""
        return (*self.names, *(f"{name} at {moment + 1}" for name in SERIES for moment in range(MOMENTS)))


@dataclass(frozen=True, slots=True, eq=False)
class Encoder:
    """How rows become numbers, as learned from the training rows."""

    optimizers: tuple[str, ...]
    kinds: tuple[str, ...]
    shapes: tuple[str, ...]
    unknown: Array  # what stands for a number that is not known
    mean: Array
    deviation: Array
    series_mean: Array
    series_deviation: Array

    @classmethod
    def of(cls, training: Points, local: Local) -> "Encoder":
        """From training rows and their jobs' local runs."""
        facts = [local[job].facts for job in training.jobs]
        optimizers = tuple(sorted({each.optimizer for each in facts}))
        kinds = tuple(sorted({kind for each in facts for kind in each.layer_kinds}))
        shapes = tuple(sorted(set(training.where.shape)))
        raw = _static(training, local, optimizers, kinds, shapes)
        known = ~np.isnan(raw)
        mean = np.where(known, raw, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        filled = np.where(known, raw, mean)
        series = _series(training, local)
        across = (0, 1)
        return cls(
            optimizers,
            kinds,
            shapes,
            mean,
            filled.mean(axis=0),
            _or_one(filled.std(axis=0)),
            series.mean(axis=across),
            _or_one(series.std(axis=across)),
        )

    def encode(self, points: Points, local: Local) -> Features:
        """Any rows; an optimizer, layer or shape that training did not have is none of those it had."""
        raw = _static(points, local, self.optimizers, self.kinds, self.shapes)
        static = (np.where(np.isnan(raw), self.unknown, raw) - self.mean) / self.deviation
        series = (_series(points, local) - self.series_mean) / self.series_deviation
        application = len(_SCALES) + 1 + len(self.optimizers) + len(self.kinds)
        groups = [APPLICATION] * application + [INFRASTRUCTURE] * (static.shape[1] - application)
        groups += [f"local {name}" for name in SERIES for _ in range(MOMENTS)]
        jobs = {job: row for row, job in enumerate(points.jobs)}
        return Features(
            self._names(), tuple(groups), static, series, np.array([jobs[job] for job in points.job])
        )

    def _names(self) -> tuple[str, ...]:
        return (
            *_SCALES,
            "batch",
            *(f"optimizer {name}" for name in self.optimizers),
            *(f"layers {kind}" for kind in self.kinds),
            "workers",
            "cpus",
            "memory",
            *(f"shape {name}" for name in self.shapes),
        )


def resampled(values: Array, moments: int = MOMENTS) -> Array:
    """Means over equal parts of a series; a series shorter than that is drawn out in straight lines."""
    if len(values) < moments:
        return np.interp(np.linspace(0, len(values) - 1, moments), np.arange(len(values)), values)
    return np.array([part.mean() for part in np.array_split(values, moments)])


def _static(
    points: Points,
    local: Local,
    optimizers: tuple[str, ...],
    kinds: tuple[str, ...],
    shapes: tuple[str, ...],
) -> Array:
    """Scales as logarithms, since they span orders of magnitude; names as ones and zeros."""
    facts = [local[job].facts for job in points.job]
    where = points.where
    columns = [
        *(_logs(facts, name) for name in _SCALES),
        np.log(where.batch),
        *(np.array([each.optimizer == name for each in facts], dtype=float) for name in optimizers),
        *(np.log1p([each.layer_kinds.get(kind, 0.0) for each in facts]) for kind in kinds),
        where.workers,
        where.cpus,
        np.log(where.memory_bytes),
        *(np.array([shape == name for shape in where.shape], dtype=float) for name in shapes),
    ]
    return np.stack(columns, axis=1)


def _logs(facts: list[Facts], name: str) -> Array:
    values = np.array([getattr(each, name) for each in facts])
    return np.log(np.where(values > 0, values, np.nan))


def _series(points: Points, local: Local) -> Array:
    """(jobs, moments, SERIES); bytes as logarithms."""
    rows = []
    for job in points.jobs:
        series = local[job].typical.series
        values = np.stack([resampled(series[name]) for name in SERIES], axis=1)
        values[:, 1:] = np.log1p(np.maximum(values[:, 1:], 0.0))
        rows.append(values)
    return np.stack(rows)


def _or_one(deviation: Array) -> Array:
    return np.where(deviation > 1e-9, deviation, 1.0)


_SHUFFLES = 5


@dataclass(frozen=True, slots=True)
class Importance:
    """By feature, the largest first, and by group: parts of one for a forest, percentage points for ours."""

    features: Mapping[str, float]
    groups: Mapping[str, float]


def forest_importance(points: Points, local: Local, objective: str) -> Importance:
    """Importance in a random forest that learned dollars or seconds of all points that ran."""
    ran = points.only(points.ok)
    features = Encoder.of(ran, local).encode(ran, local)
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
    """Mean absolute percentage error of a step that shuffling a coordinate adds, mean over jobs left out."""
    random = np.random.default_rng(seed)
    worse: dict[str, list[float]] = {name: [] for name in SHARED}
    for job in points.jobs:
        ours = StepTimeModel.fitted(points.without(job), local)
        rows, values = measured_rows(points.of(job), local)
        before = _error(ours, rows, values)
        for column, name in enumerate(SHARED):
            for _ in range(_SHUFFLES):
                shuffled = rows.shared.copy()
                shuffled[:, column] = random.permutation(shuffled[:, column])
                after = _error(ours, Rows(shuffled, rows.own, rows.job), values)
                worse[name].append(after - before)
    means = {name: 100 * float(np.mean(each)) for name, each in worse.items()}
    return Importance(_largest_first(means), {})


def _error(ours: StepTimeModel, rows: Rows, values: Array) -> float:
    mean, _ = ours.process.given(ours.known, ours.values, ours.noise, rows)
    return float(np.abs(np.expm1(mean - values)).mean())


def _largest_first(by_name: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(by_name.items(), key=lambda each: -each[1]))
