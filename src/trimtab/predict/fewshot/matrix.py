"""The training times as one matrix, cases by configurations, and how far two configurations are apart."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trimtab.predict.fewshot.case import Case
from trimtab.predict.fewshot.schema import SCALES, Array


@dataclass(frozen=True, slots=True, eq=False)
class TimeMatrix:
    """`log_seconds` has a row per case and a column per configuration; NaN where it was not measured."""

    column_of: dict[str, int]
    settings: Array
    log_seconds: Array
    _ratios: dict[int, Array] = field(default_factory=dict)

    @classmethod
    def of(cls, cases: Sequence[Case]) -> "TimeMatrix":
        column_of: dict[str, int] = {}
        settings: list[Array] = []
        for case in cases:
            for key, row in zip(case.configurations, case.settings, strict=True):
                if key not in column_of:
                    column_of[key] = len(settings)
                    settings.append(row)
        log_seconds = np.full((len(cases), len(settings)), np.nan)
        for i, case in enumerate(cases):
            log_seconds[i, [column_of[key] for key in case.configurations]] = np.log(case.seconds)
        return cls(column_of, np.array(settings), log_seconds)

    def columns(self, case: Case) -> NDArray[np.intp]:
        """The column of each of the case's configurations; of one never seen, that of the nearest to it."""
        found = [self.column_of.get(key, -1) for key in case.configurations]
        columns = np.array(found, dtype=np.intp)
        unseen = np.flatnonzero(columns < 0)
        if unseen.size:
            columns[unseen] = distances(case.settings[unseen], self.settings).argmin(axis=1)
        return columns

    def median_log_ratio(self, column: int) -> Array:
        """Over the cases, the median of log(seconds there / seconds in this column); NaN if none has both."""
        if column not in self._ratios:
            self._ratios[column] = column_medians(self.log_seconds - self.log_seconds[:, column, None])
        return self._ratios[column]


def distances(first: Array, second: Array) -> Array:
    """How far configurations are apart, from their settings, every one of `first` to every one of `second`.

    A factor of two in a setting is one apart, and so is a switch turned or a setting only one of them has.
    """
    one, other = coordinates(first)[:, None], coordinates(second)[None]
    apart = np.abs(one - other)
    only_one = np.isnan(one) != np.isnan(other)
    return np.asarray(np.where(only_one, 1.0, np.nan_to_num(apart)).sum(axis=-1))


def coordinates(settings: Array) -> Array:
    """Settings on a scale as powers of two (none at all counts as half of one), switches as they are."""
    scales, switches = settings[:, : len(SCALES)], settings[:, len(SCALES) :]
    powers = np.log2(np.where(scales > 0, scales, np.where(scales == 0, 0.5, np.nan)))
    return np.concatenate([powers, switches], axis=1)


def column_medians(values: Array) -> Array:
    """Medians over what is known, NaN in a column where nothing is."""
    medians = np.full(values.shape[1], np.nan)
    known = ~np.isnan(values).all(axis=0)
    medians[known] = np.nanmedian(values[:, known], axis=0)
    return medians


def column_means(values: Array) -> Array:
    """Means over what is known, NaN in a column where nothing is."""
    count = (~np.isnan(values)).sum(axis=0)
    return np.where(count > 0, np.nansum(values, axis=0) / np.maximum(count, 1), np.nan)
