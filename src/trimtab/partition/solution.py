"""A plan that somebody found, with what to expect of it and of others."""

from dataclasses import dataclass

from trimtab.partition.devices import Devices
from trimtab.partition.graph import Graph
from trimtab.partition.placement import Placement
from trimtab.partition.plan import Forecast, Plan, Recipe


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """The plan, its forecast, and what was asked; `method` found it in `seconds`.

    The plan's nodes are those of `graph`. `reasons` say in words why it is this plan, `alternatives` are
    other plans by name. Where nothing fits, it is the plan that comes nearest, and its forecast says so.
    Where latency counts, `placement` is a way to run branches side by side that is better than the plan.
    """

    plan: Plan
    forecast: Forecast
    graph: Graph
    devices: Devices
    recipe: Recipe
    method: str
    reasons: tuple[str, ...] = ()
    alternatives: tuple[tuple[str, Forecast], ...] = ()
    seconds: float = 0.0
    placement: Placement | None = None
