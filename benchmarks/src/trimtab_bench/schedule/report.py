"""The bench's goals and tables."""

from collections.abc import Iterator, Mapping
from operator import ge, le
from typing import Any

from trimtab_bench.harness import BenchGoal, ResultTable, goals_table, judged
from trimtab_bench.schedule.workloads import GAVEL, GAVEL_TRACE, SIA


def compared(workloads: Mapping[str, Mapping[str, Any]], listed: bool) -> dict[str, dict[str, float]]:
    """By workload, ratios of completion times: ours to Sia's here, and each to the published one.

    Only the `listed` workloads have published figures.
    """
    ratios = {}
    for name, by_policy in workloads.items():
        own, sia = by_policy["trimtab"], by_policy["sia"]
        ratios[name] = {
            "trimtab_to_sia": own["avg_jct_h"] / sia["avg_jct_h"],
            "trimtab_to_sia_p99": own["p99_jct_h"] / sia["p99_jct_h"],
        }
        if listed:
            there = SIA[name]
            ratios[name] |= {
                "sia_to_published": sia["avg_jct_h"] / there.average,
                "trimtab_to_published_sia": own["avg_jct_h"] / there.average,
                "trimtab_to_published_sia_p99": own["p99_jct_h"] / there.p99,
            }
        if listed and "gavel" in by_policy:
            ratio = by_policy["gavel"]["avg_jct_h"] / GAVEL[name].average
            ratios[name]["gavel_to_published"] = ratio
    return ratios


