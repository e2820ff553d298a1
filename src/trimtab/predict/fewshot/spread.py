"""What a prediction knows about its own doubt: a weighed sample of times for every configuration."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.predict.fewshot.schema import Array


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """Possible log seconds, a row per configuration, and how likely each is; weights of a row sum to one."""

    log_seconds: Array
    weights: Array

    @classmethod
    def of(cls, log_seconds: Array, weights: Array) -> "Spread":
        """Sorted and normalised."""
        order = np.argsort(log_seconds, axis=1)
        weights = np.take_along_axis(weights, order, axis=1)
        total = weights.sum(axis=1, keepdims=True)
        return cls(np.take_along_axis(log_seconds, order, axis=1), weights / total)

    @classmethod
    def blend(cls, spreads: Sequence["Spread"], shares: Sequence[float]) -> "Spread":
        """All samples together, each spread with its share of the weight."""
        used = [(spread, share) for spread, share in zip(spreads, shares, strict=True) if share > 0]
        return cls.of(
            np.concatenate([spread.log_seconds for spread, _ in used], axis=1),
            np.concatenate([share * spread.weights for spread, share in used], axis=1),
        )

    def quantile(self, level: float) -> Array:
        """Log seconds below which a run stays with that probability."""
        return _quantile(self.log_seconds, self.weights, level)

    def point(self, caution: float) -> Array:
        """The one number to answer with, in log seconds.

        The expected absolute percentage error |p/y - 1| is least at the median under weights 1/y: an answer
        twice too high costs 100 %, one twice too low 50 %. `caution` is the power of 1/y: 0 gives the plain
        median, 1 the least percentage error if the spread is right.
        """
        tilt = -caution * (self.log_seconds - self.log_seconds.mean(axis=1, keepdims=True))
        return _quantile(self.log_seconds, self.weights * np.exp(np.clip(tilt, -50.0, 50.0)), 0.5)


def _quantile(values: Array, weights: Array, level: float) -> Array:
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
