"""How far predictions are off: percentages, which a few cliffs dominate, and log ratios, which none does."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.core import BadInputError
from trimtab.predict.fewshot.schema import Array


@dataclass(frozen=True, slots=True, eq=False)
class Predictions:
    """Predicted and measured seconds, with the case and the application each belongs to, and a range."""

    application: Sequence[str]
    case: Sequence[str]
    predicted: Array
    measured: Array
    low: Array | None = None
    high: Array | None = None

    @classmethod
    def join(cls, parts: Sequence["Predictions"]) -> "Predictions":
        """All of them, one after the other."""
        lows = [part.low for part in parts if part.low is not None]
        highs = [part.high for part in parts if part.high is not None]
        return cls(
            application=[name for part in parts for name in part.application],
            case=[name for part in parts for name in part.case],
            predicted=np.concatenate([part.predicted for part in parts]),
            measured=np.concatenate([part.measured for part in parts]),
            low=np.concatenate(lows) if len(lows) == len(parts) else None,
            high=np.concatenate(highs) if len(highs) == len(parts) else None,
        )


@dataclass(frozen=True, slots=True)
class Scores:
    """Errors as fractions: 0.1 is ten percent.

    Means are over cases, so that one with many configurations counts as much as one with few; the median is
    over all predictions. The standard error is that of the mean percentage error, over applications;
    `seed_deviation` is its standard deviation between seeds, where there were several.
    """

    mean_ape: float
    median_ape: float
    mean_log_ratio: float
    standard_error: float
    predictions: int
    seed_deviation: float | None = None


def score(predictions: Predictions) -> Scores:
    """The scores of one run of one method."""
    measured, predicted = predictions.measured, predictions.predicted
    if not measured.size:
        raise BadInputError("there is no prediction to score")
    if not (np.isfinite(predicted) & (predicted > 0)).all():
        raise BadInputError("a predicted time is not a positive number of seconds")
    error = np.abs(predicted / measured - 1.0)
    log_ratio = np.abs(np.log(predicted / measured))
    by_application = _group_means(predictions.application, error)
    count = len(by_application)
    return Scores(
        mean_ape=float(_group_means(predictions.case, error).mean()),
        median_ape=float(np.median(error)),
        mean_log_ratio=float(_group_means(predictions.case, log_ratio).mean()),
        standard_error=float(by_application.std(ddof=1) / np.sqrt(count)) if count > 1 else float("nan"),
        predictions=int(measured.size),
    )


def combine(runs: Sequence[Scores]) -> Scores:
    """The mean of the same test run with several seeds, and how much the seeds differ."""
    if not runs:
        raise BadInputError("there are no scores to combine")
    means = np.array([run.mean_ape for run in runs])
    return Scores(
        mean_ape=float(means.mean()),
        median_ape=float(np.mean([run.median_ape for run in runs])),
        mean_log_ratio=float(np.mean([run.mean_log_ratio for run in runs])),
        standard_error=float(np.mean([run.standard_error for run in runs])),
        predictions=sum(run.predictions for run in runs),
        seed_deviation=float(means.std(ddof=1)) if len(runs) > 1 else None,
    )


def _group_means(groups: Sequence[str], values: Array) -> Array:
    position: NDArray[np.intp] = np.unique(np.array(groups), return_inverse=True)[1]
    return np.asarray(np.bincount(position, values) / np.bincount(position))
