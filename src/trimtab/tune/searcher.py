"""The search of `trimtab tune` and of its benches: which configuration to try next, and when to stop.

It works on any knowledge about the workload: a forecast from a local run and a model (`JobForecast`), or
other workloads' measurements, or none (`OtherWorkloads`). The first trial has the least expected regret.
Every later one maximises

    chance to complete x expected improvement over the best so far (as a part of it)

over a mixture of log-normal beliefs about every configuration. While nothing has completed, the trial is the
best of the configurations that are likely to complete. The search keeps no state: every call gets all
observations, so an interrupted session continues from its trials.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from trimtab.core import format_duration, format_money
from trimtab.predict import Array
from trimtab.tune.space import Observation, Space, Trials

if TYPE_CHECKING:
    from trimtab.tune.job_forecast import JobForecast
    from trimtab.tune.other_workloads import OtherWorkloads

LIKELY = 0.5
"""Below this chance to complete, an untried configuration is not recommended."""

STOP_BELOW, STOP_FROM = 0.1, 6
"""CherryPick's rule: stop after six trials when no configuration promises a tenth of the best value."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The configuration to try next, why, and the expected improvement as a part of the best value."""

    row: int
    reason: str
    expected_gain: float | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """Nothing more to try, and why."""

    reason: str


ALL_TRIED = Stop("every configuration has been tried")


class Mixture(NamedTuple):
    """A mixture of normals for the log seconds of every configuration: rows are components."""

    means: Array
    deviations: Array
    weights: Array


@dataclass(frozen=True, slots=True, eq=False)
class Belief:
    """Seconds of the whole workload in every configuration: 90 % of the truth from low to high.

    `runs` is the chance to complete; `by` is the evidence (rule or model), `reasons` why it is trusted.
    """

    low: Array
    value: Array
    high: Array
    runs: Array
    by: tuple[str, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Searcher:
    """Searches a space for the least objective.

    `knowledge` forecasts the workload before and after trials. `stop_below` above 0 stops after
    `least_trials` trials when no configuration promises that part of the best value. `at_random` draws trials
    instead of choosing them, to compare with.
    """

    space: Space
    objective: str
    knowledge: "JobForecast | OtherWorkloads"
    seed: int = 0
    stop_below: float = 0.0
    least_trials: int = 0
    at_random: bool = False

    def next(self, observations: Sequence[Observation]) -> Choice | Stop:
        """The configuration to try now; never one that failed or had a full trial."""
        trials = Trials.of(self.space, self.objective, observations)
        if not trials.left.size:
            return ALL_TRIED
        if self.at_random:
            return Choice(random_row(self.space, self.seed, trials), "drawn at random")
        if not observations and self.knowledge.first_pictures is None:
            return Choice(random_row(self.space, self.seed, trials), "a random start: nothing is known yet")
        runs = self.knowledge.runs(observations)
        left = trials.left[runs[trials.left] >= self.knowledge.least_chance]
        if not left.size:
            return Stop("the configurations left to try are not expected to have enough memory")
        values = self._values(observations)
        if not trials.values.size:
            means = values.weights @ values.means
            # After failures, another one counts as the worst value there is.
            after_failures = runs * means + (1 - runs) * means.max()
            regret = after_failures if observations else self._first_regret()
            row = int(left[regret[left].argmin()])
            gain = runs[row] * _gain(float(means[row]), values)[row]
            show = {"cost": format_money, "time": format_duration}.get(self.objective, "{:.4g}".format)
            reason = self.knowledge.first_reason
            if observations:
                reason = f"nothing has completed yet, and this is {runs[row]:.0%} likely to"
            return Choice(row, f"{reason}, {show(float(np.exp(means[row])))} expected", float(gain))
        gains = runs * _gain(np.log(trials.best), values)
        row = int(left[gains[left].argmax()])
        if gains[row] < self.stop_below and len(observations) >= self.least_trials:
            return Stop(f"no configuration promises {self.stop_below:.0%} of the best value")
        reason = f"the most promising: {gains[row]:.1%} of the best value, {runs[row]:.0%} likely to run"
        return Choice(row, reason, float(gains[row]))

    def recommended(self, observations: Sequence[Observation]) -> int | None:
        """The best row of what was measured and what is believed; None where nothing completes."""
        order = self.ranked(observations)
        return order[0] if order else None

    def ranked(self, observations: Sequence[Observation]) -> list[int]:
        """Rows by the objective, best first: by their last trial, or as believed; failures are left out."""
        tried = {one.row: one for one in observations}
        belief = self.knowledge.belief(observations)
        seconds = np.full(len(self.space), np.inf)
        if belief is not None:
            seconds = np.where(belief.runs >= LIKELY, belief.value, np.inf)
        for row, one in tried.items():
            seconds[row] = one.seconds if one.ok else np.inf
        values = self.space.values(self.objective, seconds)
        later = set() if self.knowledge.rents_untried else set(range(len(values))) - set(tried)
        rows = np.flatnonzero(np.isfinite(seconds)).tolist()
        return sorted(rows, key=lambda row: (row in later, values[row], row))

    def _values(self, observations: Sequence[Observation]) -> Mixture:
        """The mixture of the objective's logarithm."""
        times = self.knowledge.mixture(observations)
        values = np.log(self.space.values(self.objective, np.exp(times.means)))
        power = np.log(self.space.values(self.objective, np.e) / self.space.values(self.objective, 1.0))
        return Mixture(values, times.deviations * power, times.weights)

    def _first_regret(self) -> Array:
        """Expected log(value / best) of every configuration; a failure is as bad as the worst that runs."""
        pictures, failing = self.knowledge.first_pictures, self.knowledge.first_failing
        assert pictures is not None
        values = np.log(self.space.values(self.objective, np.exp(pictures.means)))
        eligible = np.where(failing > LIKELY, np.nan, values)
        best = np.nanmin(eligible, axis=1, keepdims=True)
        worst = np.nanmax(eligible, axis=1, keepdims=True)
        regret = (1 - failing) * np.maximum(values - best, 0.0) + failing * (worst - best)
        return np.asarray(pictures.weights @ regret / pictures.weights.sum())


def random_row(space: Space, seed: int, trials: Trials) -> int:
    """The first row that is left to try, of all rows in random order."""
    left = set(trials.left.tolist())
    return next(int(row) for row in np.random.default_rng(seed).permutation(len(space)) if int(row) in left)


def _gain(best: float, values: Mixture) -> Array:
    """Expected improvement E[max(1 - e^(x - best), 0)] of every configuration over e^best, for normal x."""
    from scipy.special import ndtr

    ahead = (best - values.means) / values.deviations
    over = values.means - best + values.deviations**2 / 2
    gains = ndtr(ahead) - np.exp(np.minimum(over, 50.0)) * ndtr(ahead - values.deviations)
    return np.asarray(values.weights @ np.clip(gains, 0.0, 1.0))
