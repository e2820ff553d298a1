"""Ways to a plan by name: ours, the exact program for small graphs, and those we compare ourselves with."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from time import perf_counter

from trimtab.core import BadInputError, did_you_mean
from trimtab.partition.cost.evaluate import evaluate
from trimtab.partition.devices import Devices
from trimtab.partition.graph import Graph
from trimtab.partition.layout import Layout
from trimtab.partition.plan import Forecast, Plan, Recipe, Stage
from trimtab.partition.problem import problem_of
from trimtab.partition.rivals import RIVALS, reached_by
from trimtab.partition.rivals.stages import microbatch_counts, plans_of
from trimtab.partition.search_settings import SearchSettings
from trimtab.partition.solution import Solution
from trimtab.partition.solvers.milp import solve_exactly
from trimtab.partition.solving import solve

OURS, EXACT = "ours", "milp"
METHODS = (OURS, EXACT, *RIVALS)
_MOST_NODES = 60  # of a graph that the exact program gets anywhere with
_PATIENCE = 60.0  # seconds for each number of micro-batches

Found = tuple[Plan, Forecast]
Tell = Callable[[str, int, int], None]


def plan_by(
    method: str,
    graph: Graph,
    devices: Devices,
    recipe: Recipe,
    settings: SearchSettings,
    tell: Tell | None = None,
) -> Solution:
    """The plan that a method finds; where nothing fits, the nearest, whose forecast says so."""
    if method == OURS:
        return solve(graph, devices, recipe, settings, tell)
    if method not in METHODS:
        near = did_you_mean(method, METHODS)
        raise BadInputError(f'no method is called "{method}"{near}; there are {", ".join(METHODS)}')
    begun = perf_counter()
    if method == EXACT:
        plan, forecast = _exact(graph, devices, recipe, settings)
    else:
        plan, forecast = rival_plan(method, graph, devices, recipe)
    return Solution(plan, forecast, graph, devices, recipe, method, seconds=perf_counter() - begun)


def rival_plan(method: str, graph: Graph, devices: Devices, recipe: Recipe) -> Found:
    """The best plan that a rival's proposals allow, or the nearest to fitting."""
    proposals = list(RIVALS[method](graph, devices, recipe))
    reached = reached_by(proposals, graph, devices, recipe)
    if reached.plan is not None and reached.forecast is not None:
        return reached.plan, reached.forecast
    return best_of(
        graph,
        devices,
        recipe,
        (plan for proposal in proposals for plan in plans_of(graph, proposal, recipe)),
    )


def best_of(graph: Graph, devices: Devices, recipe: Recipe, plans: Iterable[Plan]) -> Found:
    """The fastest plan that fits; where none does, the one that lacks least."""
    found = [(plan, evaluate(graph, devices, recipe, plan)) for plan in plans]
    return min(found, key=lambda each: (not each[1].fits, each[1].short, each[1].seconds))


def _exact(graph: Graph, devices: Devices, recipe: Recipe, settings: SearchSettings) -> Found:
    """The best pipeline with proof, over numbers of micro-batches and with or without recomputation.

    The proof is for 1f1b unless gpipe is asked for; where neither is, the better of both is taken.
    """
    if len(graph) > _MOST_NODES:
        raise BadInputError(
            f"--method {EXACT} proves the best cut of at most {_MOST_NODES} operations;"
            f" {graph.name} has {len(graph):,}"
        )
    rows = tuple(((device,),) for device in range(len(devices)))
    plans = []
    for count in [settings.microbatches] if settings.microbatches else microbatch_counts(recipe.batch):
        for again in (False, True) if settings.recompute and recipe.training else (False,):
            layout = Layout((recipe.batch // count,), 1, count, settings.schedule or "1f1b", recompute=again)
            best = solve_exactly(problem_of(graph, devices, recipe, layout, rows), _PATIENCE)
            if best.stage_of is not None:
                nodes = [(best.stage_of == stage).nonzero()[0] for stage in range(len(best.row_of))]
                stages = [Stage(tuple(n.tolist()), rows[r]) for n, r in zip(nodes, best.row_of, strict=True)]
                plans.append(layout.plan(tuple(stages)))
    if settings.schedule is None and recipe.training:
        plans += [replace(plan, schedule="gpipe") for plan in plans]
    if not plans:
        return rival_plan("equal", graph, devices, recipe)
    return best_of(graph, devices, recipe, plans)
