"""The search for a plan: all mixes of pipeline, data, sharded and tensor parallelism, the best ones cut well.

Every mix gets a bound that no cut of it can beat. In the order of their bounds they are cut quickly, until no
bound is better than the best found; the best few are then cut thoroughly and played through.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from time import monotonic

import numpy as np

from trimtab.core import BadInputError
from trimtab.partition.cost.evaluate import evaluate
from trimtab.partition.cost.node_times import NodeTimes
from trimtab.partition.devices import Devices
from trimtab.partition.graph import Floats, Graph
from trimtab.partition.layout import Layout
from trimtab.partition.plan import Forecast, Plan, Recipe, Stage
from trimtab.partition.problem import Problem, problem_of
from trimtab.partition.search_settings import SearchSettings
from trimtab.partition.solvers.chain import Cut
from trimtab.partition.solvers.cutting import QUICK, best_cut
from trimtab.partition.solvers.rows import Grouping, groupings

_EQUAL = 1e-3  # steps this close are equally long; then the plan that leaves less memory idle is better
_NEAR = 1.03  # a quick cut is this far from a thorough one at most, mostly
_ROOMY = 1e18  # bytes that any model fits in


Found = tuple[Plan, Forecast]


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """The best plan, what to expect of it, and the best of each other mix that was cut thoroughly."""

    plan: Plan
    forecast: Forecast
    others: tuple[Found, ...]
    mixes: int
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """A mix: its columns, and seconds that no cut of it can beat."""

    problem: Problem
    bound: float
    speed: Floats


def search(
    graph: Graph,
    devices: Devices,
    recipe: Recipe,
    settings: SearchSettings | None = None,
    tell: Callable[[str, int, int], None] | None = None,
) -> Search:
    """The best plan for the graph on (some of) the devices; where none fits, the one that comes nearest.

    `tell` hears what is being done, how much of it is done, and how much there is.
    """
    settings, began = settings or SearchSettings(), monotonic()
    times = NodeTimes(graph, recipe, settings.assume)
    candidates = sorted(_candidates(graph, devices, recipe, settings, times), key=lambda each: each.bound)
    found = _sifted(candidates, settings, devices, tell) or _nearest(graph, devices, recipe, settings, times)
    finished: list[Found] = []
    for number, (_, candidate, quick) in enumerate(found[: settings.finalists]):
        if tell:
            tell("cutting", number, min(settings.finalists, len(found)))
        cut = best_cut(candidate.problem, candidate.speed, settings.effort, settings.seed) or quick
        plan = _plan(candidate.problem, min(cut, quick, key=lambda each: each.seconds))
        finished.append((plan, evaluate(graph, devices, recipe, plan, settings.assume, times)))
    finished = [each for each in finished if each[1].fits] or finished[:1]
    best = _best(finished, settings, devices)
    others = tuple(each for each in finished if each is not best)
    return Search(*best, others, len(candidates), monotonic() - began)


def _best(finished: list[Found], settings: SearchSettings, devices: Devices) -> Found:
    """The best by what is looked for; of those that are equally good, what leaves the least memory idle."""
    if settings.objective == "latency":
        shortest, memory = min(each[1].latency for each in finished), float(devices.memory.sum())
        return min(
            finished,
            key=lambda each: each[1].latency / shortest + settings.idle_weight * each[1].idle / memory,
        )
    best = min(_value(each[1], settings) for each in finished)
    equal = [each for each in finished if _value(each[1], settings) <= best * (1.0 + _EQUAL)]
    return min(equal, key=lambda each: each[1].idle)


def _value(forecast: Forecast, settings: SearchSettings) -> float:
    """What is to be small: seconds, or dollars, per sample."""
    if settings.objective == "cost":
        if forecast.price is None:
            raise BadInputError("a device has no price; give one in the devices' file to look for low cost")
        return forecast.price * forecast.seconds / forecast.batch
    return forecast.seconds / forecast.batch


def _sifted(
    candidates: list[_Candidate],
    settings: SearchSettings,
    devices: Devices,
    tell: Callable[[str, int, int], None] | None,
) -> list[tuple[float, _Candidate, Cut]]:
    """Quick cuts of the candidates that may be the best, best first."""
    found: list[tuple[float, _Candidate, Cut]] = []
    best = np.inf
    for number, candidate in enumerate(candidates):
        if candidate.bound > best * _NEAR:
            break
        if tell and number % 8 == 0:
            tell("comparing mixes", number, len(candidates))
        cut = best_cut(candidate.problem, candidate.speed, QUICK)
        if cut is not None:
            value = cut.seconds * _price(candidate.problem, cut, devices, settings)
            best = min(best, value)
            found.append((value, candidate, cut))
    return sorted(found, key=lambda each: each[0])


def _price(problem: Problem, cut: Cut, devices: Devices, settings: SearchSettings) -> float:
    """Dollars per second of the devices in use, where that counts."""
    if settings.objective != "cost":
        return 1.0
    used = [device for row in cut.row_of for rank in problem.rows[row] for device in rank]
    return sum(devices[device].price or 0.0 for device in used)


def _plan(problem: Problem, cut: Cut) -> Plan:
    stages = tuple(
        Stage(tuple(np.flatnonzero(cut.stage_of == number).tolist()), problem.rows[row])
        for number, row in enumerate(cut.row_of)
    )
    return problem.layout.plan(stages)


def _candidates(
    graph: Graph, devices: Devices, recipe: Recipe, settings: SearchSettings, times: NodeTimes
) -> Iterator[_Candidate]:
    """All mixes that could fit at all, with their bounds."""
    for chosen in _subsets(devices, settings):
        few = devices.only(chosen)
        speed = np.array([1.0 / float(_whole(times, few, each, recipe)) for each in range(len(few))])
        most, tensor = settings.most_replicas or len(few), settings.most_tensor
        if settings.pipeline_only:
            most = tensor = 1
        for grouping in groupings(few, speed, most, tensor):
            rows = tuple(tuple(tuple(chosen[d] for d in rank) for rank in row) for row in grouping.rows)
            for layout in _layouts(grouping, recipe, settings):
                problem = problem_of(graph, devices, recipe, layout, rows, settings.assume, times)
                candidate = _bounded(problem, devices, settings)
                if candidate is not None:
                    yield candidate


def _whole(times: NodeTimes, devices: Devices, device: int, recipe: Recipe) -> float:
    """Seconds of the whole model on one device, a sample at a time."""
    took = times.on(devices[device], 1)
    return float(took.forward.sum() + took.backward.sum())


def _subsets(devices: Devices, settings: SearchSettings) -> list[tuple[int, ...]]:
    """All devices; where fewer may be better, also fewer of each kind."""
    whole = tuple(range(len(devices)))
    if settings.objective == "throughput" or (settings.objective == "latency" and not settings.idle_weight):
        return [whole]
    by_kind = {
        kind: [i for i, device in enumerate(devices.devices) if device.kind == kind] for kind in devices.kinds
    }
    counts = [[0, *(1 << k for k in range(8) if 1 << k < len(each)), len(each)] for each in by_kind.values()]
    found = {
        tuple(sorted(i for each, count in zip(by_kind.values(), taken, strict=True) for i in each[:count]))
        for taken in np.array(np.meshgrid(*counts)).reshape(len(counts), -1).T.tolist()
    }
    return sorted(each for each in found if each)


def _layouts(grouping: Grouping, recipe: Recipe, settings: SearchSettings) -> Iterator[Layout]:
    """Micro-batches, sharding and recomputation for a grouping."""
    told = 1 if settings.objective == "latency" and settings.microbatches is None else settings.microbatches
    for count in _microbatch_counts(recipe.batch, told):
        shares = grouping.shares(recipe.batch // count)
        if shares is None:
            continue
        shardings = settings.shardings if grouping.replicas > 1 and recipe.training else ("none",)
        for sharding in shardings:
            for again in (False, True) if settings.recompute and recipe.training else (False,):
                yield Layout(shares, grouping.tensor, count, settings.schedule, sharding, again)


def _microbatch_counts(batch: int, told: int | None) -> list[int]:
    if told is not None:
        if told < 1 or batch % told:
            raise BadInputError(f"{told} micro-batches do not divide a batch of {batch} samples")
        return [told]
    return [count for count in range(1, batch + 1) if batch % count == 0]


def _bounded(problem: Problem, devices: Devices, settings: SearchSettings) -> _Candidate | None:
    """The mix with its bound, or nothing where even all rows together lack the memory.

    No cut beats all work evenly over all rows, after a first micro-batch with each node on its fastest row.
    """
    if float(problem.resident.sum()) > float(problem.capacity.sum()):
        return None
    work = problem.forward + problem.backward
    alone = work.sum(axis=1)
    if not np.isfinite(alone).any():
        return None
    speed = 1.0 / np.maximum(alone, 1e-30)
    more = problem.layout.microbatches - 1
    bound = float(work.min(axis=0).sum()) + more / float(speed.sum())
    if not np.isfinite(bound):
        return None
    if settings.objective == "cost":
        used = {device for row in problem.rows for rank in row for device in rank}
        prices = sorted(devices[device].price or 0.0 for device in used)
        ranks = problem.layout.replicas * problem.layout.tensor
        bound *= sum(prices[:ranks])
    return _Candidate(problem, bound, speed)


def _nearest(
    graph: Graph, devices: Devices, recipe: Recipe, settings: SearchSettings, times: NodeTimes
) -> list[tuple[float, _Candidate, Cut]]:
    """Where nothing fits, the mix that would with the least more memory on each device."""
    every = tuple(replace(device, memory=_ROOMY) for device in devices.devices)
    roomy = Devices(every, devices.bandwidth, devices.latency)
    thrifty = sorted(
        _candidates(graph, roomy, recipe, settings, times), key=lambda each: _least_memory(each.problem)
    )
    real = [
        problem_of(graph, devices, recipe, each.problem.layout, each.problem.rows, settings.assume, times)
        for each in thrifty[: 2 * settings.finalists]
    ]

    def with_factor(factor: float) -> tuple[float, _Candidate, Cut] | None:
        for problem in real:
            larger, even = replace(problem, capacity=problem.capacity * factor), np.ones(len(problem.rows))
            cut = best_cut(larger, even, QUICK)
            if cut is not None:
                return cut.seconds, _Candidate(larger, 0.0, even), cut
        return None

    low, high = 1.0, 2.0
    while (found := with_factor(high)) is None:
        low, high = high, 2.0 * high
        if high * float(devices.memory.max()) > _ROOMY:
            raise BadInputError(f"{graph.name} needs several devices, and no links join enough of them")
    while high / low > _NEAR:
        middle = (low * high) ** 0.5
        nearer = with_factor(middle)
        low, high, found = (middle, high, found) if nearer is None else (low, middle, nearer)
    return [found]


def _least_memory(problem: Problem) -> float:
    """A rough measure of what a mix needs on each device."""
    layout = problem.layout
    held = float(problem.kept.sum()) * (1 if layout.recompute else layout.in_flight(len(problem.rows)))
    return (float(problem.resident.sum()) + held) / len(problem.rows)
