"""The figures as tables for people."""

from collections.abc import Mapping
from typing import Any

from trimtab_bench.goals import goals_table
from trimtab_bench.result import Table
from trimtab_bench.schedule import published

_PROMISES = {
    "deadlines": ("Deadlines", ("feasible", "feasible_met", "met", "refused", "avg_jct_h")),
    "priorities": ("Priorities", ("high_h", "shorter", "bound", "avg_jct_h")),
    "priorities_busier": ("Priorities, busier", ("high_h", "shorter", "bound", "avg_jct_h")),
    "tenants": ("Four equal tenants", ("jain", "jain_shares", "others_h", "bursts_h")),
    "beliefs": ("Wrong estimates", ("right_h", "wrong_h", "ratio")),
    "spot": ("Spot", ("cost", "cheaper", "deadlines_met", "avg_jct_h", "restarts")),
}


def tables(figures: Mapping[str, Any]) -> tuple[Table, ...]:
    """All of them, the goals last."""
    return (
        *(_workload(name, by_policy, figures) for name, by_policy in figures["workloads"].items()),
        _gavel_trace(figures["gavel_trace"]),
        *(_promise(name, figures[name]) for name in _PROMISES),
        _speed(figures),
        goals_table(figures["goals"], "Goals"),
    )


def _workload(name: str, by_policy: Mapping[str, Any], figures: Mapping[str, Any]) -> Table:
    listed = "sia_to_published" in figures["compared"][name]
    there = {"sia": published.SIA.get(name), "gavel": published.GAVEL.get(name)} if listed else {}
    rows = tuple(
        (
            policy,
            _beside(each["avg_jct_h"], there.get(policy), "average", 3),
            _beside(each["p99_jct_h"], there.get(policy), "p99", 2),
            _beside(each["makespan_h"], there.get(policy), "makespan", 1),
            f"{each['restarts']:.2f}",
            f"{each['jain']:.3f}",
            f"{each['utilization']:.0%}",
            f"{each['cost']:.0f}",
        )
        for policy, each in by_policy.items()
    )
    heads = ("policy", "mean h", "p99 h", "makespan h", "restarts", "Jain", "used", "$")
    return Table(f"{name}; in parentheses as published", heads, rows)


def _beside(value: float, other: published.Published | None, name: str, digits: int) -> str:
    """A figure, and somebody else's of it where there is one."""
    return f"{value:.{digits}f}" + (f" ({getattr(other, name):.{digits}f})" if other else "")


def _gavel_trace(by_policy: Mapping[str, Any]) -> Table:
    rows = []
    for policy, each in by_policy.items():
        other = published.GAVEL_TRACE.get(policy)
        rows.append(
            (
                policy,
                f"{each['avg_jct_h']:.2f}",
                f"{other[0]:.2f}" if other else "",
                f"{each['p99_jct_h']:.1f}",
                f"{each['makespan_h']:.1f}",
                f"{other[1]:.1f}" if other else "",
                f"{each['restarts']:.2f}",
            )
        )
    heads = ("policy", "mean h", "published", "p99 h", "makespan", "published", "restarts")
    return Table("Gavel's trace", heads, tuple(rows))


def _promise(name: str, by_policy: Mapping[str, Any]) -> Table:
    title, columns = _PROMISES[name]
    rows = tuple(
        (policy, *(f"{each[column]:.3f}" if column in each else "" for column in columns))
        for policy, each in by_policy.items()
    )
    return Table(f"{title}, Philly jobs", ("policy", *columns), rows)


def _speed(figures: Mapping[str, Any]) -> Table:
    rounds = [
        (f"round with {int(n):,} jobs", f"{each:.3f} s") for n, each in figures["round_seconds"].items()
    ]
    whole = [(f"saturn-1 with {name}", f"{each:.1f} s") for name, each in figures["simulating"].items()]
    rates = [
        (f"{name}, job-rounds", f"{each:,.0f}/s") for name, each in figures["job_rounds_per_second"].items()
    ]
    return Table("Speed", ("what", "value"), (*rounds, *whole, *rates))
