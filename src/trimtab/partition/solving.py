"""Asking for a plan."""

from collections.abc import Callable
from dataclasses import replace
from time import perf_counter

from trimtab.core import format_duration
from trimtab.partition.devices import Devices
from trimtab.partition.explain import mix
from trimtab.partition.graph import Graph
from trimtab.partition.plan import Recipe
from trimtab.partition.search_settings import SearchSettings
from trimtab.partition.solution import Solution
from trimtab.partition.solvers.cutting import QUICK
from trimtab.partition.solvers.placing import place
from trimtab.partition.solvers.search import search

_WORTH_IT = 1e-3  # by which share a placement's loss is lower than the plan's, at least

Tell = Callable[[str, int, int], None]


def solve(
    graph: Graph,
    devices: Devices,
    recipe: Recipe,
    settings: SearchSettings | None = None,
    tell: Tell | None = None,
) -> Solution:
    """The best plan found; where none fits, the nearest, whose forecast says so.

    Where latency counts, a placement that runs branches side by side comes with it if it is better. `tell`
    hears what is being done, how much of it is done, and how much there is.
    """
    settings = settings or SearchSettings()
    found = search(graph, devices, recipe, settings, tell)
    others = tuple((mix(plan, recipe.training), forecast) for plan, forecast in found.others)
    reasons = (f"the best of {found.mixes:,} mixes of pipeline, data, sharded and tensor parallelism",)
    solution = Solution(
        found.plan, found.forecast, graph, devices, recipe, "ours", reasons, others, found.seconds
    )
    return _placed(solution, settings, tell) if _may_be_placed(solution, settings) else solution


def _may_be_placed(found: Solution, settings: SearchSettings) -> bool:
    """Whether a placement can be compared with the plan: both take all samples at once."""
    thorough = settings.objective == "latency" and settings.effort != QUICK
    return thorough and found.forecast.fits and found.plan.microbatches == 1 and len(found.devices) > 1


def _placed(found: Solution, settings: SearchSettings, tell: Tell | None) -> Solution:
    """With the placement, if its loss is lower than the plan's; otherwise with a word on it, if it helps."""
    if tell:
        tell("placing branches side by side", 0, 0)
    began, forecast = perf_counter(), found.forecast
    placed = place(found.graph, found.devices, found.recipe, settings.idle_weight, settings.assume)
    seconds = found.seconds + perf_counter() - began
    if placed.fits and placed.loss < placed.loss_of(forecast.latency, forecast.idle) * (1.0 - _WORTH_IT):
        return replace(found, placement=placed, seconds=seconds)
    if not placed.fits or placed.latency > placed.alone * (1.0 - _WORTH_IT):
        return replace(found, seconds=seconds)
    less = (
        f"one copy of the model with its branches side by side would take {format_duration(placed.latency)}"
        f" ({format_duration(placed.alone)} on {found.devices[placed.fastest].name} alone); this plan takes"
        f" {format_duration(forecast.latency)}"
    )
    return replace(found, reasons=(*found.reasons, less), seconds=seconds)
