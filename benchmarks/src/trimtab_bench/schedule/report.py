"""The bench's goals and tables."""

from collections.abc import Iterator, Mapping
from operator import ge, le
from typing import Any

from trimtab_bench.harness import Goal, Table, goals_table, judged
from trimtab_bench.schedule.workloads import GAVEL, GAVEL_TRACE, SIA, Published


def compared(workloads: Mapping[str, Mapping[str, Any]], listed: bool) -> dict[str, dict[str, float]]:
    """By workload, ratios of completion times: ours to Sia's here, and each to what is published of it.

    Only the `listed` workloads have published figures.
    """
    ratios = {}
    for name, by_policy in workloads.items():
        ours, sia = by_policy["trimtab"], by_policy["sia"]
        ratios[name] = {
            "trimtab_to_sia": ours["avg_jct_h"] / sia["avg_jct_h"],
            "trimtab_to_sia_p99": ours["p99_jct_h"] / sia["p99_jct_h"],
        }
        if listed:
            there = SIA[name]
            ratios[name] |= {
                "sia_to_published": sia["avg_jct_h"] / there.average,
                "trimtab_to_published_sia": ours["avg_jct_h"] / there.average,
                "trimtab_to_published_sia_p99": ours["p99_jct_h"] / there.p99,
            }
        if listed and "gavel" in by_policy:
            ratio = by_policy["gavel"]["avg_jct_h"] / GAVEL[name].average
            ratios[name]["gavel_to_published"] = ratio
    return ratios


def goals(figures: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Every goal that this run can judge: its value, what is wanted, and whether that was reached."""
    found = [*_as_published(figures), *_traces(figures), *_promises(figures), *_speed(figures)]
    return judged(found)


def _as_published(figures: Mapping[str, Any]) -> Iterator[Goal]:
    """Others' policies, built from their description, against their own simulators: averages, the worst."""
    sia = [each["sia_to_published"] for each in figures["compared"].values() if "sia_to_published" in each]
    if sia:
        yield Goal("Sia: largest difference to published", max(abs(r - 1.0) for r in sia), le, 0.10)
    there = figures["gavel_trace"]
    gavel = [
        there[name]["avg_jct_h"] / average for name, (average, _) in GAVEL_TRACE.items() if name in there
    ]
    yield Goal("Gavel: largest difference to published", max(abs(r - 1.0) for r in gavel), le, 0.10)


def _traces(figures: Mapping[str, Any]) -> Iterator[Goal]:
    """Completion times of ours over others', in the worst workload."""
    ratios = [each for each in figures["compared"].values() if "sia_to_published" in each]
    if ratios:
        average = max(each["trimtab_to_published_sia"] for each in ratios)
        yield Goal("average to Sia's published, worst workload", average, le, 0.90)
        p99 = max(each["trimtab_to_published_sia_p99"] for each in ratios)
        yield Goal("p99 to Sia's published, worst workload", p99, le, 1.0)
    there = figures["gavel_trace"]
    ratio = there["trimtab"]["avg_jct_h"] / there["gavel"]["avg_jct_h"]
    yield Goal("average to gavel's on Gavel's trace", ratio, le, 0.75)


def _promises(figures: Mapping[str, Any]) -> Iterator[Goal]:
    yield Goal("feasible deadlines met", figures["deadlines"]["trimtab"]["feasible_met"], ge, 0.97)
    yield Goal("Jain's index of equal tenants", figures["tenants"]["trimtab"]["jain"], ge, 0.92)
    for name, where in {"priorities": "", "priorities_busier": ", busier"}.items():
        shorter = figures[name]["trimtab"]["shorter"]
        yield Goal(f"high priority shorter than first come{where}", shorter, ge, 0.52)
    spot, demand = figures["spot"]["with spot"], figures["spot"]["on-demand"]
    yield Goal("spot cheaper than on demand", spot["cheaper"], ge, 0.60)
    more = spot["deadlines_met"] - demand["deadlines_met"]
    yield Goal("deadlines met with spot, less on demand", more, ge, 0.0)


def _speed(figures: Mapping[str, Any]) -> Iterator[Goal]:
    """Rounds and job-rounds are judged where all sizes were measured."""
    rounds = figures["round_seconds"]
    if "4000" in rounds:
        yield Goal("seconds of a round with 1,000 jobs", rounds["1000"], le, 1.0)
        yield Goal("round of 4,000 jobs to one of 1,000", rounds["4000"] / rounds["1000"], le, 4.0)
        slowest = min(figures["job_rounds_per_second"].values())
        yield Goal("simulated job-rounds per second", slowest, ge, 200_000.0)
    yield Goal("seconds of simulating saturn-1", figures["sim_seconds"], le, 10.0)


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
        *(_workload_table(name, by_policy, figures) for name, by_policy in figures["workloads"].items()),
        _gavel_trace_table(figures["gavel_trace"]),
        *(_promise_table(name, figures[name]) for name in _PROMISES),
        _speed_table(figures),
        goals_table(figures["goals"], "Goals"),
    )


def _workload_table(name: str, by_policy: Mapping[str, Any], figures: Mapping[str, Any]) -> Table:
    listed = "sia_to_published" in figures["compared"][name]
    there = {"sia": SIA.get(name), "gavel": GAVEL.get(name)} if listed else {}
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


def _beside(value: float, other: Published | None, name: str, digits: int) -> str:
    """A figure, and somebody else's of it where there is one."""
    return f"{value:.{digits}f}" + (f" ({getattr(other, name):.{digits}f})" if other else "")


def _gavel_trace_table(by_policy: Mapping[str, Any]) -> Table:
    rows = []
    for policy, each in by_policy.items():
        other = GAVEL_TRACE.get(policy)
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


def _promise_table(name: str, by_policy: Mapping[str, Any]) -> Table:
    title, columns = _PROMISES[name]
    rows = tuple(
        (policy, *(f"{each[column]:.3f}" if column in each else "" for column in columns))
        for policy, each in by_policy.items()
    )
    return Table(f"{title}, Philly jobs", ("policy", *columns), rows)


def _speed_table(figures: Mapping[str, Any]) -> Table:
    rounds = [
        (f"round with {int(n):,} jobs", f"{each:.3f} s") for n, each in figures["round_seconds"].items()
    ]
    whole = [(f"saturn-1 with {name}", f"{each:.1f} s") for name, each in figures["simulating"].items()]
    rates = [
        (f"{name}, job-rounds", f"{each:,.0f}/s") for name, each in figures["job_rounds_per_second"].items()
    ]
    return Table("Speed", ("what", "value"), (*rounds, *whole, *rates))
