"""Trimtab's search: what other workloads did says what to try first, and trials say which are alike.

First comes the configuration with the least expected regret over the others. Then the one that promises most:
the chance that it completes times how much lower than the best so far it is expected to be, over all
pictures of the workload. Where nothing has completed yet, the best of what is likely to complete.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.predict import Array, Case
from trimtab.tune.method import ALL_TRIED, Belief, Choice, Search, Stop, Trials, random_start
from trimtab.tune.methods.failures import Failures
from trimtab.tune.methods.pictures import Pictures, Posterior, prior
from trimtab.tune.methods.relatives import Relatives, relatives
from trimtab.tune.observation import Observation
from trimtab.tune.space import Space

_FIRST_WORDS = 2.0  # log weight of a shared word as long as nothing was tried
_TAIL = 0.05
_HALVINGS = 40


@dataclass(frozen=True, slots=True)
class Ours:
    """A `stop_below` above 0 stops when nothing promises that part of the best value."""

    stop_below: float = 0.0
    name: str = "trimtab"

    def begin(self, space: Space, objective: str, others: Sequence[Case], seed: int) -> Search:
        found = relatives(space, others)
        logs = prior(found, _FIRST_WORDS)
        first = np.exp(logs - logs.max(initial=-np.inf))
        weights = first / first.sum() if len(first) else first
        return _OurSearch(
            self,
            space,
            objective,
            seed,
            _Regret.of(space, objective, found, weights) if found.as_they_are().size else None,
            Pictures.of(space, others, found),
            Failures.of(space, others, found, weights),
            len(others),
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Regret:
    """How much worse than the best every configuration is, in logarithms, over the others as they are."""

    expected: Array

    @classmethod
    def of(cls, space: Space, objective: str, found: Relatives, weights: Array) -> "_Regret":
        """A failure is as bad as the worst that completes."""
        rows = found.as_they_are()
        values = np.log(space.values(objective, np.exp(found.log_seconds[rows])))
        failing = found.failing[rows]
        eligible = np.where(failing > 0.5, np.nan, values)
        best = np.nanmin(eligible, axis=1, keepdims=True)
        worst = np.nanmax(eligible, axis=1, keepdims=True)
        regret = (1 - failing) * np.maximum(values - best, 0.0) + failing * (worst - best)
        return cls(np.asarray(weights[rows] @ regret / weights[rows].sum()))


@dataclass(frozen=True, slots=True, eq=False)
class _OurSearch:
    method: Ours
    space: Space
    objective: str
    seed: int
    regret: _Regret | None
    pictures: Pictures
    failures: Failures
    others: int

    def next(self, seen: Sequence[Observation]) -> Choice | Stop:
        trials = Trials.of(self.space, self.objective, seen)
        if not trials.left.size:
            return ALL_TRIED
        if not seen:
            return self._first(trials)
        posterior = self._values([one for one in seen if one.ok])
        chance = 1 - self.failures.chance(trials.rows.tolist(), trials.failed.tolist())
        if not trials.values.size:
            return self._likely(trials, posterior, chance)
        gain = (chance * _gain(np.log(trials.best), posterior))[trials.left]
        part = float(gain.max())
        row = int(trials.left[gain.argmax()])
        if part < self.method.stop_below:
            return Stop(f"no configuration promises {self.method.stop_below:.0%} of the best value")
        return Choice(
            row, f"the most promising: {part:.1%} of the best value, {chance[row]:.0%} likely to run", part
        )

    def belief(self, seen: Sequence[Observation]) -> Belief | None:
        """Before anything is known of this or another workload, there is none."""
        done = [one for one in seen if one.ok]
        if not done and self.regret is None:
            return None
        posterior = self._values(done)
        low, middle, high = (np.exp(_quantile(posterior, level)) for level in (_TAIL, 0.5, 1 - _TAIL))
        return Belief(low, middle, high)

    def _first(self, trials: Trials) -> Choice:
        if self.regret is None:
            return random_start(self.space, self.seed, trials)
        row = int(self.regret.expected.argmin())
        return Choice(row, f"the least regret on average over {self.others} other workloads")

    def _likely(self, trials: Trials, posterior: Posterior, chance: Array) -> Choice:
        """The least expected value where a failure counts as the worst there is."""
        mean = posterior.weights @ posterior.means
        expected = (chance * mean + (1 - chance) * mean.max())[trials.left]
        row = int(trials.left[expected.argmin()])
        return Choice(row, f"nothing has completed yet, and this is {chance[row]:.0%} likely to")

    def _values(self, done: Sequence[Observation]) -> Posterior:
        """The posterior of the objective's logarithm."""
        times = self.pictures.given(done)
        values = np.log(self.space.values(self.objective, np.exp(times.means)))
        power = np.log(self.space.values(self.objective, np.e) / self.space.values(self.objective, 1.0))
        return Posterior(values, times.deviations * power, times.weights)


def _gain(best: float, posterior: Posterior) -> Array:
    """By which part of the best value so far each is expected to be lower; values are log-normal."""
    from scipy.special import ndtr

    ahead = (best - posterior.means) / posterior.deviations
    over = posterior.means - best + posterior.deviations**2 / 2
    each = ndtr(ahead) - np.exp(np.minimum(over, 50.0)) * ndtr(ahead - posterior.deviations)
    return np.asarray(posterior.weights @ np.clip(each, 0.0, 1.0))


def _quantile(posterior: Posterior, level: float) -> Array:
    """Where the mixtures reach a level, by halving."""
    from scipy.special import ndtr

    low = (posterior.means - 6 * posterior.deviations).min(axis=0)
    high = (posterior.means + 6 * posterior.deviations).max(axis=0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        below = posterior.weights @ ndtr((middle - posterior.means) / posterior.deviations) < level
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray((low + high) / 2)
