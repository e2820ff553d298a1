"""Cases as numbers for a network: every column about as large as every other, and none of them missing.

Scales enter by their logarithm, switches as they are, metrics by the inverse hyperbolic sine of what they are
in units of their usual size: zero stays zero and a large one counts by its logarithm. A column is then
centred and divided by its spread in training; unknown becomes 0, and a column of its own says so. A column
that did not vary in training can teach nothing and is left out, so that what varies only later does no harm.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.predict.fewshot.case import Case
from trimtab.predict.fewshot.matrix import column_means, column_medians, coordinates
from trimtab.predict.fewshot.schema import METRICS, SETTINGS, Array, Flags

# Beyond so many spreads a value is only "very large": a network does not extrapolate.
_FARTHEST = 4.0


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """How the columns of one table are standardised, and which of them vary; learned from training rows."""

    centre: Array
    spread: Array
    varies: Flags
    comes_and_goes: Flags

    @classmethod
    def of(cls, values: Array) -> "Columns":
        """From rows in which NaN is unknown."""
        known = ~np.isnan(values)
        centre = np.nan_to_num(column_means(values))
        spread = np.sqrt(np.nan_to_num(column_means((values - centre) ** 2)))
        varies = spread > 1e-9 * (1.0 + np.abs(centre))
        comes_and_goes = np.asarray(known.any(axis=0) & ~known.all(axis=0))
        return cls(centre, np.where(varies, spread, 1.0), varies, comes_and_goes)

    @property
    def width(self) -> int:
        return int(self.varies.sum() + self.comes_and_goes.sum())

    def encode(self, values: Array) -> Array:
        """(…, columns) to (…, width): what varies, then a 1 where what comes and goes is unknown."""
        standard = (values[..., self.varies] - self.centre[self.varies]) / self.spread[self.varies]
        known = np.nan_to_num(np.clip(standard, -_FARTHEST, _FARTHEST))
        return np.concatenate([known, np.isnan(values[..., self.comes_and_goes])], axis=-1)


@dataclass(frozen=True, slots=True, eq=False)
class Encoder:
    """Features of known runs and of configurations to predict, for any number of episodes at once."""

    settings: Columns
    metrics: Columns
    metric_scale: Array
    level: float
    """Mean of the logarithms of the training times."""
    level_spread: float
    """Their standard deviation."""
    ratio_spread: float
    """The same within a case: how far apart the times of one application are."""

    @classmethod
    def of(cls, cases: Sequence[Case]) -> "Encoder":
        """Learned from the runs of these cases that have a time."""
        measured = [case.only(~np.isnan(case.seconds)) for case in cases if not np.isnan(case.seconds).all()]
        settings = np.concatenate([case.settings for case in measured] or [np.empty((0, len(SETTINGS)))])
        shown = np.concatenate([case.metrics for case in measured] or [np.empty((0, len(METRICS)))])
        scale = np.nan_to_num(column_medians(np.where(shown != 0, np.abs(shown), np.nan)), nan=1.0)
        times = [np.log(case.seconds) for case in measured] or [np.zeros(1)]
        apart = np.concatenate([log_seconds - log_seconds.mean() for log_seconds in times])
        return cls(
            settings=Columns.of(coordinates(settings)),
            metrics=Columns.of(np.arcsinh(shown / scale)),
            metric_scale=scale,
            level=float(np.concatenate(times).mean()),
            level_spread=float(np.concatenate(times).std()) or 1.0,
            ratio_spread=float(apart.std()) or 1.0,
        )

    @property
    def target_width(self) -> int:
        return self.settings.width

    @property
    def observation_width(self) -> int:
        return self.run_width + 2

    @property
    def run_width(self) -> int:
        return self.settings.width + self.metrics.width

    def targets(self, settings: Array) -> Array:
        """Of configurations nobody need have run: (…, settings) to (…, target_width)."""
        rows = coordinates(settings.reshape(-1, settings.shape[-1]))
        return self.settings.encode(rows).reshape(*settings.shape[:-1], self.target_width)

    def observations(self, settings: Array, log_seconds: Array, metrics: Array) -> Array:
        """Of known runs, those of an application along the last axis but one, or the last of `log_seconds`.

        A time appears twice: how long it is among all, and how far from the mean of the application's known
        ones, which would be lost in the first.
        """
        return self.with_times(self.runs(settings, metrics), log_seconds)

    def runs(self, settings: Array, metrics: Array) -> Array:
        """The part of an observation that does not depend on which others are known."""
        shown = self.metrics.encode(np.arcsinh(metrics / self.metric_scale))
        return np.concatenate([self.targets(settings), shown], axis=-1)

    def with_times(self, runs: Array, log_seconds: Array) -> Array:
        """Observations from what `runs` made of them and their times."""
        level = np.clip((log_seconds - self.level) / self.level_spread, -_FARTHEST, _FARTHEST)
        apart = (log_seconds - log_seconds.mean(axis=-1, keepdims=True)) / self.ratio_spread
        apart = np.clip(apart, -_FARTHEST, _FARTHEST)
        return np.concatenate([runs, level[..., None], apart[..., None]], axis=-1)
