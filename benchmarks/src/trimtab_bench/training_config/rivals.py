"""Searches from the literature that `trimtab tune` is compared with. None learns from other workloads.

CherryPick (NSDI 2017): a Gaussian process over the settings and expected improvement. Trees: a random forest
with expected improvement, as SMAC does (LION 2011). Ernest (NSDI 2016): a law of the number of machines.
Random search. All start with the same random configurations; a failed trial counts as twice the worst.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trimtab.core import BadInputError
from trimtab.predict import SETTINGS, Array, Case
from trimtab.tune.other_workloads import OtherWorkloads
from trimtab.tune.searcher import ALL_TRIED, STOP_FROM, Choice, Searcher, Stop, random_row
from trimtab.tune.space import Observation, Space, Trials

_STARTS = 3
_OWN_FIT = 3  # trials of a machine type that Ernest fits a law of its own to


class Search(Protocol):
    """A search that has begun. It keeps no trials: it is given all observations each time."""

    def next(self, seen: Sequence[Observation]) -> Choice | Stop:
        """The next trial; never a configuration that has failed or had a full trial."""
        ...


Begin = Callable[[Space, str, Sequence[Case], int], Search]
"""Begins a search of a space for an objective, given other workloads' measurements and a seed."""


def trimtab(space: Space, objective: str, others: Sequence[Case], seed: int) -> Search:
    """The searcher of `trimtab tune --space`."""
    return Searcher(space, objective, OtherWorkloads(space, others), seed)


def random_search(space: Space, objective: str, others: Sequence[Case], seed: int) -> Search:
    """`trimtab tune --method random`."""
    return Searcher(space, objective, OtherWorkloads(space), seed, at_random=True)


def cherrypick(
    space: Space, objective: str, others: Sequence[Case], seed: int, stop_below: float = 0.0
) -> Search:
    """A Matérn 5/2 Gaussian process. (The paper starts with a quasi-random sequence, here it is random.)"""
    return _Surrogate(space, objective, seed, partial(_process, space.coordinates(), seed), stop_below)


def trees(space: Space, objective: str, others: Sequence[Case], seed: int) -> Search:
    """A forest of 20 trees, whose disagreement is the uncertainty."""
    return _Surrogate(space, objective, seed, partial(_forest, space.coordinates(), seed))


def ernest(space: Space, objective: str, others: Sequence[Case], seed: int) -> Search:
    """The best prediction of a law of machines."""
    machines = space.setting("nodes")
    if np.isnan(machines).any():
        unknown = space.names[int(np.isnan(machines).argmax())]
        raise BadInputError(f"{unknown} has no number of machines, and Ernest models nothing else")
    # Configurations are of one type where all settings but the number of machines are equal.
    rest = np.nan_to_num(np.delete(space.settings, SETTINGS.index("nodes"), axis=1), nan=-1.0)
    types = np.asarray(np.unique(np.round(rest, 6), axis=0, return_inverse=True)[1]).reshape(-1)
    return _Ernest(space, objective, seed, machines, types)


SEARCHES: dict[str, Begin] = {
    "trimtab": trimtab,
    "cherrypick": cherrypick,
    "trees": trees,
    "ernest": ernest,
    "random": random_search,
}


@dataclass(frozen=True, slots=True, eq=False)
class _OwnTrials(ABC):
    """Random starts, then the choice of a model of the search's own trials."""

    space: Space
    objective: str
    seed: int

    @abstractmethod
    def choose(self, seen: Sequence[Observation], trials: Trials) -> Choice | Stop:
        """The next trial by the model."""

    def next(self, seen: Sequence[Observation]) -> Choice | Stop:
        trials = Trials.of(self.space, self.objective, seen)
        if not trials.left.size:
            return ALL_TRIED
        if len(seen) < _STARTS or not trials.values.size:
            return Choice(random_row(self.space, self.seed, trials), "a random start")
        return self.choose(seen, trials)


