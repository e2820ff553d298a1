"""Plans by the name of a method: the search, the exact program, and the methods to compare with."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from time import perf_counter

import numpy as np

from trimtab.core import BadInputError, did_you_mean, format_duration
from trimtab.partition.devices import Devices
from trimtab.partition.explain import mix
from trimtab.partition.forecast import evaluate
from trimtab.partition.graph import Graph
from trimtab.partition.node_times import NodeTimes
from trimtab.partition.plan import Forecast, Layout, Plan, Recipe, Solution, Stage
from trimtab.partition.problem import problem_of
from trimtab.partition.rivals import RIVALS, microbatch_counts, plans_of, reached_by
from trimtab.partition.solvers.cutting import QUICK
from trimtab.partition.solvers.milp import solve_exactly
from trimtab.partition.solvers.placing import place
from trimtab.partition.solvers.search import Grouping, SearchSettings, search

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


OURS, EXACT = "ours", "milp"
METHODS = (OURS, EXACT, *RIVALS)
_MOST_NODES = 60  # of a graph that the exact program gets anywhere with
_PATIENCE = 60.0  # seconds for each number of micro-batches

Found = tuple[Plan, Forecast]


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


_MOST_MIXES = 2  # of those that the search looked at anyway
_QUICK_ENOUGH = 8.0  # seconds of a search that can be asked again for fewer devices

Named = tuple[str, Forecast]


def with_usual_plans(found: Solution, settings: SearchSettings) -> Solution:
    """The solution with the plans that people would try first among its alternatives."""
    if len(found.devices) < 2:
        return found
    same = mix(found.plan, found.recipe.training)
    mixes = {name: forecast for name, forecast in reversed(found.alternatives) if name != same}
    kept = list(reversed(mixes.items()))[:_MOST_MIXES]
    return replace(found, alternatives=(*kept, *_usual(found, settings)))


def _usual(found: Solution, settings: SearchSettings) -> Iterator[Named]:
    graph, devices, recipe = found.graph, found.devices, found.recipe
    plans = list(_replicas_everywhere(graph, devices, recipe, settings))
    if plans:
        yield "all of it on every device (data parallel)", best_of(graph, devices, recipe, plans)[1]
    yield "equal parts, one after the other", rival_plan("equal", graph, devices, recipe)[1]
    yield "the best single device", rival_plan("single", graph, devices, recipe)[1]
    if len(devices.kinds) > 1 and found.seconds < _QUICK_ENOUGH:
        quick = replace(settings, finalists=1, effort=QUICK)
        for kind in devices.kinds:
            chosen = tuple(i for i, device in enumerate(devices.devices) if device.kind == kind)
            yield f"only {len(chosen)} {kind}", solve(graph, devices.only(chosen), recipe, quick).forecast


def _replicas_everywhere(
    graph: Graph, devices: Devices, recipe: Recipe, settings: SearchSettings
) -> Iterator[Plan]:
    """The whole model on every device, each with a share that is as large as it is fast."""
    times = NodeTimes(graph, recipe)
    took = [times.on(device, 1) for device in devices.devices]
    pace = tuple(1.0 / float(np.sum(each.forward + each.backward)) for each in took)
    row = tuple((device,) for device in range(len(devices)))
    grouping = Grouping((row,), len(devices), 1, pace)
    stage = Stage(tuple(range(len(graph))), row)
    for count in (count for count in range(1, recipe.batch + 1) if recipe.batch % count == 0):
        shares = grouping.shares(recipe.batch // count)
        if shares is None:
            continue
        for sharding in settings.shardings if recipe.training else ("none",):
            for again in (False, True) if settings.recompute and recipe.training else (False,):
                yield Plan((stage,), shares, count, settings.schedule or "1f1b", sharding, again)
