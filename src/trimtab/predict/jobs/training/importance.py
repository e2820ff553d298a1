"""Which features an answer rests on, as data for a plot (thesis, section 4.5.2.2 and figure 4.8).

Of the random forests: how much each feature lowers the error inside the trees. Of ours: how much worse
answers for a left-out job get when a coordinate is shuffled among its configurations.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trimtab.predict.fewshot import Array
from trimtab.predict.jobs.training.baselines import fitted_forest
from trimtab.predict.jobs.training.coordinates import SHARED
from trimtab.predict.jobs.training.features import GROUPS
from trimtab.predict.jobs.training.local_runs import Local
from trimtab.predict.jobs.training.ours import Ours, measured_rows
from trimtab.predict.jobs.training.process import Rows
from trimtab.predict.jobs.training.table import Points

_SHUFFLES = 5


@dataclass(frozen=True, slots=True)
class Importance:
    """By feature, the largest first, and by group: parts of one for a forest, percentage points for ours."""

    features: Mapping[str, float]
    groups: Mapping[str, float]


def forest_importance(points: Points, local: Local, objective: str, classify: bool = False) -> Importance:
    """Of a random forest for dollars or seconds, or for top configurations, on all points that ran."""
    ran = points.only(points.ok)
    model, features = fitted_forest(ran, local, objective, classify)
    weights = np.asarray(model.feature_importances_)
    groups = np.array(features.groups)
    return Importance(
        _largest_first(dict(zip(features.flat_names, weights.tolist(), strict=True))),
        {group: float(weights[groups == group].sum()) for group in GROUPS},
    )


def our_importance(points: Points, local: Local, seed: int = 0) -> Importance:
    """Mean absolute percentage error of a step that shuffling a coordinate adds, mean over jobs left out."""
    random = np.random.default_rng(seed)
    worse: dict[str, list[float]] = {name: [] for name in SHARED}
    for job in points.jobs:
        ours = Ours.fitted(points.without(job), local)
        rows, values = measured_rows(points.of(job), local)
        before = _error(ours, rows, values)
        for column, name in enumerate(SHARED):
            for _ in range(_SHUFFLES):
                shuffled = rows.shared.copy()
                shuffled[:, column] = random.permutation(shuffled[:, column])
                after = _error(ours, Rows(shuffled, rows.own, rows.job), values)
                worse[name].append(after - before)
    means = {name: 100 * float(np.mean(each)) for name, each in worse.items()}
    return Importance(_largest_first(means), {})


def _error(ours: Ours, rows: Rows, values: Array) -> float:
    mean, _ = ours.process.given(ours.known, ours.values, ours.noise, rows)
    return float(np.abs(np.expm1(mean - values)).mean())


def _largest_first(by_name: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(by_name.items(), key=lambda each: -each[1]))
