"""Small problems, and the best cut of one by looking at all of them."""

from collections.abc import Callable
from itertools import permutations, product

import numpy as np
import pytest
from trimtab_bench.partition.small import random_graph

from trimtab.partition import Devices, Graph, Recipe
from trimtab.partition.devices import Device
from trimtab.partition.plan import Layout
from trimtab.partition.problem import CutProblem, problem_of

KINDS = (("A100", 20e12, 1.5e12), ("V100", 14e12, 0.9e12), ("T4", 8e12, 0.3e12), ("K80", 4e12, 0.24e12))


def unequal_devices(count: int, memory: float, seed: int = 0) -> Devices:
    """So many devices of falling speed, with links that all differ."""
    draw = np.random.default_rng(seed)
    devices = tuple(
        Device(f"{kind}:0", kind, memory, {"fp32": peak}, bandwidth)
        for kind, peak, bandwidth in KINDS[:count]
    )
    bandwidth = draw.uniform(2e9, 5e10, (count, count))
    np.fill_diagonal(bandwidth, np.inf)
    latency = draw.uniform(5e-6, 1e-3, (count, count))
    np.fill_diagonal(latency, 0.0)
    return Devices(devices, bandwidth, latency)


def small_problem(
    graph: Graph, devices: Devices, layout: Layout, training: bool = True, samples: int = 8
) -> CutProblem:
    """Each device alone is a row."""
    recipe = Recipe(samples * layout.microbatches, training=training)
    return problem_of(graph, devices, recipe, layout, tuple(((d,),) for d in range(len(devices))))


@pytest.fixture(scope="session")
def make_problem() -> Callable[..., CutProblem]:
    """A random problem: family, nodes, devices, memory, and what the layout is."""

    def make(
        family: str,
        nodes: int,
        count: int,
        seed: int,
        memory: float = 40e9,
        training: bool = True,
        **layout: object,
    ) -> CutProblem:
        chosen = Layout(shares=(8,), **layout)  # type: ignore[arg-type]
        devices = unequal_devices(count, memory, seed)
        return small_problem(random_graph(family, nodes, seed), devices, chosen, training)

    return make


@pytest.fixture(scope="session")
def best_of_all() -> Callable[[CutProblem], float]:
    """Seconds of the best cut, by looking at every one; infinite where none fits."""

    def search(problem: CutProblem) -> float:
        sources, targets, _ = problem.graph.edges
        best = np.inf
        for stages in range(1, len(problem.rows) + 1):
            for chosen in product(range(stages), repeat=len(problem.graph)):
                stage_of = np.array(chosen)
                if len(set(chosen)) == stages and (stage_of[sources] <= stage_of[targets]).all():
                    for rows in permutations(range(len(problem.rows)), stages):
                        best = min(best, problem.seconds(stage_of, rows))
        return best

    return search
