"""What was aimed at, beside what was reached."""

from collections.abc import Callable, Mapping
from operator import ge, le
from typing import Any

from trimtab.bench.schedule import published

_Compare = Callable[[float, float], bool]


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
            there = published.SIA[name]
            ratios[name] |= {
                "sia_to_published": sia["avg_jct_h"] / there.average,
                "trimtab_to_published_sia": ours["avg_jct_h"] / there.average,
                "trimtab_to_published_sia_p99": ours["p99_jct_h"] / there.p99,
            }
        if listed and "gavel" in by_policy:
            ratio = by_policy["gavel"]["avg_jct_h"] / published.GAVEL[name].average
            ratios[name]["gavel_to_published"] = ratio
    return ratios


def goals(figures: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Every goal that this run can judge: its value, what is wanted, and whether that was reached."""
    found: dict[str, dict[str, Any]] = {}

    def judge(name: str, value: float, compare: _Compare, wanted: float) -> None:
        sign = "at most" if compare is le else "at least"
        found[name] = {"value": value, "wanted": f"{sign} {wanted:g}", "met": compare(value, wanted)}

    ratios = figures["compared"].values()
    if all("sia_to_published" in each for each in ratios):
        off = max(abs(each["sia_to_published"] - 1.0) for each in ratios)
        judge("Sia as published: largest difference of averages", off, le, 0.10)
        average = max(each["trimtab_to_published_sia"] for each in ratios)
        judge("average to Sia's published, worst workload", average, le, 0.90)
        p99 = max(each["trimtab_to_published_sia_p99"] for each in ratios)
        judge("99th percentile to Sia's published, worst workload", p99, le, 1.0)
    there = figures["gavel_trace"]
    known = [name for name in published.GAVEL_TRACE if name in there]
    off = max(abs(there[name]["avg_jct_h"] / published.GAVEL_TRACE[name][0] - 1.0) for name in known)
    judge("Gavel as published: largest difference of averages", off, le, 0.10)
    judge(
        "average to Gavel's on its trace",
        there["trimtab"]["avg_jct_h"] / there["gavel"]["avg_jct_h"],
        le,
        0.75,
    )
    judge("feasible deadlines met", figures["deadlines"]["trimtab"]["feasible_met"], ge, 0.97)
    judge("Jain's index of four equal tenants", figures["tenants"]["trimtab"]["jain"], ge, 0.92)
    judge(
        "high priority shorter than first come", figures["priorities_busier"]["trimtab"]["shorter"], ge, 0.52
    )
    judge("spot cheaper", figures["spot"]["with spot"]["cheaper"], ge, 0.60)
    met = {name: each["deadlines_met"] for name, each in figures["spot"].items()}
    judge("deadlines met with spot, to those on demand", met["with spot"] / met["on-demand"], ge, 1.0)
    rounds = figures["round_seconds"]
    if "4000" in rounds:
        judge("seconds of a round with 1,000 jobs", rounds["1000"], le, 1.0)
        judge("a round with 4,000 jobs, in rounds with 1,000", rounds["4000"] / rounds["1000"], le, 4.0)
        judge("job-rounds per second", min(figures["job_rounds_per_second"].values()), ge, 200_000)
    judge("seconds of simulating saturn-1", figures["sim_seconds"], le, 10.0)
    return found