@dataclass(frozen=True, slots=True, eq=False)
class _Surrogate(_OwnTrials):
    """The largest expected improvement; `guess` returns mean and deviation of every configuration's value."""

    guess: Callable[[Trials], tuple[Array, Array]]
    stop_below: float = 0.0  # of the best value, from STOP_FROM trials on

    def choose(self, seen: Sequence[Observation], trials: Trials) -> Choice | Stop:
        mean, deviation = self.guess(trials)
        gain = expected_improvement(trials.best, mean[trials.left], deviation[trials.left])
        part = float(gain.max()) / trials.best
        if len(seen) >= STOP_FROM and part < self.stop_below:
            return Stop(f"no configuration promises {self.stop_below:.0%} of the best value")
        row = int(trials.left[gain.argmax()])
        return Choice(row, f"the largest expected improvement, {part:.0%} of the best value", part)


def expected_improvement(best: float, mean: Array, deviation: Array) -> Array:
    """E[max(best - y, 0)] for normal y; the plain difference where the deviation is 0."""
    from scipy.stats import norm

    spread = np.maximum(deviation, 1e-12)
    ahead = (best - mean) / spread
    return np.asarray((best - mean) * norm.cdf(ahead) + spread * norm.pdf(ahead))


def with_failures(trials: Trials) -> tuple[NDArray[np.intp], Array]:
    """Rows and values, failed trials counted as twice the worst."""
    worst = 2 * float(trials.values.max()) if trials.values.size else 1.0
    return (
        np.append(trials.rows, trials.failed),
        np.append(trials.values, np.full(len(trials.failed), worst)),
    )


def _process(places: Array, seed: int, trials: Trials) -> tuple[Array, Array]:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    rows, values = with_failures(trials)
    kernel = ConstantKernel(1.0) * Matern(1.0, (0.05, 20.0), nu=2.5) + WhiteKernel(1e-2, (1e-5, 1.0))
    process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a length at its bound is expected
        process.fit(places[rows], values)
        mean, deviation = process.predict(places, return_std=True)
    return mean, deviation


def _forest(places: Array, seed: int, trials: Trials) -> tuple[Array, Array]:
    from sklearn.ensemble import RandomForestRegressor

    rows, values = with_failures(trials)
    forest = RandomForestRegressor(20, random_state=seed).fit(places[rows], values)
    votes = np.array([tree.predict(places) for tree in forest.estimators_])
    return votes.mean(axis=0), votes.std(axis=0)


@dataclass(frozen=True, slots=True, eq=False)
class _Ernest(_OwnTrials):
    """seconds = a + b work/machines + c log(machines) + d machines, a, b, c, d >= 0.

    Fitted by non-negative least squares for every machine type, from the trials of that type; a type with
    fewer than three takes the fit over all trials, where the work is shared among CPUs.
    """

    machines: Array
    types: NDArray[np.intp]

    def choose(self, seen: Sequence[Observation], trials: Trials) -> Choice | Stop:
        values = self.space.values(self.objective, self._seconds(seen))[trials.left]
        part = max(0.0, 1.0 - float(values.min()) / trials.best)
        return Choice(int(trials.left[values.argmin()]), "the best prediction of those left", part)

    def _seconds(self, seen: Sequence[Observation]) -> Array:
        """The predicted time of every configuration; a failed trial counts as twice the longest."""
        rows = np.array([one.row for one in seen], dtype=np.intp)
        longest = max(one.seconds for one in seen if one.ok)
        seconds = np.array([one.seconds if one.ok else 2 * longest for one in seen])
        cpus = self.space.setting("cpus")
        shared = 1.0 / (self.machines * np.where(np.isnan(cpus), 1.0, cpus))
        predicted = _fitted(self._features(shared), rows, seconds)
        alone = self._features(1.0 / self.machines)
        for kind in set(self.types.tolist()):
            own = self.types[rows] == kind
            if own.sum() >= _OWN_FIT:
                there = self.types == kind
                predicted[there] = _fitted(alone, rows[own], seconds[own])[there]
        return predicted

    def _features(self, work_share: Array) -> Array:
        ones = np.ones(len(self.machines))
        return np.column_stack([ones, work_share, np.log(self.machines), self.machines])


def _fitted(features: Array, rows: NDArray[np.intp], seconds: Array) -> Array:
    from scipy.optimize import nnls

    return np.asarray(features @ nnls(features[rows], seconds)[0])
