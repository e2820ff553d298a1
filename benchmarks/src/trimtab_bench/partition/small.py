"""Small random graphs, where the best cut is known: how close ours comes to it, and how much sooner."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from trimtab.partition import (
    Devices,
    Effort,
    Layout,
    Problem,
    Recipe,
    best_cut,
    devices_of,
    problem_of,
    solve_exactly,
)
from trimtab_bench.partition.random_graphs import FAMILIES, random_graph

CASES, QUICK_CASES = 200, 20
TIME_LIMIT = 60.0
"""Seconds that the exact solver gets for a case."""
_CLOSE = 0.01
_NODES = (8, 40)
_MICROBATCHES = (1, 4, 8)
_SAMPLES = 8  # of a micro-batch
_TIGHT = 0.5  # share of cases
_ROOM = (1.3, 2.5)  # memory in all, relative to what one device for all would need, where it is tight
_KINDS = ("h100", "a100", "v100", "a10g", "t4", "p100", "k80")
_NETWORKS = ("10Gbit", "25Gbit", "100Gbit", "400Gbit")


@dataclass(frozen=True, slots=True)
class Case:
    """One random problem, and what it was drawn from."""

    family: str
    nodes: int
    devices: str
    kind: str
    microbatches: int
    tight: bool
    problem: Problem


def case(number: int, seed: int) -> Case:
    """A case of the family whose turn it is; everything else is drawn."""
    draw = np.random.default_rng((seed, number))
    family = list(FAMILIES)[number % len(FAMILIES)]
    nodes = int(draw.integers(_NODES[0], _NODES[1] + 1))
    kind = ("equal", "two-tier", "unequal")[number // len(FAMILIES) % 3]
    told, network = _devices(kind, int(draw.integers(2, 5)), draw), str(draw.choice(_NETWORKS))
    microbatches, recompute = int(draw.choice(_MICROBATCHES)), bool(draw.random() < 0.25)
    layout = Layout(shares=(_SAMPLES,), microbatches=microbatches, recompute=recompute)
    graph, devices = random_graph(family, nodes, seed * 1000 + number), devices_of(told, network)
    recipe = Recipe(_SAMPLES * microbatches)
    problem = problem_of(graph, devices, recipe, layout, _rows(devices))
    tight = bool(draw.random() < _TIGHT)
    if tight:
        problem = _tightened(problem, float(draw.uniform(*_ROOM)))
    return Case(family, nodes, told, kind, microbatches, tight, problem)


def _rows(devices: Devices) -> tuple[tuple[tuple[int, ...], ...], ...]:
    return tuple(((number,),) for number in range(len(devices)))


def _devices(kind: str, count: int, draw: np.random.Generator) -> str:
    """One kind, two, or as many as there are devices; in words."""
    kinds = [str(each) for each in draw.permutation(_KINDS)]
    if kind == "equal":
        return f"{kinds[0]}:{count}"
    if kind == "two-tier":
        few = int(draw.integers(1, count))
        return f"{kinds[0]}:{few},{kinds[1]}:{count - few}"
    return ",".join(f"{each}:1" for each in kinds[:count])


def _tightened(problem: Problem, room: float) -> Problem:
    """The same with less memory: all devices together have `room` times what all on one would take."""
    whole = problem.cost(np.zeros(len(problem.graph), dtype=np.int64), [0]).row_memory[0]
    capacity = problem.capacity / problem.capacity.sum() * (room * whole)
    return replace(problem, capacity=capacity + problem.base)


def small_figures(number: int, seed: int) -> dict[str, Any]:
    """Seconds of a step by both, infinite as None, and how long each looked."""
    drawn = case(number, seed)
    exact = solve_exactly(drawn.problem, TIME_LIMIT)
    begun = perf_counter()
    ours = best_cut(drawn.problem, Effort())
    took = perf_counter() - begun
    return {
        "family": drawn.family,
        "nodes": drawn.nodes,
        "devices": drawn.devices,
        "kind": drawn.kind,
        "microbatches": drawn.microbatches,
        "tight": drawn.tight,
        "exact": exact.seconds if exact.stage_of is not None else None,
        "bound": exact.bound if np.isfinite(exact.bound) else None,
        "proven": exact.proven,
        "exact_took": exact.took,
        "ours": None if ours is None else ours.seconds,
        "took": took,
    }


def summary(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Over all cases; those without proof are compared with the best the exact solver found, and counted."""
    gaps = list(_gaps(found))
    ratios = [each["exact_took"] / each["took"] for each in found]
    proven = [each for each in found if each["proven"]]
    return {
        "cases": len(found),
        "proven": len(proven),
        "nothing_fits": sum(each["exact"] is None and each["proven"] for each in found),
        "within_1pct": sum(gap <= _CLOSE for gap in gaps) / len(gaps),
        "within_1pct_of_proven": _share_close(list(_gaps(proven))),
        "within_1pct_of_bound": sum(_above_bound(each) <= _CLOSE for each in found) / len(found),
        "optimal": sum(gap <= 2e-4 for gap in gaps) / len(gaps),
        "worst_gap": max(gaps),
        "better_than_unproven": sum(gap < 0.0 for gap in _gaps([e for e in found if not e["proven"]])),
        "speedup_over_milp": sum(each["exact_took"] for each in found) / sum(each["took"] for each in found),
        "median_speedup": median(ratios),
        "least_speedup": min(ratios),
        "median_seconds": median(each["took"] for each in found),
        "median_milp_seconds": median(each["exact_took"] for each in found),
    }


def _share_close(gaps: Sequence[float]) -> float:
    return sum(gap <= _CLOSE for gap in gaps) / len(gaps) if gaps else 1.0


def _gaps(found: Sequence[dict[str, Any]]) -> Iterator[float]:
    """By which share ours is slower than the best the exact solver has; none where both find nothing."""
    for each in found:
        if each["exact"] is None:
            yield 0.0
        elif each["ours"] is None:
            yield float("inf")
        else:
            yield each["ours"] / each["exact"] - 1.0


def _above_bound(each: dict[str, Any]) -> float:
    """By which share ours is slower than anything can be."""
    if each["ours"] is None:
        return 0.0 if each["exact"] is None and each["proven"] else float("inf")
    return float(each["ours"] / each["bound"] - 1.0) if each["bound"] else float("inf")
