"""What the encoder sees of an application: a token for every known run, and a row for every target.

Settings and metrics are those of the few-shot schema, whatever the data set; what is unknown is zero with a
flag beside it. Times are logarithms.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.core import BadInputError
from trimtab.predict.fewshot import METRICS, SCALES, SETTINGS, Array, Case, NearestKnown, Rows, Stretch

MOST_RUNS = 3  # known runs of one application that are looked at
_FAR = 10.0  # standard deviations; further out nothing is told apart
_ONE_THREAD = 1.0  # CPU
_NOTHING = 0.5  # stands for zero on a logarithmic scale

Single = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Scaling:
    """Means and deviations that bring settings, metrics and log seconds to one scale."""

    mean: Single
    deviation: Single

    @classmethod
    def of(cls, rows: Array) -> "Scaling":
        """From rows of plain numbers, NaN where unknown; what is nowhere known or the same stays as it is."""
        known = ~np.isnan(rows)
        count = np.maximum(known.sum(axis=0), 1)
        mean = np.where(known, rows, 0.0).sum(axis=0) / count
        deviation = np.sqrt(np.where(known, (rows - mean) ** 2, 0.0).sum(axis=0) / count)
        usable = deviation > 1e-6
        return cls(
            np.where(usable, mean, 0.0).astype(np.float32),
            np.where(usable, deviation, 1.0).astype(np.float32),
        )

    def __call__(self, rows: Array) -> Single:
        """Standardised, NaN kept."""
        return np.clip((rows - self.mean) / self.deviation, -_FAR, _FAR).astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """Known runs and targets of many episodes, padded to the same number; NaN where unknown."""

    runs: Array  # (episodes, MOST_RUNS, settings + metrics)
    log_seconds: Array  # (episodes, MOST_RUNS)
    is_run: Array  # 1 where there is one
    targets: Array  # (episodes, targets, settings)
    anchor: Array  # (episodes, targets), log seconds

    @classmethod
    def of(cls, case: Case, known: Rows, rows: Rows | None = None) -> "Seen":
        """One episode; its targets are `rows` of the case, or all. Of many known runs some are left out."""
        chosen = spread_out(case, known)
        log_seconds = np.log(case.seconds[chosen])
        if np.isnan(log_seconds).any():
            raise BadInputError(f"{case.label}: a known run has no time")
        settings = _powers(case.settings)
        shown = np.concatenate([settings, np.log1p(np.maximum(case.metrics, 0.0))], axis=1)[chosen]
        lacking = MOST_RUNS - len(chosen)
        targets = slice(None) if rows is None else rows
        return cls(
            np.pad(shown, ((0, lacking), (0, 0)), constant_values=np.nan)[None],
            np.pad(log_seconds, (0, lacking))[None],
            (np.arange(MOST_RUNS) < len(chosen)).astype(float)[None],
            settings[targets][None],
            anchor(case, known)[targets][None],
        )

    @classmethod
    def join(cls, parts: Sequence["Seen"]) -> "Seen":
        """Episodes with as many targets each, one after another."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__slots__))


def spread_out(case: Case, known: Rows) -> Rows:
    """At most `MOST_RUNS` of the known rows: of more, those evenly over the sorted times."""
    known = np.asarray(known)
    if not known.size:
        raise BadInputError(f"{case.label}: no configuration is known; a prediction needs one at least")
    if len(known) <= MOST_RUNS:
        return known
    order = known[np.argsort(case.seconds[known], kind="stable")]
    return np.asarray(order[np.linspace(0, len(order) - 1, MOST_RUNS).round().astype(np.intp)])


def anchor(case: Case, known: Rows) -> Array:
    """The simple answer to start from, in log seconds: by CPU share where that differs, or as the nearest."""
    share = np.minimum(case.setting("cpus"), _ONE_THREAD)
    rule = NearestKnown() if np.isnan(share).any() or np.ptp(share) == 0 else Stretch()
    return np.log(rule.predict(case, known))


def _powers(settings: Array) -> Array:
    """Settings on a scale as powers of two, none at all as half of one; switches as they are."""
    scales, switches = settings[:, : len(SCALES)], settings[:, len(SCALES) :]
    positive = np.where(scales > 0, scales, np.where(scales == 0, _NOTHING, np.nan))
    return np.concatenate([np.log2(positive), switches], axis=1)


RUN_WIDTH = len(SETTINGS) + len(METRICS)
