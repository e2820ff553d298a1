"""A random forest over the settings with expected improvement, as SMAC does (LION 2011).

Its trees disagree where little was tried; that is the doubt. A failed trial counts as twice the worst. It
learns from no other workload.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.predict.fewshot import Array, Case
from trimtab.recommend.tuning.improvement import expected_improvement
from trimtab.recommend.tuning.method import ALL_TRIED, Belief, Choice, Search, Stop, Trials, random_start
from trimtab.recommend.tuning.observation import Observation
from trimtab.recommend.tuning.space import Space


@dataclass(frozen=True, slots=True)
class Trees:
    """How many trials are random first, and how many trees grow."""

    starts: int = 3
    trees: int = 20
    name: str = "trees"

    def begin(self, space: Space, objective: str, others: Sequence[Case], seed: int) -> Search:
        return _TreesSearch(self, space, objective, seed, space.coordinates())


@dataclass(frozen=True, slots=True, eq=False)
class _TreesSearch:
    method: Trees
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
        each = self._votes(trials)[:, trials.left]
        gain = expected_improvement(trials.best, each.mean(axis=0), each.std(axis=0))
        row = int(trials.left[gain.argmax()])
        part = float(gain.max()) / trials.best
        return Choice(row, f"the trees' largest expected improvement, {part:.0%} of the best value", part)

    def belief(self, seen: Sequence[Observation]) -> Belief | None:
        trials = Trials.of(self.space, self.objective, seen)
        if not trials.values.size:
            return None
        each = self._votes(trials)
        low, high = np.quantile(each, (0.05, 0.95), axis=0)
        return Belief(low, np.clip(each.mean(axis=0), low, high), high)

    def _votes(self, trials: Trials) -> Array:
        """What every tree says of every configuration."""
        from sklearn.ensemble import RandomForestRegressor

        rows, values = trials.punished()
        forest = RandomForestRegressor(self.method.trees, random_state=self.seed)
        forest.fit(self.places[rows], values)
        return np.array([tree.predict(self.places) for tree in forest.estimators_])
