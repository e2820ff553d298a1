"""Rival of the few-shot bench: gradient-boosted trees (LightGBM) on the log ratio to the known runs.

An example is a target configuration of a training case together with a set of known ones. The trees see the
settings of both, the known times and metrics, and answer log(target time / mean of the known times).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import comb
from typing import Any

import numpy as np

from trimtab.core import MissingDependencyError
from trimtab.predict.fewshot.case import Array, Case
from trimtab.predict.fewshot.predictor import (
    Rows,
    column_means,
    coordinates,
    distances,
    known_log_seconds,
    need_cases,
)


@dataclass(frozen=True, slots=True)
class Trees:
    """LightGBM at ordinary settings."""

    rounds: int = 200  # trees
    learning_rate: float = 0.05  # share of the remaining error that each tree corrects
    leaves: int = 15  # leaves per tree, at most
    smallest_leaf: int = 20  # examples in a leaf, at least
    sets_per_case: int = 30  # sets of known configurations per training case; where there are fewer, all
    threads: int = 1  # threads to train with; on a busy machine several only wait for one another
    seed: int = 0

    @property
    def name(self) -> str:
        return "LightGBM"

    def fit(self, cases: Sequence[Case]) -> "FittedTrees":
        need_cases(cases, self.name)
        return FittedTrees(self, tuple(cases))


@dataclass(frozen=True, slots=True, eq=False)
class FittedTrees:
    """One ensemble for every number of known configurations, trained when first asked for."""

    options: Trees
    cases: tuple[Case, ...]
    _ensembles: dict[int, Any] = field(default_factory=dict)

    def predict(self, case: Case, known: Rows) -> Array:
        log_seconds = known_log_seconds(case, known)
        shots = len(log_seconds)
        if shots not in self._ensembles:
            self._ensembles[shots] = _train(self.options, self.cases, shots)
        ratios = self._ensembles[shots].predict(features(case, np.asarray(known)), num_threads=1)
        return np.asarray(np.exp(log_seconds.mean() + ratios))


def features(case: Case, known: Rows) -> Array:
    """A row for every configuration of the case; the known ones come in the order of their distance to it."""
    known = np.sort(known)
    target = coordinates(case.settings)
    order = np.argsort(distances(case.settings, case.settings[known]), axis=1, kind="stable")
    nearest_first = known[order]
    log_seconds = known_log_seconds(case, known)
    known_times = log_seconds[order]
    # log1p keeps zero counters and is as good as log for large ones.
    metrics = np.log1p(np.maximum(case.metrics, 0.0))
    level = np.full((len(case), 1), log_seconds.mean())
    shown = np.broadcast_to(column_means(metrics[known]), metrics.shape)
    apart = [target - target[nearest_first[:, place]] for place in range(len(known))]
    return np.concatenate([target, level, known_times - level, shown, *apart], axis=1)


def _train(options: Trees, cases: Sequence[Case], shots: int) -> Any:
    try:
        import lightgbm
    except ImportError:
        raise MissingDependencyError("trees need LightGBM: pip install 'trimtab[learn]'") from None
    random = np.random.default_rng([options.seed, shots])
    rows, ratios = [], []
    for case in cases:
        measured = np.flatnonzero(~np.isnan(case.seconds))
        if len(measured) <= shots:
            continue
        if comb(len(measured), shots) <= options.sets_per_case:
            sets = [np.array(known, dtype=np.intp) for known in combinations(measured.tolist(), shots)]
        else:
            sets = [
                np.sort(random.choice(measured, shots, replace=False)) for _ in range(options.sets_per_case)
            ]
        for known in sets:
            targets = np.setdiff1d(measured, known)
            rows.append(features(case, known)[targets])
            ratios.append(np.log(case.seconds[targets]) - np.log(case.seconds[known]).mean())
    parameters = {
        "objective": "regression_l1",  # a cliff counts for as far as it goes, not for its square
        "learning_rate": options.learning_rate,
        "num_leaves": options.leaves,
        "min_data_in_leaf": options.smallest_leaf,
        "num_threads": options.threads,
        "seed": options.seed,
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
    }
    data = lightgbm.Dataset(np.concatenate(rows), np.concatenate(ratios))
    return lightgbm.train(parameters, data, num_boost_round=options.rounds)
