"""A learned correction of the memory rule: what models alike were off by.

The logarithm of measured over estimated peak is smooth in what the memory is made of, so a Gaussian process
over those shares and sizes carries over from one model to those alike; far from all of them it says nothing
and leaves the rule as it is. A model's steps miss together, which counts as noise of their own. Only as many
points as carry the correction are kept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.predict.cost.step_memory import MemoryNeed

Array = NDArray[np.float64]

# The middle of the nine settings that were tried; the others scored within a point of it.
_VARIANCE = 0.01
_MODEL_NOISE = 0.003
_STEP_NOISE = 0.003
_POINTS = 60
_FEATURES = 9


@dataclass(frozen=True, slots=True, eq=False)
class MemoryCorrection:
    """Points in the space of features with their weights; `farthest` is how far a left-out model was."""

    center: Array
    scale: Array
    points: Array
    weights: Array
    farthest: float

    def factor(self, need: MemoryNeed, rule: Array) -> tuple[Array, Array]:
        """By what to multiply the rule's peaks, and how unlike the points each step is.

        The latter is the distance to the nearest, in standard deviations per feature.
        """
        place = (memory_features(need, rule) - self.center) / self.scale
        squared = _squared_distance(place, self.points)
        return np.asarray(np.exp(np.exp(-0.5 * squared) @ self.weights)), np.sqrt(squared.min(axis=1))


def memory_features(need: MemoryNeed, rule: Array) -> Array:
    """What the memory is made of, one row per step; `rule` are the estimated peaks."""
    columns = (
        need.resident / rule,
        need.saved / rule,
        need.output / rule,
        need.conv_share,
        np.log1p(need.products),
        np.log(rule),
        need.half,
        need.training,
        np.log1p(need.mean_result),
    )
    return np.stack([np.broadcast_to(np.asarray(c, dtype=float), rule.shape) for c in columns], axis=1)


def fit_memory_correction(features: Array, ratios: Array, models: Sequence[str]) -> MemoryCorrection:
    """From log(measured / estimated) of steps whose model the estimates had not seen."""
    center, scale = features.mean(axis=0), features.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    places, names = (features - center) / scale, np.array(models)
    points = places[_most_telling(places, min(_POINTS, len(places)))]
    cross = _VARIANCE * _alike(points, places)
    through_noise = _without_noise(np.column_stack([cross.T, ratios]), names)
    among = _VARIANCE * _alike(points, points) + 1e-8 * np.eye(len(points))
    weights = np.linalg.solve(among + cross @ through_noise[:, :-1], cross @ through_noise[:, -1])
    return MemoryCorrection(center, scale, points, np.asarray(_VARIANCE * weights), _farthest(places, names))


def correction_data(correction: MemoryCorrection) -> dict[str, Any]:
    """As plain data."""
    return {
        "center": _rounded(correction.center),
        "scale": _rounded(correction.scale),
        "points": [_rounded(point) for point in correction.points],
        "weights": _rounded(correction.weights),
        "farthest": round(correction.farthest, 4),
    }


def parse_correction(data: Mapping[str, Any]) -> MemoryCorrection:
    """And back; ValueError, KeyError or TypeError where it is none."""
    center, scale, points, weights = arrays = tuple(
        np.array(data[name], dtype=float) for name in ("center", "scale", "points", "weights")
    )
    if points.shape != (weights.size, center.size) or not scale.shape == center.shape == (_FEATURES,):
        raise ValueError("the points of the memory correction do not match its weights")
    if not all(np.isfinite(a).all() for a in arrays) or not (scale > 0).all():
        raise ValueError("the memory correction holds something that is not a number")
    return MemoryCorrection(center, scale, points, weights, float(data["farthest"]))


def _without_noise(columns: Array, names: NDArray[np.str_]) -> Array:
    """The columns times the inverse of the noise's covariance, which is one block per model."""
    _, which, counts = np.unique(names, return_inverse=True, return_counts=True)
    sums = np.zeros((len(counts), columns.shape[1]))
    np.add.at(sums, which, columns)
    shared = _MODEL_NOISE / (_STEP_NOISE + counts * _MODEL_NOISE)
    return np.asarray((columns - (shared[:, None] * sums)[which]) / _STEP_NOISE)


def _rounded(values: Array) -> list[float]:
    return [float(f"{v:.5g}") for v in values]


def _alike(some: Array, others: Array) -> Array:
    """One where two places are the same, falling over one standard deviation per feature."""
    return np.asarray(np.exp(-0.5 * _squared_distance(some, others)))


def _squared_distance(some: Array, others: Array) -> Array:
    """Mean over the features."""
    total = (some**2).sum(axis=1)[:, None] + (others**2).sum(axis=1)[None] - 2.0 * some @ others.T
    return np.asarray(np.maximum(total, 0.0) / some.shape[1])


def _nearest(some: Array, others: Array) -> Array:
    return np.asarray(np.sqrt(_squared_distance(some, others).min(axis=1)))


def _farthest(places: Array, names: NDArray[np.str_]) -> float:
    """The largest distance of a model's step to the nearest of other models."""
    models = np.unique(names)
    if len(models) < 2:
        return 0.0
    return float(max(_nearest(places[names == n], places[names != n]).max() for n in models))


def _most_telling(places: Array, count: int) -> list[int]:
    """Pivots of a Cholesky decomposition: each is the place that the ones before say least about."""
    left, columns, chosen = np.ones(len(places)), np.zeros((len(places), count)), []
    for j in range(count):
        pivot = int(np.argmax(left))
        if left[pivot] < 1e-9:
            break
        chosen.append(pivot)
        column = _alike(places, places[pivot : pivot + 1])[:, 0] - columns[:, :j] @ columns[pivot, :j]
        columns[:, j] = column / np.sqrt(left[pivot])
        left = np.maximum(left - columns[:, j] ** 2, 0.0)
    return chosen