def goals(figures: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return judged([*_trace_goals(figures), *_promise_goals(figures), *_speed_goals(figures)])


def _trace_goals(figures: Mapping[str, Any]) -> Iterator[BenchGoal]:
    """Rivals against their own simulators, then ours over theirs; the worst of all workloads."""
    ratios = [result for result in figures["compared"].values() if "sia_to_published" in result]
    there = figures["gavel_trace"]
    if ratios:
        sia = max(abs(result["sia_to_published"] - 1.0) for result in ratios)
        yield BenchGoal("Sia: largest difference to published", sia, le, 0.10)
    gavel = [
        there[name]["avg_jct_h"] / average for name, (average, _) in GAVEL_TRACE.items() if name in there
    ]
    yield BenchGoal("Gavel: largest difference to published", max(abs(r - 1.0) for r in gavel), le, 0.10)
    if ratios:
        average = max(result["trimtab_to_published_sia"] for result in ratios)
        yield BenchGoal("average to Sia's published, worst workload", average, le, 0.90)
        p99 = max(result["trimtab_to_published_sia_p99"] for result in ratios)
        yield BenchGoal("p99 to Sia's published, worst workload", p99, le, 1.0)
    ratio = there["trimtab"]["avg_jct_h"] / there["gavel"]["avg_jct_h"]
    yield BenchGoal("average to gavel's on Gavel's trace", ratio, le, 0.75)


def _promise_goals(figures: Mapping[str, Any]) -> Iterator[BenchGoal]:
    yield BenchGoal("feasible deadlines met", figures["deadlines"]["trimtab"]["feasible_met"], ge, 0.97)
    yield BenchGoal("Jain's index of equal tenants", figures["tenants"]["trimtab"]["jain"], ge, 0.92)
    for name, where in {"priorities": "", "priorities_busier": ", busier"}.items():
        shorter = figures[name]["trimtab"]["shorter"]
        yield BenchGoal(f"high priority shorter than first come{where}", shorter, ge, 0.52)
    spot, demand = figures["spot"]["with spot"], figures["spot"]["on-demand"]
    yield BenchGoal("spot cheaper than on demand", spot["cheaper"], ge, 0.60)
    more = spot["deadlines_met"] - demand["deadlines_met"]
    yield BenchGoal("deadlines met with spot, less on demand", more, ge, 0.0)


def _speed_goals(figures: Mapping[str, Any]) -> Iterator[BenchGoal]:
    """Rounds and job-rounds are judged where all sizes were measured."""
    rounds = figures["round_seconds"]
    if "4000" in rounds:
        yield BenchGoal("seconds of a round with 1,000 jobs", rounds["1000"], le, 1.0)
        yield BenchGoal("round of 4,000 jobs to one of 1,000", rounds["4000"] / rounds["1000"], le, 4.0)
        slowest = min(figures["job_rounds_per_second"].values())
        yield BenchGoal("simulated job-rounds per second", slowest, ge, 200_000.0)
    yield BenchGoal("seconds of simulating saturn-1", figures["sim_seconds"], le, 10.0)


_PROMISES = {
    "deadlines": ("Deadlines", ("feasible", "feasible_met", "met", "refused", "avg_jct_h")),
    "priorities": ("Priorities", ("high_h", "shorter", "bound", "avg_jct_h")),
    "priorities_busier": ("Priorities, busier", ("high_h", "shorter", "bound", "avg_jct_h")),
    "tenants": ("Four equal tenants", ("jain", "jain_shares", "others_h", "bursts_h")),
    "beliefs": ("Wrong estimates", ("right_h", "wrong_h", "ratio")),
    "spot": ("Spot", ("cost", "cheaper", "deadlines_met", "avg_jct_h", "restarts")),
}


def tables(figures: Mapping[str, Any]) -> tuple[ResultTable, ...]:
    rounds = [
        (f"round with {int(n):,} jobs", f"{result:.3f} s") for n, result in figures["round_seconds"].items()
    ]
    replays = [(f"saturn-1 with {name}", f"{result:.1f} s") for name, result in figures["simulating"].items()]
    speeds = figures["job_rounds_per_second"]
    rates = [(f"{name}, job-rounds", f"{speed:,.0f}/s") for name, speed in speeds.items()]
    return (
        *(_workload_table(name, by_policy, figures) for name, by_policy in figures["workloads"].items()),
        _gavel_trace_table(figures["gavel_trace"]),
        *(_promise_table(name, figures[name]) for name in _PROMISES),
        ResultTable("Speed", ("what", "value"), [*rounds, *replays, *rates]),
        goals_table(figures["goals"], "Goals"),
    )


def _workload_table(name: str, by_policy: Mapping[str, Any], figures: Mapping[str, Any]) -> ResultTable:
    listed = "sia_to_published" in figures["compared"][name]
    there = {"sia": SIA.get(name), "gavel": GAVEL.get(name)} if listed else {}
    rows = []
    for policy, result in by_policy.items():
        own = [f"{result['avg_jct_h']:.3f}", f"{result['p99_jct_h']:.2f}", f"{result['makespan_h']:.1f}"]
        if (other := there.get(policy)) is not None:
            published = (f"{other.average:.3f}", f"{other.p99:.2f}", f"{other.makespan:.1f}")
            own = [f"{own} ({theirs})" for own, theirs in zip(own, published, strict=True)]
        used = (f"{result['jain']:.3f}", f"{result['utilization']:.0%}", f"{result['cost']:.0f}")
        rows.append((policy, *own, f"{result['restarts']:.2f}", *used))
    heads = ("policy", "mean h", "p99 h", "makespan h", "restarts", "Jain", "used", "$")
    return ResultTable(f"{name}; in parentheses as published", heads, rows)


def _gavel_trace_table(by_policy: Mapping[str, Any]) -> ResultTable:
    rows = []
    for policy, result in by_policy.items():
        other = GAVEL_TRACE.get(policy)
        average, makespan = (f"{other[0]:.2f}", f"{other[1]:.1f}") if other else ("", "")
        p99, end = f"{result['p99_jct_h']:.1f}", f"{result['makespan_h']:.1f}"
        mean, restarts = f"{result['avg_jct_h']:.2f}", f"{result['restarts']:.2f}"
        rows.append((policy, mean, average, p99, end, makespan, restarts))
    heads = ("policy", "mean h", "published", "p99 h", "makespan", "published", "restarts")
    return ResultTable("Gavel's trace", heads, rows)


def _promise_table(name: str, by_policy: Mapping[str, Any]) -> ResultTable:
    title, columns = _PROMISES[name]
    rows = [
        (policy, *(f"{result[column]:.3f}" if column in result else "" for column in columns))
        for policy, result in by_policy.items()
    ]
    return ResultTable(f"{title}, Philly jobs", ("policy", *columns), rows)
