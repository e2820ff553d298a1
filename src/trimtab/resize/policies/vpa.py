"""Kubernetes' vertical pod autoscaler after its documentation and settings.

A histogram of CPU use in which samples lose half their weight in a day; the target is its 90th percentile and
15 % more, computed once a minute. A container's limit only changes when it is outside of the bounds (50th and
95th percentile with their margins), or differs from the target by a tenth.
"""

from dataclasses import dataclass, field

import numpy as np

from trimtab.resize.policies.policy import Array, CpuPeriod, Indices, SlotColumns


class Histograms:
    """Decaying histograms by slot; bucket i begins at `first` (ratio^i - 1) / (ratio - 1) CPUs."""

    def __init__(self, first: float, ratio: float, most: float) -> None:
        count = int(np.ceil(np.log(most * (ratio - 1) / first + 1) / np.log(ratio))) + 1
        self.starts = first * (ratio ** np.arange(count + 1) - 1) / (ratio - 1)
        self._columns = SlotColumns(weight=(count,))

    @property
    def ends(self) -> Array:
        """End of each bucket, in CPUs."""
        return np.asarray(self.starts[1:])

    def add(self, slots: Indices, values: Array, weights: Array) -> None:
        """Add one sample for each slot."""
        self._columns.reach(slots)
        bucket = np.clip(np.searchsorted(self.starts, values, side="right") - 1, 0, len(self.ends) - 1)
        np.add.at(self._columns["weight"], (slots, bucket), weights)

    def scale(self, factor: float) -> None:
        """Multiply all weights."""
        self._columns["weight"][:] *= factor

    def percentile(self, slots: Indices, level: float) -> Array:
        """The end of the bucket up to which `level` of the weight lies; 0 for an empty histogram."""
        self._columns.reach(slots)
        weights = self._columns["weight"][slots]
        total = weights.sum(axis=1)
        reached = np.cumsum(weights, axis=1) >= (level * total)[:, None] * (1 - 1e-12)
        return np.where(total > 0, self.ends[np.argmax(reached, axis=1)], 0.0)

    def forget(self, slots: Indices) -> None:
        self._columns.forget(slots)


@dataclass(frozen=True, slots=True)
class VpaSettings:
    """The recommender's flags and their defaults."""

    every: float = 60.0  # s between two recommendations
    half_life: float = 86_400.0  # s
    target: float = 0.9  # percentile
    lower: float = 0.5
    upper: float = 0.95
    margin: float = 0.15
    least: float = 0.025  # CPUs
    least_weight: float = 0.1  # of a sample, in CPUs; otherwise its weight is the limit
    moved: float = 0.1  # part of its limit by which a target must differ for a change


@dataclass(slots=True)
class Vpa:
    """Percentiles of a decaying histogram."""

    settings: VpaSettings = field(default_factory=VpaSettings)
    name: str = "vpa"
    traps: bool = False
    saves: bool = False
    _histograms: Histograms = field(
        init=False, repr=False, default_factory=lambda: Histograms(0.01, 1.05, 1000.0)
    )
    _sums: SlotColumns = field(
        init=False, repr=False, default_factory=lambda: SlotColumns(used=0.0, seconds=0.0)
    )
    _since: float = field(init=False, repr=False, default=0.0)

    def target(self, period: CpuPeriod) -> Array:
        """The current limit; once in `every` seconds the histogram's target."""
        s, slot = self.settings, period.slot
        self._sums.reach(slot)
        self._sums["used"][slot] += period.used * period.seconds
        self._sums["seconds"][slot] += period.seconds
        self._since += period.seconds
        if self._since < s.every - 1e-9:
            return np.array(period.limit)
        mean = self._sums["used"][slot] / self._sums["seconds"][slot]
        self._histograms.scale(0.5 ** (self._since / s.half_life))
        self._histograms.add(slot, mean, np.maximum(period.limit, s.least_weight))
        self._sums.forget(slot)
        self._since = 0.0
        center, lower, upper = (
            np.maximum(self._histograms.percentile(slot, level) * (1 + s.margin), s.least)
            for level in (s.target, s.lower, s.upper)
        )
        outside = (period.limit < lower) | (period.limit > upper)
        far = np.abs(center - period.limit) > s.moved * period.limit
        return np.where(outside | far, center, period.limit)

    def forget(self, slots: Indices) -> None:
        self._histograms.forget(slots)
        self._sums.forget(slots)
