"""What a rival reaches: the best plan of all that its proposals allow, by the same forecast as ours."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from trimtab.partition.cost.evaluate import cost_of, evaluate
from trimtab.partition.cost.node_times import NodeTimes
from trimtab.partition.devices import Devices
from trimtab.partition.graph import Graph, Ints
from trimtab.partition.plan import Forecast, Plan, Recipe
from trimtab.partition.problem import Cost
from trimtab.partition.rivals.stages import plans_of


@dataclass(frozen=True, slots=True)
class Reached:
    """The plan with the highest throughput of those that fit, None where none does.

    `throughputs` are samples per second of the best plan of each proposal, zero where none of it fits.
    """

    plan: Plan | None
    forecast: Forecast | None
    throughputs: tuple[float, ...]

    @property
    def throughput(self) -> float:
        """Samples per second; zero where nothing fits."""
        return 0.0 if self.forecast is None else self.forecast.throughput


def reached_by(proposals: Iterable[Ints], graph: Graph, devices: Devices, recipe: Recipe) -> Reached:
    """The best of all proposals, micro-batch counts, schedules and choices of recomputation."""
    times = NodeTimes(graph, recipe)
    best: tuple[Plan, Forecast] | None = None
    throughputs = []
    for device_of in proposals:
        found = _best_plan(plans_of(graph, device_of, recipe), graph, devices, recipe, times)
        throughputs.append(0.0 if found is None else found[1].throughput)
        if found is not None and (best is None or found[1].throughput > best[1].throughput):
            best = found
    plan, forecast = best or (None, None)
    return Reached(plan, forecast, tuple(throughputs))


def _best_plan(
    plans: Iterator[Plan], graph: Graph, devices: Devices, recipe: Recipe, times: NodeTimes
) -> tuple[Plan, Forecast] | None:
    """Those that could be fastest are played through first; once no other could be faster, that is it."""
    possible: list[tuple[float, int, Plan]] = []
    for plan in plans:
        cost = cost_of(graph, devices, recipe, plan, times=times)
        if cost.short <= 0.0:
            possible.append((_at_least_seconds(cost), len(possible), plan))
    best: tuple[Plan, Forecast] | None = None
    for at_least, _, plan in sorted(possible):
        if best is not None and at_least >= best[1].seconds:
            break
        forecast = evaluate(graph, devices, recipe, plan, times=times)
        if forecast.fits and (best is None or forecast.seconds < best[1].seconds):
            best = plan, forecast
    return best


def _at_least_seconds(cost: Cost) -> float:
    """No schedule is faster: a micro-batch passes all stages, and the busiest device never waits."""
    load = cost.problem.layout.microbatches * (cost.forward + cost.backward) + cost.once
    return max(cost.latency, float(np.bincount(cost.rows, load).max()))
