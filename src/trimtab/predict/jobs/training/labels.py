"""Which configurations of a job count as top ones (thesis, section 4.5.1)."""

import numpy as np
from numpy.typing import NDArray

from trimtab.core import BadInputError
from trimtab.predict.fewshot import Array
from trimtab.predict.jobs.training.table import Points

MOST = 5
WITHIN = 1.5  # times the best


def is_top(values: Array) -> NDArray[np.bool_]:
    """Of one job's costs or times: among the five least, and at most 1.5 times the least; NaN never is."""
    known = ~np.isnan(values)
    if not known.any():
        return np.zeros(len(values), dtype=bool)
    order = np.argsort(np.where(known, values, np.inf), kind="stable")
    top = np.zeros(len(values), dtype=bool)
    top[order[:MOST]] = True
    return top & known & (values <= WITHIN * np.nanmin(values))


def top_labels(points: Points, objective: str) -> NDArray[np.bool_]:
    """Every job ranked by itself."""
    values, job = points.target(objective), np.array(points.job)
    labels = np.zeros(len(points), dtype=bool)
    for name in points.jobs:
        labels[job == name] = is_top(values[job == name])
    return labels


def area_under_curve(labels: NDArray[np.bool_], scores: Array) -> float:
    """Of the ROC curve: how often a top configuration has the higher score; ties count half."""
    positive, negative = scores[labels], scores[~labels]
    if not len(positive) or not len(negative):
        raise BadInputError("an area under the ROC curve needs configurations of both kinds")
    above = (positive[:, None] > negative).mean()
    return float(above + 0.5 * (positive[:, None] == negative).mean())
