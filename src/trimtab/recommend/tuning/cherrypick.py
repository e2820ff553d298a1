"""CherryPick (NSDI 2017): a Gaussian process over the settings, and the configuration that promises most.

A Matérn 5/2 kernel on the scaled settings, expected improvement, and its rule to stop: from six trials on,
when no configuration promises a tenth of the best value. A failed trial counts as twice the worst. It learns
from no other workload. (The paper starts with a quasi-random sequence; here the starts are random, as every
method's that knows nothing.)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.predict.fewshot import Array, Case
from trimtab.recommend.tuning.improvement import expected_improvement
from trimtab.recommend.tuning.method import ALL_TRIED, Belief, Choice, Search, Stop, Trials, random_start
from trimtab.recommend.tuning.observation import Observation
from trimtab.recommend.tuning.space import Space

_WIDE = 1.645  # standard deviations on either side of 90 %


@dataclass(frozen=True, slots=True)
class CherryPick:
    """Its settings; a `stop_below` of 0 never stops before everything is tried."""

    starts: int = 3
    stop_below: float = 0.1  # of the best value
    least_trials: int = 6
    name: str = "cherrypick"

    def begin(self, space: Space, objective: str, others: Sequence[Case], seed: int) -> Search:
        return _CherryPickSearch(self, space, objective, seed, space.coordinates())


@dataclass(frozen=True, slots=True, eq=False)
class _CherryPickSearch:
    method: CherryPick
    space: Space
    objective: str
    seed: int
    places: Array

    def next(self, seen: Sequence[Observation]) -> Choice | Stop:
        trials = Trials.of(self.space, self.objective, seen)
        if not trials.left.size:
            return ALL_TRIED
        if len(seen) < self.method.starts or not trials.values.size:
            return random_start(self.space, self.seed, trials)
        mean, deviation = self._process(trials)
        gain = expected_improvement(trials.best, mean[trials.left], deviation[trials.left])
        row = int(trials.left[gain.argmax()])
        part = float(gain.max()) / trials.best
        if len(seen) >= self.method.least_trials and part < self.method.stop_below:
            return Stop(f"no configuration promises {self.method.stop_below:.0%} of the best value")
        return Choice(row, f"the largest expected improvement, {part:.0%} of the best value", part)

    def belief(self, seen: Sequence[Observation]) -> Belief | None:
        trials = Trials.of(self.space, self.objective, seen)
        if not trials.values.size:
            return None
        mean, deviation = self._process(trials)
        return Belief(np.maximum(mean - _WIDE * deviation, 0.0), mean, mean + _WIDE * deviation)

    def _process(self, trials: Trials) -> tuple[Array, Array]:
        """Mean and standard deviation of every configuration, given the trials."""
        import warnings

        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

        rows, values = trials.punished()
        kernel = ConstantKernel(1.0) * Matern(1.0, (0.05, 20.0), nu=2.5) + WhiteKernel(1e-2, (1e-5, 1.0))
        process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=self.seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a length at its bound is no news
            process.fit(self.places[rows], values)
            mean, deviation = process.predict(self.places, return_std=True)
        return np.asarray(mean), np.asarray(deviation)
