"""Checkpoint intervals by two widely used rules: Young (1974) and Daly (2006).

`saving` is seconds that a save takes (C), `rate` interruptions per second (1/M); numbers or columns of them.
Answers are useful seconds between saves, infinite where nothing interrupts.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray


def young_interval(saving: "ArrayLike", rate: "ArrayLike") -> "NDArray[np.float64]":
    """To first order: sqrt(2 C M)."""
    import numpy as np

    hazard = np.asarray(rate, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(hazard > 0.0, np.sqrt(2.0 * np.asarray(saving, dtype=float) / hazard), np.inf)


def daly_interval(saving: "ArrayLike", rate: "ArrayLike") -> "NDArray[np.float64]":
    """To higher order, good also where saving takes a large part of M; M itself where it takes twice that."""
    import numpy as np

    cost, hazard = np.asarray(saving, dtype=float), np.asarray(rate, dtype=float)
    half = cost * hazard / 2.0
    with np.errstate(divide="ignore"):
        better = young_interval(cost, hazard) * (1.0 + np.sqrt(half) / 3.0 + half / 9.0) - cost
        return np.where(half < 1.0, better, 1.0 / hazard)
