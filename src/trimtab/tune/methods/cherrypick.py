"""CherryPick (NSDI 2017): a Gaussian process over the settings, and the configuration that promises most.

A Matérn 5/2 kernel on the scaled settings, expected improvement, and its rule to stop: from six trials on,
when no configuration promises a tenth of the best value. A failed trial counts as twice the worst. It learns
from no other workload. (The paper starts with a quasi-random sequence; here the starts are random, as every
method's that knows nothing.)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from trimtab.predict import Array, Case
from trimtab.tune.method import Search, Trials
from trimtab.tune.methods.surrogate import Guess, SurrogateSearch
from trimtab.tune.space import Space

_WIDE = 1.645  # standard deviations on either side of 90 %


@dataclass(frozen=True, slots=True)
class CherryPick:
    """Its settings; a `stop_below` of 0 never stops before everything is tried."""

    starts: int = 3
    stop_below: float = 0.1  # of the best value
    least_trials: int = 6
    name: str = "cherrypick"

    def begin(self, space: Space, objective: str, others: Sequence[Case], seed: int) -> Search:
        guess = partial(_process, space.coordinates(), seed)
        return SurrogateSearch(space, objective, seed, self.starts, guess, self.stop_below, self.least_trials)


def _process(places: Array, seed: int, trials: Trials) -> Guess:
    import warnings

    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    rows, values = trials.punished()
    kernel = ConstantKernel(1.0) * Matern(1.0, (0.05, 20.0), nu=2.5) + WhiteKernel(1e-2, (1e-5, 1.0))
    process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a length at its bound is no news
        process.fit(places[rows], values)
        mean, deviation = process.predict(places, return_std=True)
    return Guess(mean, deviation, np.maximum(mean - _WIDE * deviation, 0.0), mean + _WIDE * deviation)
