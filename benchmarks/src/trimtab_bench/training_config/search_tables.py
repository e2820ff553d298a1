"""The searches' figures as tables for people, and what was aimed at."""

from collections.abc import Mapping, Sequence
from typing import Any

from trimtab_bench.goals import goals_table
from trimtab_bench.result import Table

_OURS, _GAUSSIAN = "trimtab", "cherrypick"
_FIRST, _THIRD = 1.5, 1.2  # found over optimal on cost after one and three evaluations
_ROUNDING = 1e-9  # of sums, not of what is shown

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
"""What somebody else measured on the same files by the same protocol, with settings of their own."""


def search_goals(search: Mapping[str, Any], budgets: Sequence[int]) -> dict[str, dict[str, Any]]:
    """Every goal: its value, what is wanted, and whether that was reached; against this run's own rivals."""
    at = {budget: place for place, budget in enumerate(budgets)}
    found: dict[str, dict[str, Any]] = {}
    for data, targets in search.items():
        for target, methods in targets.items():
            ours, gaussian = methods[_OURS], methods[_GAUSSIAN]
            where = f"{data}, {target}"
            for budget in budgets:
                rival = min(each[at[budget]] for name, each in methods.items() if name != _OURS)
                found[f"{where}, B={budget}, lowest"] = _goal(ours[at[budget]], rival)
            found[f"{where}, B=3 as the GP's B=11"] = _goal(ours[at[3]], gaussian[at[11]])
            if target == "cost":
                found[f"{where}, B=1"] = _goal(ours[at[1]], _FIRST)
                found[f"{where}, B=3"] = _goal(ours[at[3]], _THIRD)
                found[f"{where}, B=6 as the GP's B=22"] = _goal(ours[at[6]], gaussian[at[22]])
    return found


def _goal(value: float, most: float) -> dict[str, Any]:
    return {"value": value, "wanted": f"at most {most:.3f}", "met": value <= most + _ROUNDING}


def search_tables(figures: Mapping[str, Any], budgets: Sequence[int]) -> tuple[Table, ...]:
    """Found over optimal, then what it took, then the goals."""
    tables = []
    for data, targets in figures["search"].items():
        for target, methods in targets.items():
            tables.append(_found(data, target, methods, budgets))
            spent, stopped = figures["spending"][data][target], figures["stopped"][data][target]
            tables.append(_spent(data, target, spent, stopped, budgets))
    return (*tables, goals_table(figures["search_goals"], "Goals of the searches"))


def _found(data: str, target: str, methods: Mapping[str, Any], budgets: Sequence[int]) -> Table:
    rows = [(name, *(f"{value:.3f}" for value in each)) for name, each in methods.items()]
    for name, each in _BASELINES.get((data, target), {}).items():
        rows.append((f"{name}, by others", *(f"{value:.2f}" for value in each)))
    heads = ("method", *(f"B={budget}" for budget in budgets))
    return Table(f"{data}, {target}: found over optimal after B evaluations", heads, tuple(rows))


def _spent(
    data: str, target: str, spent: Mapping[str, Any], stopped: Mapping[str, Any], budgets: Sequence[int]
) -> Table:
    unit = "dollars" if target == "cost" else "seconds"
    rows = tuple(
        (
            name,
            *(f"{value:.1f}" for value in each[f"{unit}_over_best"]),
            f"{stopped[name]['trials']:.1f}",
            f"{stopped[name]['found']:.3f}",
        )
        for name, each in spent.items()
    )
    heads = ("method", *(f"B={budget}" for budget in budgets), "stops after", "found then")
    title = (
        f"{data}, {target}: {unit} spent on trials over those of the best configuration, and the rule to stop"
    )
    return Table(title, heads, rows)
