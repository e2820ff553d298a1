"""Whole models on many devices: ours and every rival, all judged by the same forecast."""

from collections.abc import Mapping, Sequence
from math import exp, log
from statistics import mean
from time import perf_counter
from typing import Any

from trimtab.partition import RIVALS, Forecast, Plan, SearchSettings, reached_by, solve
from trimtab_bench.partition.cases import EQUAL, Case, graph_of

HYBRID, PIPELINE = "trimtab", "trimtab-pipeline"
OURS = {HYBRID: SearchSettings(), PIPELINE: SearchSettings(pipeline_only=True)}
"""Everything that is searched, and pipelines alone, which is all that rivals can do."""
METHODS = (*OURS, *RIVALS)
ACCELERATE = ("accelerate-balanced", "accelerate-sequential")
_SAME = 0.01  # throughputs that differ by less are the same


def large_figures(case: Case, method: str) -> dict[str, Any]:
    """What one method makes of a case; throughput 0 where nothing it proposes fits."""
    graph, devices = graph_of(case.model), case.on.devices
    begun = perf_counter()
    if method in OURS:
        found = solve(graph, devices, case.recipe, OURS[method])
        took = perf_counter() - begun
        return _figures(found.plan, found.forecast) | {"took": took}
    proposals = list(RIVALS[method](graph, devices, case.recipe))
    took = perf_counter() - begun
    reached = reached_by(proposals, graph, devices, case.recipe)
    figures = _figures(reached.plan, reached.forecast) | {"took": took, "proposals": len(proposals)}
    return figures | ({"mean_throughput": mean(reached.throughputs)} if proposals else {})


def _figures(plan: Plan | None, forecast: Forecast | None) -> dict[str, Any]:
    if plan is None or forecast is None or not forecast.fits:
        return {"throughput": 0.0, "fits": False}
    return {
        "throughput": forecast.throughput,
        "fits": True,
        "step_seconds": forecast.seconds,
        "idle_gib": forecast.idle / 2**30,
        "devices": len(forecast.uses),
        "stages": len(plan.stages),
        "replicas": plan.replicas,
        "tensor": plan.tensor,
        "microbatches": plan.microbatches,
        "schedule": plan.schedule,
        "sharding": plan.sharding,
        "recompute": plan.recompute,
    }


Figures = Mapping[str, Mapping[str, Any]]
"""By case and method."""


def over_accelerate(large: Figures, kinds: Mapping[str, str], ours: str) -> dict[str, float]:
    """Ours over the better of Accelerate's two on unequal devices, and where it finds nothing that fits."""
    unequal = [by for case, by in large.items() if kinds[case] != EQUAL]
    theirs = [max(by[name]["throughput"] for name in ACCELERATE) for by in unequal]
    own = [by[ours]["throughput"] for by in unequal]
    ratios = [mine / other for mine, other in zip(own, theirs, strict=True) if mine > 0.0 < other]
    return {
        "geomean": exp(mean(log(ratio) for ratio in ratios)) if ratios else float("nan"),
        "least": min(ratios, default=float("nan")),
        "cases": len(unequal),
        "accelerate_does_not_fit": theirs.count(0.0),
        "ours_does_not_fit": own.count(0.0),
    }


def beaten(large: Figures, ours: str) -> list[str]:
    """Cases and rivals with a higher throughput than ours."""
    return [
        f"{case}: {rival}"
        for case, by in large.items()
        for rival in RIVALS
        if by[rival]["throughput"] > by[ours]["throughput"]
    ]


def idler(large: Figures, ours: str) -> list[str]:
    """Cases and rivals with the same throughput as ours and less idle memory."""
    return [
        f"{case}: {rival}"
        for case, by in large.items()
        for rival in RIVALS
        if by[rival]["fits"]
        and by[ours]["fits"]
        and abs(by[rival]["throughput"] / by[ours]["throughput"] - 1.0) <= _SAME
        and by[ours]["idle_gib"] > by[rival]["idle_gib"] * (1.0 + _SAME)
    ]


def fits(large: Figures, methods: Sequence[str]) -> dict[str, int]:
    """In how many cases each method finds something that fits."""
    return {name: sum(by[name]["fits"] for by in large.values()) for name in methods}
