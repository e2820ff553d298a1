"""The rule's forecast of a job, moved by its trials: a Gaussian process over what the rule gets wrong.

For jobs of which no model knows enough; see `model_forecast` for the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.predict import RULE, Array
from trimtab.tune.forecast_search import Forecasted
from trimtab.tune.observation import Observation
from trimtab.tune.space import Space

# Standard deviations of log(measured / rule): what all configurations share, and what is their own.
_SHARED, _OWN = 0.25, 0.15
_LENGTH = 0.5  # of settings scaled to 0..1, over which what is their own is alike
_NOISE = 0.03  # of a full trial
_DOUBT = 0.1  # of the rule's word that a configuration has, or has not, the memory
_WIDTH = 1.645  # standard deviations on each side of 90 %


@dataclass(frozen=True, slots=True, eq=False)
class RuleForecast:
    """`seconds` of the whole job and `fits` are the rule's, of every configuration; `why` it is asked."""

    space: Space
    seconds: Array
    fits: Array
    why: str = "nothing is known of other jobs"

    def given(self, seen: Sequence[Observation]) -> Forecasted:
        prior = self._covariance()
        done = [one for one in seen if one.ok]
        mean, variance = np.log(self.seconds), np.diag(prior)
        if done:
            rows = np.array([one.row for one in done])
            off = np.log([one.seconds for one in done]) - mean[rows]
            noise = np.diag([_NOISE**2 / one.fidelity for one in done])
            weights = np.linalg.solve(prior[np.ix_(rows, rows)] + noise, prior[rows]).T
            mean = mean + weights @ off
            variance = variance - np.einsum("ij,ji->i", weights, prior[rows])
        deviation = np.sqrt(np.maximum(variance, 0.0) + _NOISE**2)
        runs = np.where(self.fits > 0, 1 - _DOUBT, _DOUBT)
        for one in seen:
            runs[one.row] = float(one.ok)
        low, value, high = (np.exp(mean + by * _WIDTH * deviation) for by in (-1, 0, 1))
        count = len(self.seconds)
        return Forecasted(low, value, high, deviation, runs, (RULE,) * count, (self.why,) * count)

    def _covariance(self) -> Array:
        places = self.space.coordinates()
        apart = ((places[:, None] - places[None]) ** 2).sum(axis=-1)
        return np.asarray(_SHARED**2 + _OWN**2 * np.exp(-apart / (2 * _LENGTH**2)))
