"""Plans by the name of a method: the search, the exact program, and the methods to compare with."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from time import perf_counter

import numpy as np

from trimtab.core import BadInputError, did_you_mean, format_duration
from trimtab.partition.devices import Devices
from trimtab.partition.explain import mix
from trimtab.partition.forecast import evaluate
from trimtab.partition.graph import Graph
from trimtab.partition.node_times import NodeTimes
from trimtab.partition.plan import Layout, Plan, PlanForecast, Recipe, Solution, Stage
from trimtab.partition.problem import problem_of
from trimtab.partition.rivals import RIVALS, microbatch_counts, plans_of, reached_by
from trimtab.partition.solvers.cutting import QUICK
from trimtab.partition.solvers.milp import solve_exactly
from trimtab.partition.solvers.placing import place
from trimtab.partition.solvers.search import Grouping, Planned, ReportProgress, SearchSettings, search

_WORTH_IT = 1e-3  # the least share by which a placement's loss must be lower than the plan's


def solve(
    graph: Graph,
    devices: Devices,
    recipe: Recipe,
    settings: SearchSettings | None = None,
    report: ReportProgress | None = None,
) -> Solution:
    """The best plan; where none fits, the nearest to fitting, whose forecast says so.

    For the latency objective, a placement that runs branches side by side is added if it is better. `report`
    receives the current activity, the number of items done, and their total.
    """
    settings = settings or SearchSettings()
    result = search(graph, devices, recipe, settings, report)
    others = tuple((mix(plan, recipe.training), forecast) for plan, forecast in result.others)
    reasons = (f"the best of {result.mixes:,} mixes of pipeline, data, sharded and tensor parallelism",)
    solution = Solution(
        result.plan, result.forecast, graph, devices, recipe, OURS, reasons, others, result.seconds
    )
    thorough = settings.objective == "latency" and settings.effort != QUICK
    # A plan can be compared with a placement if both take all samples at once.
    if thorough and result.forecast.fits and result.plan.microbatches == 1 and len(devices) > 1:
        if report:
            report("placing branches side by side", 0, 0)
        return _placed(solution, settings)
    return solution


def _placed(solution: Solution, settings: SearchSettings) -> Solution:
    """The solution with a placement of lower loss than the plan; else with a note if it beats one device."""
    began, forecast = perf_counter(), solution.forecast
    placed = place(solution.graph, solution.devices, solution.recipe, settings.idle_weight, settings.assume)
    seconds = solution.seconds + perf_counter() - began
    if placed.fits and placed.loss < placed.loss_of(forecast.latency, forecast.idle) * (1.0 - _WORTH_IT):
        return replace(solution, placement=placed, seconds=seconds)
    if not placed.fits or placed.latency > placed.alone * (1.0 - _WORTH_IT):
        return replace(solution, seconds=seconds)
    note = (
        f"one copy of the model with its branches side by side would take {format_duration(placed.latency)}"
        f" ({format_duration(placed.alone)} on {placed.devices[placed.fastest].name} alone); this plan takes"
        f" {format_duration(forecast.latency)}"
    )
    return replace(solution, reasons=(*solution.reasons, note), seconds=seconds)


OURS, EXACT = "ours", "milp"
METHODS = (OURS, EXACT, *RIVALS)
_MOST_NODES = 60  # larger graphs take the exact program too long
_TIME_LIMIT = 60.0  # seconds for each number of micro-batches


def plan_by(
    method: str,
    graph: Graph,
    devices: Devices,
    recipe: Recipe,
    settings: SearchSettings,
    report: ReportProgress | None = None,
) -> Solution:
    """The plan that a method finds; where nothing fits, the nearest to fitting, whose forecast says so."""
    if method == OURS:
        return solve(graph, devices, recipe, settings, report)
    if method not in METHODS:
        near = did_you_mean(method, METHODS)
        raise BadInputError(f'no method is called "{method}"{near}; there are {", ".join(METHODS)}')
    began = perf_counter()
    if method == EXACT:
        plan, forecast = _exact(graph, devices, recipe, settings)
    else:
        plan, forecast = rival_plan(method, graph, devices, recipe)
    return Solution(plan, forecast, graph, devices, recipe, method, seconds=perf_counter() - began)


def rival_plan(method: str, graph: Graph, devices: Devices, recipe: Recipe) -> Planned:
    """The best plan that a rival's proposals allow, or the nearest to fitting."""
    proposals = list(RIVALS[method](graph, devices, recipe))
    reached = reached_by(proposals, graph, devices, recipe)
    if reached.plan is not None and reached.forecast is not None:
        return reached.plan, reached.forecast
    plans = (plan for proposal in proposals for plan in plans_of(graph, proposal, recipe))
    return best_of(graph, devices, recipe, plans)


