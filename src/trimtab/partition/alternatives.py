"""What somebody would try first, with its numbers: replicas everywhere, equal parts, one device, one kind."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from trimtab.partition.cost.node_times import NodeTimes
from trimtab.partition.devices import Devices
from trimtab.partition.explain import mix
from trimtab.partition.graph import Graph
from trimtab.partition.methods import best_of, rival_plan
from trimtab.partition.plan import Forecast, Plan, Recipe, Stage
from trimtab.partition.search_settings import SearchSettings
from trimtab.partition.solution import Solution
from trimtab.partition.solvers.cutting import QUICK
from trimtab.partition.solvers.groupings import Grouping
from trimtab.partition.solving import solve

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
