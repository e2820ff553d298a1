"""Ernest (NSDI 2016): time as a sum of what does not shrink, what the machines share, and what they exchange.

    seconds = a + b work/machines + c log(machines) + d machines,    a, b, c, d >= 0

fitted by non-negative least squares for every machine type, from the trials of that type; a type with fewer
than three takes the fit over all trials, where the work is shared among CPUs. After a few random runs, the
configuration with the best prediction is tried, and again with what that showed. It learns from no other
workload, and needs configurations with a number of machines.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.core import BadInputError
from trimtab.predict import SETTINGS, Array, Case
from trimtab.tune.method import ALL_TRIED, Belief, Choice, Search, Stop, Trials, random_start
from trimtab.tune.observation import Observation
from trimtab.tune.space import Space

_OWN_FIT = 3  # trials of a machine type that it takes


@dataclass(frozen=True, slots=True)
class Ernest:
    """How many sample runs come first."""

    starts: int = 3
    name: str = "ernest"

    def begin(self, space: Space, objective: str, others: Sequence[Case], seed: int) -> Search:
        machines = space.setting("nodes")
        if np.isnan(machines).any():
            unknown = space.names[int(np.isnan(machines).argmax())]
            raise BadInputError(f"{unknown} has no number of machines, and Ernest models nothing else")
        return _ErnestSearch(self, space, objective, seed, machines, _types(space))


@dataclass(frozen=True, slots=True, eq=False)
class _ErnestSearch:
    method: Ernest
    space: Space
    objective: str
    seed: int
    machines: Array
    types: NDArray[np.intp]

    def next(self, seen: Sequence[Observation]) -> Choice | Stop:
        trials = Trials.of(self.space, self.objective, seen)
        if not trials.left.size:
            return ALL_TRIED
        if len(seen) < self.method.starts or not trials.values.size:
            return random_start(self.space, self.seed, trials)
        values = self.space.values(self.objective, self._seconds(seen))[trials.left]
        part = max(0.0, 1.0 - float(values.min()) / trials.best)
        return Choice(int(trials.left[values.argmin()]), "the best prediction of those left", part)

    def belief(self, seen: Sequence[Observation]) -> Belief | None:
        return None

    def _seconds(self, seen: Sequence[Observation]) -> Array:
        """The predicted time of every configuration; a failed trial counts as twice the longest."""
        rows = np.array([one.row for one in seen], dtype=np.intp)
        longest = max(one.seconds for one in seen if one.ok)
        seconds = np.array([one.seconds if one.ok else 2 * longest for one in seen])
        cpus = self.space.setting("cpus")
        shared = 1.0 / (self.machines * np.where(np.isnan(cpus), 1.0, cpus))
        predicted = _fitted(self._features(shared), rows, seconds)
        for kind in set(self.types.tolist()):
            own = self.types[rows] == kind
            if own.sum() >= _OWN_FIT:
                there = self.types == kind
                predicted[there] = _fitted(self._features(1.0 / self.machines), rows[own], seconds[own])[
                    there
                ]
        return predicted

    def _features(self, work_share: Array) -> Array:
        ones = np.ones(len(self.machines))
        return np.column_stack([ones, work_share, np.log(self.machines), self.machines])


def _fitted(features: Array, rows: NDArray[np.intp], seconds: Array) -> Array:
    from scipy.optimize import nnls

    return np.asarray(features @ nnls(features[rows], seconds)[0])


def _types(space: Space) -> NDArray[np.intp]:
    """Configurations whose settings are equal but for the number of machines have the same number."""
    rest = np.nan_to_num(np.delete(space.settings, SETTINGS.index("nodes"), axis=1), nan=-1.0)
    return np.asarray(np.unique(np.round(rest, 6), axis=0, return_inverse=True)[1]).reshape(-1)
