"""What no first choice can beat that knows a workload only by its words.

Workloads of the same words look the same before anything is tried, so whoever decides without luck chooses
the same configuration for all of them. The best such choice, found in hindsight, bounds one evaluation.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.predict.fewshot import Array, Case
from trimtab_bench.result import Table
from trimtab_bench.training_config.search import DATA, TARGETS, space_of


def best_first_choices(data: Path) -> dict[str, dict[str, float]]:
    """Found over optimal after one evaluation, by data set and target."""
    bounds = dict[str, dict[str, float]]()
    for name, read in DATA.items():
        groups: dict[frozenset[str], list[Case]] = {}
        for case in read(data).cases:
            if case.ok.any():
                groups.setdefault(space_of(case).words, []).append(case)
        count = sum(len(group) for group in groups.values())
        bounds[name] = {
            target: sum(_least(group, target) * len(group) for group in groups.values()) / count
            for target in TARGETS
        }
    return bounds


def _least(cases: Sequence[Case], target: str) -> float:
    """The mean over the cases of the best configuration that all of them have."""
    by_name = [dict(zip(case.configurations, _over_optimal(case, target), strict=True)) for case in cases]
    shared = set.intersection(*(set(each) for each in by_name))
    return min(float(np.mean([each[name] for each in by_name])) for name in shared)


def _over_optimal(case: Case, target: str) -> Array:
    """Every configuration's value over the best; a failure counts as the worst that completed."""
    values = space_of(case).values(target, case.seconds)
    completed = values[case.ok]
    return np.asarray(np.where(case.ok, values, completed.max()) / completed.min())


def first_choices_table(bounds: Mapping[str, Any]) -> Table:
    """The bounds for people."""
    rows = tuple((name, *(f"{each[target]:.3f}" for target in TARGETS)) for name, each in bounds.items())
    return Table(
        "The best first choice in hindsight for all workloads of the same words", ("data", *TARGETS), rows
    )