def best_of(graph: Graph, devices: Devices, recipe: Recipe, plans: Iterable[Plan]) -> Planned:
    """The fastest plan that fits; where none does, the one that lacks the fewest bytes."""
    forecasts = [(plan, evaluate(graph, devices, recipe, plan)) for plan in plans]
    return min(forecasts, key=lambda planned: (not planned[1].fits, planned[1].short, planned[1].seconds))


def _exact(graph: Graph, devices: Devices, recipe: Recipe, settings: SearchSettings) -> Planned:
    """The best pipeline with proof, over numbers of micro-batches and with or without recomputation.

    The proof is for 1f1b unless the settings name gpipe; if they name neither, the better of both is taken.
    """
    if len(graph) > _MOST_NODES:
        raise BadInputError(
            f"--method {EXACT} proves the best cut of at most {_MOST_NODES} operations;"
            f" {graph.name} has {len(graph):,}"
        )
    rows = tuple(((device,),) for device in range(len(devices)))
    plans = []
    for count in [settings.microbatches] if settings.microbatches else microbatch_counts(recipe.batch):
        for recompute in (False, True) if settings.recompute and recipe.training else (False,):
            schedule = settings.schedule or "1f1b"
            layout = Layout((recipe.batch // count,), 1, count, schedule, recompute=recompute)
            best = solve_exactly(problem_of(graph, devices, recipe, layout, rows), _TIME_LIMIT)
            if best.stage_of is not None:
                nodes = [(best.stage_of == stage).nonzero()[0] for stage in range(len(best.row_of))]
                stages = [Stage(tuple(n.tolist()), rows[r]) for n, r in zip(nodes, best.row_of, strict=True)]
                plans.append(layout.plan(tuple(stages)))
    if settings.schedule is None and recipe.training:
        plans += [replace(plan, schedule="gpipe") for plan in plans]
    if not plans:
        return rival_plan("equal", graph, devices, recipe)
    return best_of(graph, devices, recipe, plans)


_MOST_MIXES = 2  # of the search's other mixes
_QUICK_SEARCH = 8.0  # seconds of a search that may be repeated for fewer devices


def with_usual_plans(solution: Solution, settings: SearchSettings) -> Solution:
    """The solution with common plans (data parallel, equal parts, one device, one kind) as alternatives."""
    if len(solution.devices) < 2:
        return solution
    same = mix(solution.plan, solution.recipe.training)
    mixes = {name: forecast for name, forecast in reversed(solution.alternatives) if name != same}
    first = list(reversed(mixes.items()))[:_MOST_MIXES]
    return replace(solution, alternatives=(*first, *_usual_plans(solution, settings)))


def _usual_plans(solution: Solution, settings: SearchSettings) -> Iterator[tuple[str, PlanForecast]]:
    graph, devices, recipe = solution.graph, solution.devices, solution.recipe
    plans = list(_replicas_everywhere(graph, devices, recipe, settings))
    if plans:
        yield "all of it on every device (data parallel)", best_of(graph, devices, recipe, plans)[1]
    yield "equal parts, one after the other", rival_plan("equal", graph, devices, recipe)[1]
    yield "the best single device", rival_plan("single", graph, devices, recipe)[1]
    if len(devices.kinds) > 1 and solution.seconds < _QUICK_SEARCH:
        quick = replace(settings, finalists=1, effort=QUICK)
        for kind in devices.kinds:
            chosen = tuple(i for i, device in enumerate(devices.devices) if device.kind == kind)
            yield f"only {len(chosen)} {kind}", solve(graph, devices.only(chosen), recipe, quick).forecast


def _replicas_everywhere(
    graph: Graph, devices: Devices, recipe: Recipe, settings: SearchSettings
) -> Iterator[Plan]:
    """The whole model on every device, each with a share of the batch in proportion to its speed."""
    times = NodeTimes(graph, recipe)
    took = [times.on(device, 1) for device in devices.devices]
    pace = tuple(1.0 / float(np.sum(nodes.forward + nodes.backward)) for nodes in took)
    row = tuple((device,) for device in range(len(devices)))
    grouping = Grouping((row,), len(devices), 1, pace)
    stage = Stage(tuple(range(len(graph))), row)
    for count in (count for count in range(1, recipe.batch + 1) if recipe.batch % count == 0):
        shares = grouping.shares(recipe.batch // count)
        if shares is None:
            continue
        for sharding in settings.shardings if recipe.training else ("none",):
            for recompute in (False, True) if settings.recompute and recipe.training else (False,):
                yield Plan((stage,), shares, count, settings.schedule or "1f1b", sharding, recompute)
