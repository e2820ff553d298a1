"""Tables and goals of the searches, and the bound of a first choice."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trimtab.predict.fewshot.case import Case
from trimtab.tune.space import Space
from trimtab_bench.harness import ResultTable, goals_table

_OURS, _GAUSSIAN = "trimtab", "cherrypick"
_FIRST, _THIRD = 1.5, 1.2  # found over optimal on cost after one and three evaluations
_ROUNDING = 1e-9  # tolerance for rounding errors of sums

_BASELINES = {
    ("multicloud", "cost"): {
        "random": (9.18, 4.24, 2.75, 1.97, 1.44),
        "cherrypick": (8.24, 4.38, 2.98, 1.81, 1.21),
        "trees": (8.24, 4.38, 2.99, 2.00, 1.34),
    },
    ("multicloud", "time"): {
        "random": (2.38, 1.70, 1.45, 1.29, 1.15),
        "cherrypick": (2.28, 1.68, 1.42, 1.23, 1.08),
        "trees": (2.28, 1.68, 1.43, 1.28, 1.14),
    },
    ("scout", "cost"): {
        "random": (2.37, 1.59, 1.32, 1.18, 1.09),
        "cherrypick": (2.60, 1.73, 1.44, 1.19, 1.04),
        "trees": (2.60, 1.73, 1.35, 1.14, 1.08),
    },
    ("scout", "time"): {
        "random": (4.29, 1.95, 1.42, 1.20, 1.08),
        "cherrypick": (3.58, 1.89, 1.44, 1.08, 1.00),
        "trees": (3.58, 1.89, 1.34, 1.06, 1.01),
    },
}
"""Results of others on the same files by the same protocol, with settings of their own."""


def search_goals(search: Mapping[str, Any], budgets: Sequence[int]) -> dict[str, dict[str, Any]]:
    """Every goal: its value, its bound, and whether it is met; against this run's own rivals."""
    at = {budget: place for place, budget in enumerate(budgets)}
    goals: dict[str, dict[str, Any]] = {}
    for data, targets in search.items():
        for target, methods in targets.items():
            own, gaussian = methods[_OURS], methods[_GAUSSIAN]
            where = f"{data}, {target}"
            for budget in budgets:
                rival = min(entry[at[budget]] for name, entry in methods.items() if name != _OURS)
                goals[f"{where}, B={budget}, lowest"] = _goal(own[at[budget]], rival)
            goals[f"{where}, B=3 as the GP's B=11"] = _goal(own[at[3]], gaussian[at[11]])
            if target == "cost":
                goals[f"{where}, B=1"] = _goal(own[at[1]], _FIRST)
                goals[f"{where}, B=3"] = _goal(own[at[3]], _THIRD)
                goals[f"{where}, B=6 as the GP's B=22"] = _goal(own[at[6]], gaussian[at[22]])
    return goals


def _goal(value: float, most: float) -> dict[str, Any]:
    return {"value": value, "wanted": f"at most {most:.3f}", "met": value <= most + _ROUNDING}


def search_tables(figures: Mapping[str, Any], budgets: Sequence[int]) -> tuple[ResultTable, ...]:
    """Found over optimal, then spending, for each data set and objective; then the goals."""
    tables = []
    heads = ("method", *(f"B={budget}" for budget in budgets))
    for data, targets in figures["search"].items():
        for target, methods in targets.items():
            rows = [(name, *(f"{value:.3f}" for value in values)) for name, values in methods.items()]
            rows += [
                (f"{name}, by others", *(f"{value:.2f}" for value in values))
                for name, values in _BASELINES.get((data, target), {}).items()
            ]
            title = f"{data}, {target}: found over optimal after B evaluations"
            tables.append(ResultTable(title, heads, rows))
            spending, stopped = figures["spending"][data][target], figures["stopped"][data][target]
            unit = "dollars" if target == "cost" else "seconds"
            rows = [
                (
                    name,
                    *(f"{value:.1f}" for value in entry[f"{unit}_over_best"]),
                    f"{stopped[name]['trials']:.1f}",
                    f"{stopped[name]['found']:.3f}",
                )
                for name, entry in spending.items()
            ]
            title = f"{data}, {target}: {unit} spent on trials over those of the best configuration"
            columns = (*heads, "stops after", "found then")
            tables.append(ResultTable(f"{title}, and the rule to stop", columns, rows))
    return (*tables, goals_table(figures["search_goals"], "Goals of the searches"))


def best_first_choices(spaces: Mapping[str, Sequence[tuple[Space, Case]]]) -> dict[str, dict[str, float]]:
    """Least found over optimal after one evaluation, for a search that knows only a workload's words.

    Workloads of the same words look the same before anything is tried, so a search that does not guess
    chooses the same configuration for all of them. The best such choice, found in hindsight, is the bound, by
    data set and objective.
    """
    bounds = dict[str, dict[str, float]]()
    for name, cases in spaces.items():
        groups: dict[frozenset[str], list[tuple[Space, Case]]] = {}
        for space, case in cases:
            groups.setdefault(space.words, []).append((space, case))
        bounds[name] = {
            target: sum(_least(group, target) * len(group) for group in groups.values()) / len(cases)
            for target in ("cost", "time")
        }
    return bounds


def _least(cases: Sequence[tuple[Space, Case]], target: str) -> float:
    """The mean over the cases of the best configuration that all of them have."""
    by_name = []
    for space, case in cases:
        values = space.values(target, case.seconds)
        completed = values[case.ok]
        # A failure counts as the worst that completed.
        over_optimal = np.where(case.ok, values, completed.max()) / completed.min()
        by_name.append(dict(zip(case.configurations, over_optimal, strict=True)))
    shared = set.intersection(*(set(entry) for entry in by_name))
    return min(float(np.mean([entry[name] for entry in by_name])) for name in shared)


def first_choices_table(bounds: Mapping[str, Mapping[str, float]]) -> ResultTable:
    title = "The best first choice in hindsight for all workloads of the same words"
    columns = {target: f"{{{target}:.3f}}" for target in ("cost", "time")}
    return ResultTable.of(title, "data", bounds, columns)
