"""How likely a job fits in a machine's memory, by how the peak of its local run compares with the limit."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.predict.fewshot import Array

# Before anything is known: the limit a job needs is its local peak, give or take a tenth.
_SHIFT, _SPREAD = 0.0, 0.1
_SHIFT_DOUBT, _SPREAD_DOUBT = 0.2, 0.5
_NEVER, _ALWAYS = 1e-6, 1.0 - 1e-6


@dataclass(frozen=True, slots=True)
class Fitting:
    """log(limit / local peak) above which half of the jobs fit, and how gradual that is."""

    shift: float = _SHIFT
    spread: float = _SPREAD

    @classmethod
    def learned(cls, room: Array, fitted: NDArray[np.bool_]) -> "Fitting":
        """The likeliest, given log(limit / local peak) of measured points and whether they fitted."""
        from scipy.optimize import minimize

        def loss(place: Array) -> float:
            chance = cls(place[0], float(np.exp(place[1]))).chance(room)
            likely = np.where(fitted, chance, 1.0 - chance)
            doubt = (place[0] - _SHIFT) / _SHIFT_DOUBT, (place[1] - np.log(_SPREAD)) / _SPREAD_DOUBT
            return float(-np.log(likely).sum() + 0.5 * (doubt[0] ** 2 + doubt[1] ** 2))

        found = minimize(loss, [_SHIFT, np.log(_SPREAD)], method="Nelder-Mead").x
        return cls(float(found[0]), float(np.exp(found[1])))

    def chance(self, room: Array) -> Array:
        """That a job with so much room fits."""
        from scipy.special import ndtr

        return np.asarray(np.clip(ndtr((room - self.shift) / self.spread), _NEVER, _ALWAYS))

    def given(self, room: Array, tried: NDArray[np.intp], fitted: NDArray[np.bool_]) -> Array:
        """The same after trials of this job: what has no less room than one that fitted, fits."""
        chance = self.chance(room)
        for row, did in zip(tried, fitted, strict=True):
            chance[room >= room[row] if did else room <= room[row]] = did
        chance[tried] = fitted
        return chance
