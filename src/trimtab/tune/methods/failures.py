"""How likely a configuration is to fail: as often as with others, and as its neighbours did here."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.predict import Array, Case
from trimtab.tune.methods.relatives import Relatives, nearness, space_places, trend
from trimtab.tune.space import Space

_ALIKE = 0.8  # how much of the first guess comes from workloads that share words with this one
_NEAR, _SLOPE, _NOISE = 0.03, 0.018, 0.02  # variances: of neighbours, of a trend, of one trial
_LEARNED = 0.3  # part of what others show about which configurations fail together
_REACH = 0.45  # neighbours of failures reach farther than those of times
_LEAST, _MOST = 0.01, 0.98
_WITHOUT_OTHERS = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class Failures:
    """Mean and covariance over configurations of a number that is 1 where it fails."""

    mean: Array
    covariance: Array

    @classmethod
    def of(cls, space: Space, others: Sequence[Case], found: Relatives, weights: Array) -> "Failures":
        """`weights` say how much every picture counts before anything was tried; they sum to one."""
        here = space_places(space, others)
        covariance = _NEAR * nearness(_REACH * here, _REACH * here) + _SLOPE * trend(here, here)
        if not len(found.failing):
            return cls(np.full(len(space), _WITHOUT_OTHERS), covariance)
        mean = _ALIKE * weights @ found.failing + (1 - _ALIKE) * found.failing.mean(axis=0)
        plain = found.failing[found.stretch == 0]
        apart = plain - plain.mean(axis=0)
        return cls(mean, covariance + _LEARNED * apart.T @ apart / len(plain))

    def chance(self, completed: Sequence[int], failed: Sequence[int]) -> Array:
        """The chance of every configuration to fail, after these trials."""
        rows = np.array([*completed, *failed], dtype=np.intp)
        if not rows.size:
            return np.clip(self.mean, _LEAST, _MOST)
        shown = np.array([0.0] * len(completed) + [1.0] * len(failed))
        among = self.covariance[np.ix_(rows, rows)] + _NOISE * np.eye(len(rows))
        pull = np.linalg.solve(among, shown - self.mean[rows])
        return np.clip(self.mean + self.covariance[:, rows] @ pull, _LEAST, _MOST)
