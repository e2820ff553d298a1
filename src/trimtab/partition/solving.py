"""Asking for a plan."""

from collections.abc import Callable

from trimtab.partition.devices import Devices
from trimtab.partition.explain import mix
from trimtab.partition.graph import Graph
from trimtab.partition.plan import Recipe
from trimtab.partition.search_settings import SearchSettings
from trimtab.partition.solution import Solution
from trimtab.partition.solvers.search import search


def solve(
    graph: Graph,
    devices: Devices,
    recipe: Recipe,
    settings: SearchSettings | None = None,
    tell: Callable[[str, int, int], None] | None = None,
) -> Solution:
    """The best plan found; where none fits, the nearest, whose forecast says so.

    `tell` hears what is being done, how much of it is done, and how much there is.
    """
    found = search(graph, devices, recipe, settings, tell)
    others = tuple((mix(plan, recipe.training), forecast) for plan, forecast in found.others)
    reasons = (f"the best of {found.mixes:,} mixes of pipeline, data, sharded and tensor parallelism",)
    return Solution(
        found.plan, found.forecast, graph, devices, recipe, "ours", reasons, others, found.seconds
    )
