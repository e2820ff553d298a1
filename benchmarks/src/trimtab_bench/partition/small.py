"""Small random graphs, where the best cut is known: the search's distance to it, and its speed."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil
from statistics import fmean as mean, median
from time import perf_counter
from typing import Any

import numpy as np

from trimtab.partition import (
    CutEffort,
    CutProblem,
    Graph,
    Layout,
    Recipe,
    best_cut,
    devices_of,
    in_order,
    problem_of,
    solve_exactly,
)

Edge = tuple[int, int]
Draw = np.random.Generator

_FLOP, _FLOP_SPREAD = 5e8, 1.0  # medians per sample, and standard deviations of logarithms
_BYTES, _BYTES_SPREAD = 5e5, 1.0
_PARAMETERS, _PARAMETERS_SPREAD = 2e6, 1.2
_SHARE_OF_SKIPS = 0.3
_WIDEST = 4  # nodes of a layer at most
_FARTHEST = 12  # nodes that an edge spans at most, or twice as many where it skips


def random_graph(family: str, nodes: int, seed: int) -> Graph:
    """A model of so many nodes, its one input and its output among them; quantities are per sample."""
    draw = np.random.default_rng((seed, nodes, list(FAMILIES).index(family)))
    edges = _joined(FAMILIES[family](nodes - 2, draw), nodes)
    inner = np.zeros(nodes)
    inner[1:-1] = 1.0

    def drawn(median: float, spread: float) -> np.ndarray:
        return np.asarray(median * np.exp(spread * draw.standard_normal(nodes)) * inner)

    size = _BYTES * np.exp(_BYTES_SPREAD * draw.standard_normal(nodes))
    used = np.array([source for source, _ in edges], dtype=np.int64)
    user = np.array([target for _, target in edges], dtype=np.int64)
    read = np.bincount(user, weights=size[used], minlength=nodes)
    return Graph(
        name=f"{family}-{nodes}-{seed}",
        names=("input", *(f"node_{number}" for number in range(1, nodes - 1)), "output"),
        blocks=("",) * nodes,
        kinds=("input", *("matmul",) * (nodes - 2), "output"),
        calls=inner,
        flop=drawn(_FLOP, _FLOP_SPREAD),
        traffic=(read + size) * inner,
        parameters=np.round(drawn(_PARAMETERS, _PARAMETERS_SPREAD)),
        buffers=np.zeros(nodes),
        saved=read * inner,
        split=inner,
        reduced_forward=size * inner,
        reduced_backward=np.zeros(nodes),
        producer=np.arange(nodes - 1),
        size=size[:-1],
        used=used,
        user=user,
    )


def _joined(edges: Iterable[Edge], nodes: int) -> list[Edge]:
    """Edges among inner nodes, numbered from 0, with the input before all of them and the output after.

    A node that no other needs is needed by a later one, since models compute nothing in vain.
    """
    inner = {(source + 1, target + 1) for source, target in edges}
    needing, needed = {target for _, target in inner}, {source for source, _ in inner}
    first = {(0, node) for node in range(1, nodes - 1) if node not in needing}
    later = {(node, min(node + _WIDEST, nodes - 2)) for node in range(1, nodes - 2) if node not in needed}
    return sorted(inner | first | later | {(nodes - 2, nodes - 1)})


def _layered(count: int, draw: Draw) -> list[Edge]:
    """Layers of a few nodes, each of which needs one or two of the layer before."""
    layers: list[list[int]] = []
    done = 0
    while done < count:
        width = min(int(draw.integers(1, _WIDEST + 1)), count - done)
        layers.append(list(range(done, done + width)))
        done += width
    return [
        (int(source), node)
        for before, layer in pairwise(layers)
        for node in layer
        for source in draw.choice(before, min(len(before), int(draw.integers(1, 3))), replace=False)
    ]


def _series_parallel(count: int, draw: Draw) -> list[Edge]:
    """Edges that are split in two, or doubled by a parallel node, until there are enough nodes."""
    edges: list[Edge] = [(0, 1)]
    for node in range(2, count):
        place = int(draw.integers(len(edges)))
        source, target = edges[place]
        if draw.random() < 0.5:
            edges[place : place + 1] = [(source, node), (node, target)]
        else:
            edges += [(source, node), (node, target)]
    return _in_order(edges, count)


def _in_order(edges: list[Edge], count: int) -> list[Edge]:
    """Edges with nodes renumbered in topological order."""
    sources, targets = (np.array([edge[side] for edge in edges], dtype=np.int64) for side in (0, 1))
    order = in_order(sources, targets, count, [str(node) for node in range(count)], "a random graph")
    place = np.argsort(order)
    return [(int(place[source]), int(place[target])) for source, target in edges]


def _ordered(count: int, draw: Draw) -> list[Edge]:
    """Each node needs one or two of the few before it."""
    reach = max(4, min(_FARTHEST, ceil(count / 4)))
    return [
        (int(source), node)
        for node in range(1, count)
        for source in draw.choice(
            np.arange(max(0, node - reach), node), min(node, reach, int(draw.integers(1, 3))), replace=False
        )
    ]


def _skips(count: int, draw: Draw) -> list[Edge]:
    """A chain, and connections that skip nodes."""
    chain = [(node, node + 1) for node in range(count - 1)]
    jumps = [
        (node, min(count - 1, node + int(draw.integers(2, max(3, min(count // 2, 2 * _FARTHEST))))))
        for node in range(count - 2)
        if draw.random() < _SHARE_OF_SKIPS
    ]
    return chain + jumps


FAMILIES: dict[str, Callable[[int, Draw], list[Edge]]] = {
    "layered": _layered,
    "series-parallel": _series_parallel,
    "ordered": _ordered,
    "skips": _skips,
}


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
class SmallCase:
    """One random problem, and its parameters."""

    family: str
    nodes: int
    devices: str
    kind: str
    microbatches: int
    tight: bool
    problem: CutProblem


def case(number: int, seed: int) -> SmallCase:
    """A case of the family whose turn it is; everything else is drawn."""
    draw = np.random.default_rng((seed, number))
    family = list(FAMILIES)[number % len(FAMILIES)]
    nodes = int(draw.integers(_NODES[0], _NODES[1] + 1))
    kind = ("equal", "two-tier", "unequal")[number // len(FAMILIES) % 3]
    text, network = _devices(kind, int(draw.integers(2, 5)), draw), str(draw.choice(_NETWORKS))
    microbatches, recompute = int(draw.choice(_MICROBATCHES)), bool(draw.random() < 0.25)
    layout = Layout(shares=(_SAMPLES,), microbatches=microbatches, recompute=recompute)
    graph, devices = random_graph(family, nodes, seed * 1000 + number), devices_of(text, network)
    recipe = Recipe(_SAMPLES * microbatches)
    problem = problem_of(
        graph, devices, recipe, layout, tuple(((number,),) for number in range(len(devices)))
    )
    tight = bool(draw.random() < _TIGHT)
    if tight:
        # All devices together have so many times the memory that one device for all would need.
        all_on_one = problem.cost(np.zeros(len(problem.graph), dtype=np.int64), [0]).row_memory[0]
        room = float(draw.uniform(*_ROOM)) * all_on_one
        problem = replace(problem, capacity=problem.capacity / problem.capacity.sum() * room + problem.base)
    return SmallCase(family, nodes, text, kind, microbatches, tight, problem)


def _devices(kind: str, count: int, draw: np.random.Generator) -> str:
    """Devices of one kind, of two, or each of its own, as text."""
    kinds = [str(kind) for kind in draw.permutation(_KINDS)]
    if kind == "equal":
        return f"{kinds[0]}:{count}"
    if kind == "two-tier":
        few = int(draw.integers(1, count))
        return f"{kinds[0]}:{few},{kinds[1]}:{count - few}"
    return ",".join(f"{kind}:1" for kind in kinds[:count])


def small_figures(number: int, seed: int) -> dict[str, Any]:
    """Seconds of a step by both, infinite as None, and how long each looked."""
    drawn = case(number, seed)
    exact = solve_exactly(drawn.problem, TIME_LIMIT)
    start = perf_counter()
    cut = best_cut(drawn.problem, CutEffort())
    took = perf_counter() - start
    facts = ("family", "nodes", "devices", "kind", "microbatches", "tight")
    return {name: getattr(drawn, name) for name in facts} | {
        "exact": exact.seconds if exact.stage_of is not None else None,
        "bound": exact.bound if np.isfinite(exact.bound) else None,
        "proven": exact.proven,
        "exact_took": exact.took,
        "ours": None if cut is None else cut.seconds,
        "took": took,
    }


def summary(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Over all cases; those without proof are compared with the best the exact solver found, and counted."""
    gaps = list(_gaps(results))
    milp_seconds, seconds = ([result[name] for result in results] for name in ("exact_took", "took"))
    ratios = [milp / own for milp, own in zip(milp_seconds, seconds, strict=True)]
    proven = [result for result in results if result["proven"]]
    return {
        "cases": len(results),
        "proven": len(proven),
        "nothing_fits": sum(result["exact"] is None and result["proven"] for result in results),
        "within_1pct": mean(gap <= _CLOSE for gap in gaps),
        "within_1pct_of_proven": mean(gap <= _CLOSE for gap in _gaps(proven)) if proven else 1.0,
        "within_1pct_of_bound": mean(_above_bound(result) <= _CLOSE for result in results),
        "optimal": mean(gap <= 2e-4 for gap in gaps),
        "worst_gap": max(gaps),
        "better_than_unproven": sum(gap < 0.0 for gap in _gaps([e for e in results if not e["proven"]])),
        "speedup_over_milp": sum(milp_seconds) / sum(seconds),
        "median_speedup": median(ratios),
        "least_speedup": min(ratios),
        "median_seconds": median(seconds),
        "median_milp_seconds": median(milp_seconds),
    }


def _gaps(results: Sequence[dict[str, Any]]) -> Iterator[float]:
    """By which share ours is slower than the best the exact solver has; none where both find nothing."""
    for result in results:
        if result["exact"] is None:
            yield 0.0
        elif result["ours"] is None:
            yield float("inf")
        else:
            yield result["ours"] / result["exact"] - 1.0


def _above_bound(result: dict[str, Any]) -> float:
    """By which share ours is slower than anything can be."""
    if result["ours"] is None:
        return 0.0 if result["exact"] is None and result["proven"] else float("inf")
    return float(result["ours"] / result["bound"] - 1.0) if result["bound"] else float("inf")
