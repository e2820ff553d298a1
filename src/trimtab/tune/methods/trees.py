"""A random forest over the settings with expected improvement, as SMAC does (LION 2011).

Its trees disagree where little was tried; that is the doubt. A failed trial counts as twice the worst. It
learns from no other workload.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from trimtab.predict import Array, Case
from trimtab.tune.method import Search, Trials
from trimtab.tune.methods.surrogate import Guess, SurrogateSearch
from trimtab.tune.space import Space


@dataclass(frozen=True, slots=True)
class Trees:
    """How many trials are random first, and how many trees grow."""

    starts: int = 3
    trees: int = 20
    name: str = "trees"

    def begin(self, space: Space, objective: str, others: Sequence[Case], seed: int) -> Search:
        guess = partial(_forest, space.coordinates(), seed, self.trees)
        return SurrogateSearch(space, objective, seed, self.starts, guess)


def _forest(places: Array, seed: int, trees: int, trials: Trials) -> Guess:
    from sklearn.ensemble import RandomForestRegressor

    rows, values = trials.punished()
    forest = RandomForestRegressor(trees, random_state=seed).fit(places[rows], values)
    votes = np.array([tree.predict(places) for tree in forest.estimators_])
    low, high = np.quantile(votes, (0.05, 0.95), axis=0)
    return Guess(votes.mean(axis=0), votes.std(axis=0), low, high)
