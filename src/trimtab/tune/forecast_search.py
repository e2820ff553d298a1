"""Our search where there is a forecast before the first trial: expected improvement on the forecast."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from trimtab.core import format_duration, format_money
from trimtab.predict import Array
from trimtab.tune.method import ALL_TRIED, Belief, Choice, Stop, Trials
from trimtab.tune.observation import Observation
from trimtab.tune.space import Space

LIKELY = 0.5
"""Below this chance that it runs, a configuration is nobody's best."""


@dataclass(frozen=True, slots=True, eq=False)
class Forecasted:
    """Seconds of the whole job in every configuration, 90 % of the truth from low to high; who says so, why.

    `deviation` is that of log seconds; `runs` is the chance that it has the memory.
    """

    low: Array
    value: Array
    high: Array
    deviation: Array
    runs: Array
    by: tuple[str, ...]
    reasons: tuple[str, ...]


class Forecast(Protocol):
    """A forecast that takes trials into account."""

    def given(self, seen: Sequence[Observation]) -> Forecasted:
        """The forecast after these trials."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class ForecastSearch:
    """First what is forecast to be best, then what may improve on the best so far by most."""

    space: Space
    objective: str
    forecast: Forecast

    def next(self, seen: Sequence[Observation]) -> Choice | Stop:
        trials = Trials.of(self.space, self.objective, seen)
        if not trials.left.size:
            return ALL_TRIED
        there = self.forecast.given(seen)
        left = trials.left[there.runs[trials.left] >= LIKELY]
        if not left.size:
            return Stop("what is left to try is not expected to have the memory it needs")
        value = self.space.values(self.objective, there.value)
        foreseen = int(left[value[left].argmin()])
        best = trials.best if trials.rows.size else float(value[foreseen])
        gain = there.runs * _improvement(best, value, there.deviation) / best
        row = int(left[gain[left].argmax()]) if trials.rows.size else foreseen
        first = "forecast to be the best" if row == foreseen else "uncertain enough to be better"
        return Choice(
            row, f"{first}, {self._told(float(value[row]))} by the {there.by[row]}", float(gain[row])
        )

    def belief(self, seen: Sequence[Observation]) -> Belief:
        there = self.forecast.given(seen)
        low, value, high = (
            self.space.values(self.objective, column) for column in (there.low, there.value, there.high)
        )
        return Belief(low, value, high)

    def _told(self, value: float) -> str:
        return format_money(value) if self.objective == "cost" else format_duration(value)


def _improvement(best: float, value: Array, deviation: Array) -> Array:
    """What is expected below `best`, of values whose logarithm is normal around that of `value`."""
    from scipy.special import ndtr

    spread = np.maximum(deviation, 1e-6)
    below = (np.log(best) - np.log(value)) / spread
    mean = value * np.exp(spread**2 / 2)
    return np.asarray(np.maximum(0.0, best * ndtr(below) - mean * ndtr(below - spread)))
