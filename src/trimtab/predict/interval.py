"""Conformal prediction intervals, calibrated on held-out groups (models, applications, jobs).

Values of one group err together, so every group counts the same however many values it has, and the
finite-sample correction goes by the number of groups: for n exchangeable groups a coverage c is reached at
the quantile c (n + 1) / n (Vovk et al., Algorithmic Learning in a Random World, section 2.3).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.predict.tables import Array

Labels = Sequence[str] | NDArray[Any]

_ROUNDING = 1e-12  # sums of weights are rounded


def conformal_margin(
    scores: Array,
    coverage: float,
    groups: Labels | None = None,
    *,
    count: int | None = None,
    widest: float = -np.inf,
) -> float:
    """The score that bounds a new group's scores with probability `coverage`.

    Without `groups` every score is a group of its own. `count` replaces the number of groups in the
    correction. With too few groups for the coverage it is the largest score, and at least `widest`.
    """
    weights, number = _weights(groups, len(scores))
    level = coverage * (1.0 + 1.0 / (count or number))
    if level > 1.0:
        return max(widest, float(scores.max()))
    return _quantile(scores, weights, level)


def conformal_interval(values: Array, coverage: float, groups: Labels | None = None) -> tuple[float, float]:
    """Equal-tailed (low, high) that holds a new group's values with probability `coverage`.

    With too few groups for the coverage it is the range of all values.
    """
    weights, number = _weights(groups, len(values))
    tail = max(0.0, (1.0 - coverage * (1.0 + 1.0 / number)) / 2.0)
    return _quantile(values, weights, tail), _quantile(values, weights, 1.0 - tail)


def conformal_rank(count: NDArray[np.int64], level: float) -> NDArray[np.int64]:
    """Rank, from 1, of the score among `count` sorted ones that bounds a share `level` of new scores.

    Rounded outwards: down for a level below one half, else up. A rank of 0 or above `count` means that there
    are too few scores.
    """
    rank = level * (count + 1)
    return np.asarray(np.floor(rank) if level < 0.5 else np.ceil(rank), dtype=np.int64)


def _weights(groups: Labels | None, values: int) -> tuple[Array, int]:
    """Weights that sum to one, with the same total for every group, and the number of groups."""
    names = np.arange(values) if groups is None else np.asarray(groups)
    _, group, counts = np.unique(names, return_inverse=True, return_counts=True)
    return np.asarray((1.0 / (counts * len(counts)))[group]), len(counts)


def _quantile(values: Array, weights: Array, level: float) -> float:
    """The smallest value such that it and all below it have a share `level` of the weight."""
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    place = int(np.searchsorted(reached, level - _ROUNDING))
    return float(values[order][min(place, len(values) - 1)])
