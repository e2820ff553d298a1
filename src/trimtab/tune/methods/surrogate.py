"""Searches that fit a model to their own trials and try what it promises most; they differ by the model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trimtab.predict import Array
from trimtab.tune.method import ALL_TRIED, Belief, Choice, Stop, Trials, random_start
from trimtab.tune.observation import Observation
from trimtab.tune.space import Space


class Guess(NamedTuple):
    """Mean and standard deviation of every configuration's value, and where 90 % of the truth should lie."""

    mean: Array
    deviation: Array
    low: Array
    high: Array


@dataclass(frozen=True, slots=True, eq=False)
class SurrogateSearch:
    """Random starts, then the largest expected improvement; a `stop_below` of 0 never stops early."""

    space: Space
    objective: str
    seed: int
    starts: int
    guess: Callable[[Trials], Guess]
    stop_below: float = 0.0  # of the best value
    least_trials: int = 0

    def next(self, seen: Sequence[Observation]) -> Choice | Stop:
        trials = Trials.of(self.space, self.objective, seen)
        if not trials.left.size:
            return ALL_TRIED
        if len(seen) < self.starts or not trials.values.size:
            return random_start(self.space, self.seed, trials)
        guess = self.guess(trials)
        gain = expected_improvement(trials.best, guess.mean[trials.left], guess.deviation[trials.left])
        part = float(gain.max()) / trials.best
        if len(seen) >= self.least_trials and part < self.stop_below:
            return Stop(f"no configuration promises {self.stop_below:.0%} of the best value")
        row = int(trials.left[gain.argmax()])
        return Choice(row, f"the largest expected improvement, {part:.0%} of the best value", part)

    def belief(self, seen: Sequence[Observation]) -> Belief | None:
        trials = Trials.of(self.space, self.objective, seen)
        if not trials.values.size:
            return None
        guess = self.guess(trials)
        return Belief(guess.low, np.clip(guess.mean, guess.low, guess.high), guess.high)


def expected_improvement(best: float, mean: Array, deviation: Array) -> Array:
    """E[max(best - y, 0)] for normally distributed y; where there is no doubt, the plain difference."""
    from scipy.stats import norm

    spread = np.maximum(deviation, 1e-12)
    ahead = (best - mean) / spread
    return np.asarray((best - mean) * norm.cdf(ahead) + spread * norm.pdf(ahead))
