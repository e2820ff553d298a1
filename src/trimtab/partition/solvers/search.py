"""The search for a plan over all mixes of pipeline, data, sharded and tensor parallelism.

Every mix gets a lower bound on the step of any cut of it. In the order of their bounds, mixes are cut
quickly until no bound is below the best step; the best few are then cut thoroughly and simulated.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from time import monotonic
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trimtab.core import BadInputError
from trimtab.partition.devices import Devices
from trimtab.partition.forecast import evaluate
from trimtab.partition.graph import Coarse, Graph, Ints, coarsened
from trimtab.partition.node_times import CostAssumptions, NodeTimes, inside_rate, ring_rate
from trimtab.partition.plan import Layout, Plan, PlanForecast, Recipe, Row, Schedule, Sharding, Stage
from trimtab.partition.problem import CutProblem, bytes_per_weight, problem_of
from trimtab.partition.solvers.chain import Cut, states_of_order
from trimtab.partition.solvers.cutting import QUICK, CutEffort, best_cut, one_of_each, polished, sharpened

Objective = Literal["throughput", "latency", "cost"]


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """The defaults search all plans for the most samples per second."""

    objective: Objective = "throughput"
    """Most samples per second, the shortest time of one micro-batch, or fewest dollars per sample."""
    idle_weight: float = 0.0
    """Weight of idle memory (as a share of all memory) against latency (relative to the shortest)."""
    microbatches: int | None = None
    """Micro-batches of a step; None tries all divisors of the batch, or one for the latency objective."""
    schedule: Schedule | None = None
    """The order of forward and backward passes; None takes 1f1b, or gpipe where it fits and is faster."""
    pipeline_only: bool = False
    """Neither data nor tensor parallelism."""
    most_replicas: int | None = None
    """The most pipelines side by side (data parallelism)."""
    most_tensor: int = 8
    """The most devices that share every product (tensor parallelism)."""
    shardings: tuple[Sharding, ...] = ("none", "optimizer", "full")
    """State that may be sharded over the replicas."""
    recompute: bool = True
    """Whether activations may be computed again in the backward pass."""
    finalists: int = 6
    """Mixes that are cut thoroughly."""
    effort: CutEffort = field(default_factory=CutEffort)
    """Effort of cutting each finalist."""
    seed: int = 0
    assume: CostAssumptions = field(default_factory=CostAssumptions)


Rank = tuple[int, ...]

_FEW = range(2, 9)  # numbers of replicas of different speeds, beside one on every device


@dataclass(frozen=True, slots=True)
class Grouping:
    """Rows of `replicas` ranks of `tensor` devices each; `pace` is the relative speed of every replica."""

    rows: tuple[Row, ...]
    replicas: int
    tensor: int
    pace: tuple[float, ...]

    def shares(self, samples: int) -> tuple[int, ...] | None:
        """Samples of each replica, by its pace; None if one would get none, or equal ones unequal shares."""
        even = max(self.pace) - min(self.pace) <= 1e-6 * max(self.pace)
        if samples < self.replicas or (even and samples % self.replicas):
            return None
        exact = np.array(self.pace) / sum(self.pace) * samples
        counts = np.maximum(1, np.floor(exact)).astype(int)
        while counts.sum() > samples:
            counts[int(np.argmax(counts - exact))] -= 1
        for index in np.argsort(-(exact - counts), kind="stable")[: samples - int(counts.sum())]:
            counts[index] += 1
        return tuple(counts.tolist())


def groupings(
    devices: Devices, speed: NDArray[np.float64], most_replicas: int, most_tensor: int
) -> Iterator[Grouping]:
    """Groupings with replicas of a row of one kind, next to each other or far apart, or of mixed kinds."""
    tensor = 1
    while tensor <= most_tensor:
        ranks = _ranks(devices, tensor)
        if not ranks:
            return
        most = min(most_replicas, len(ranks))
        for replicas in range(1, most + 1):
            # Small numbers, numbers with few odd factors, and the most.
            if replicas > 4 and replicas != most and replicas % (1 << max(0, replicas.bit_length() - 2)):
                continue
            tried: set[tuple[Row, ...]] = set()
            for rows in (
                _rows_of_one_kind(devices, ranks, replicas, near=True),
                _rows_of_one_kind(devices, ranks, replicas, near=False),
                _rows_of_mixed_kinds(ranks, replicas, speed) if replicas in (*_FEW, len(ranks)) else (),
            ):
                if rows and rows not in tried:
                    tried.add(rows)
                    pace = [sum(float(speed[row[r][0]]) for row in rows) for r in range(replicas)]
                    yield Grouping(rows, replicas, tensor, tuple(pace))
        tensor *= 2


def _ranks(devices: Devices, tensor: int) -> list[Rank]:
    """Groups of `tensor` devices of one kind in one machine."""
    together: dict[tuple[int, str], list[int]] = {}
    for index, device in enumerate(devices.devices):
        together.setdefault((device.machine, device.kind), []).append(index)
    return [
        tuple(members[start : start + tensor])
        for members in together.values()
        for start in range(0, len(members) - tensor + 1, tensor)
    ]


def _rows_of_one_kind(devices: Devices, ranks: list[Rank], replicas: int, near: bool) -> tuple[Row, ...]:
    """Rows of one kind each: of neighbouring ranks, or of ranks as far apart as there are rows."""
    by_kind: dict[str, list[Rank]] = {}
    for rank in ranks:
        by_kind.setdefault(devices[rank[0]].kind, []).append(rank)
    rows: list[Row] = []
    for members in by_kind.values():
        count = len(members) // replicas
        for row in range(count):
            first = row * replicas
            chosen = slice(first, first + replicas) if near else slice(row, count * replicas, count)
            rows.append(tuple(members[chosen]))
    return tuple(rows)


def _rows_of_mixed_kinds(ranks: list[Rank], replicas: int, speed: NDArray[np.float64]) -> tuple[Row, ...]:
    """Replicas of ranks of similar speed; rows then mix several kinds."""
    ordered = sorted(ranks, key=lambda rank: -float(speed[rank[0]]))
    count = len(ordered) // replicas
    return tuple(tuple(ordered[r * count + row] for r in range(replicas)) for row in range(count))


_EQUAL = 1e-3  # steps this close are equally long; then the plan that leaves less memory idle is better
_NEAR = 1.03  # a quick cut is mostly within this factor of a thorough one
_PATIENCE = 40  # mixes that fit and are no better, in the order of their bounds, after which no more are cut
_MANY_NODES = 1200  # of a graph that is searched as it is; a graph of more than twice as many is coarsened
_POLISHED = 3  # finalists whose plans are improved by simulating them
_TRIES = 150
_NODES_TRIED = 450_000  # tries times nodes: fewer tries where each takes long
_QUICKLY_SIMULATED = 1000  # stages times micro-batches
_UNLIMITED = 1e18  # bytes that any model fits in


Planned = tuple[Plan, PlanForecast]
ReportProgress = Callable[[str, int, int], None]
_QuickCut = tuple[float, CutProblem, Cut]  # objective, problem, cut


@dataclass(frozen=True, slots=True, eq=False)
class SearchResult:
    """The best plan with its forecast, and the best of each other mix that was cut thoroughly."""

    plan: Plan
    forecast: PlanForecast
    others: tuple[Planned, ...]
    mixes: int
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """A mix, and a lower bound on the step of any cut of it."""

    layout: Layout
    rows: tuple[Row, ...]
    bound: float


@dataclass(frozen=True, slots=True, eq=False)
class _SearchInput:
    """Input of a search, with node times that are computed once."""

    graph: Graph
    devices: Devices
    recipe: Recipe
    settings: SearchSettings
    times: NodeTimes

    def problem(self, layout: Layout, rows: tuple[Row, ...]) -> CutProblem:
        """The cut problem of a mix."""
        return problem_of(
            self.graph, self.devices, self.recipe, layout, rows, self.settings.assume, self.times
        )


def search(
    graph: Graph,
    devices: Devices,
    recipe: Recipe,
    settings: SearchSettings | None = None,
    report: ReportProgress | None = None,
) -> SearchResult:
    """The best plan for the graph on (some of) the devices; where none fits, the one nearest to fitting.

    `report` receives the current activity, the number of items done, and their total.
    """
    settings, began = settings or SearchSettings(), monotonic()
    fine = _SearchInput(graph, devices, recipe, settings, NodeTimes(graph, recipe, settings.assume))
    searched, coarse = fine, None
    if len(graph) > 2 * _MANY_NODES:
        coarse = coarsened(graph, _MANY_NODES)
        times = NodeTimes(graph, recipe, settings.assume, coarse)
        searched = replace(fine, graph=coarse.graph, times=times)
    candidates = sorted(_candidates(searched), key=lambda candidate: candidate.bound)
    quick_cuts = _quick_cuts(searched, candidates, report) or _nearest(searched)
    finished: list[Planned] = []
    for number, (_, problem, quick) in enumerate(quick_cuts[: settings.finalists]):
        if report:
            report("cutting", number, min(settings.finalists, len(quick_cuts)))
        cut = best_cut(problem, settings.effort, settings.seed) or quick
        cut = min(cut, quick, key=lambda option: option.seconds)
        if coarse is not None:
            problem, cut = _refined(fine, coarse, problem, cut)
        planned = _simulated(fine, _plan(problem, cut))
        finished.append(_polished(fine, problem, cut, planned) if number < _POLISHED else planned)
    finished = [planned for planned in finished if planned[1].fits] or finished[:1]
    best = _best(finished, settings, devices)
    others = tuple(planned for planned in finished if planned is not best)
    return SearchResult(*best, others, len(candidates), monotonic() - began)


def _simulated(given: _SearchInput, plan: Plan) -> Planned:
    """The plan with its forecast, in the better of the allowed schedules."""
    both = given.settings.schedule is None and len(plan.stages) > 1 and given.recipe.training
    plans = [plan, replace(plan, schedule="gpipe")] if both else [plan]
    forecasts = [
        (
            option,
            evaluate(given.graph, given.devices, given.recipe, option, given.settings.assume, given.times),
        )
        for option in plans
    ]
    return min(forecasts, key=lambda planned: (not planned[1].fits, planned[1].seconds))


def _polished(given: _SearchInput, problem: CutProblem, cut: Cut, planned: Planned) -> Planned:
    """The plan after small moves that shorten the simulated schedule, which the formula approximates.

    Skipped where simulation takes long: with so many micro-batches the two hardly differ.
    """
    slots = planned[0].microbatches * len(problem.rows)
    if not planned[1].fits or slots > _QUICKLY_SIMULATED or given.settings.objective != "throughput":
        return planned
    best = planned

    def judge(stage_of: Ints, row_of: tuple[int, ...]) -> float:
        nonlocal best
        moved = _simulated(given, _plan(problem, Cut(stage_of, row_of, 0.0)))
        if not moved[1].fits:
            return np.inf
        if moved[1].seconds < best[1].seconds:
            best = moved
        return moved[1].seconds

    start = replace(cut, seconds=planned[1].seconds)
    tries = min(_TRIES, _NODES_TRIED // len(problem.graph))
    polished(problem, start, one_of_each(problem, set(range(len(problem.rows)))), judge, tries)
    return best


def _refined(fine: _SearchInput, coarse: Coarse, problem: CutProblem, cut: Cut) -> tuple[CutProblem, Cut]:
    """The cut of a coarse graph as one of the fine graph, with places near its own tried."""
    finer = fine.problem(problem.layout, problem.rows)
    stage_of = coarse.spread(cut.stage_of)
    start = Cut(stage_of, cut.row_of, finer.cost(stage_of, cut.row_of).seconds)
    states = states_of_order(finer, cut.row_of)
    step = max(1, len(fine.graph) // len(coarse.graph))
    return finer, sharpened(finer, start, states, fine.settings.effort, step)


def _best(finished: list[Planned], settings: SearchSettings, devices: Devices) -> Planned:
    """The best by the objective; of equally good plans, the one that leaves the least memory idle."""
    if settings.objective == "latency":
        shortest, memory = min(planned[1].latency for planned in finished), float(devices.memory.sum())
        return min(
            finished,
            key=lambda planned: (
                planned[1].latency / shortest + settings.idle_weight * planned[1].idle / memory
            ),
        )
    values = [_value(planned[1], settings) for planned in finished]
    equal = [
        planned
        for planned, value in zip(finished, values, strict=True)
        if value <= min(values) * (1.0 + _EQUAL)
    ]
    return min(equal, key=lambda planned: planned[1].idle)


def _value(forecast: PlanForecast, settings: SearchSettings) -> float:
    """Objective to minimise: seconds, or dollars, per sample."""
    if settings.objective != "cost":
        return forecast.seconds / forecast.batch
    if forecast.price is None:
        raise BadInputError("a device has no price; give one in the devices' file to look for low cost")
    return forecast.price * forecast.seconds / forecast.batch


def _quick_cuts(
    given: _SearchInput, candidates: list[_Candidate], report: ReportProgress | None
) -> list[_QuickCut]:
    """Quick cuts of the candidates that may be the best, best first."""
    cuts: list[_QuickCut] = []
    best, since = np.inf, 0
    for number, candidate in enumerate(candidates):
        if candidate.bound > best * _NEAR or (since > _PATIENCE and given.settings.objective == "throughput"):
            break
        if report and number % 8 == 0:
            report("comparing mixes", number, len(candidates))
        problem = given.problem(candidate.layout, candidate.rows)
        cut = best_cut(problem, QUICK)
        if cut is not None:
            value = cut.seconds
            if given.settings.objective == "cost":
                value *= sum(_price(given.devices, problem.rows[row]) for row in cut.row_of)
            since = 0 if value < best * (1.0 - _EQUAL) else since + 1
            best = min(best, value)
            cuts.append((value, problem, cut))
    return sorted(cuts, key=lambda quick: quick[0])


def _price(devices: Devices, row: Row) -> float:
    """Dollars per second of a row's devices; unknown prices count as zero."""
    return sum(devices[device].price or 0.0 for rank in row for device in rank)


def _plan(problem: CutProblem, cut: Cut) -> Plan:
    stages = tuple(
        Stage(tuple(np.flatnonzero(cut.stage_of == number).tolist()), problem.rows[row])
        for number, row in enumerate(cut.row_of)
    )
    return problem.layout.plan(stages)


def _candidates(given: _SearchInput) -> Iterator[_Candidate]:
    """All mixes whose memory could suffice, with their bounds."""
    devices, settings = given.devices, given.settings
    for chosen in _subsets(devices, settings):
        few = devices.only(chosen)
        took = [given.times.on(device, 1) for device in few.devices]
        speed = np.array([1.0 / float(node.forward.sum() + node.backward.sum()) for node in took])
        most, tensor = settings.most_replicas or len(few), settings.most_tensor
        if settings.pipeline_only:
            most = tensor = 1
        for grouping in groupings(few, speed, most, tensor):
            numbered = (tuple(tuple(chosen[d] for d in rank) for rank in row) for row in grouping.rows)
            rows, counts = _linked_rows(given, numbered)
            if not rows:
                continue
            for layout in _layouts(grouping, given.recipe, settings):
                bound = _bound(given, layout, counts)
                if np.isfinite(bound):
                    yield _Candidate(layout, rows, bound)


def _linked_rows(given: _SearchInput, rows: Iterable[Row]) -> tuple[tuple[Row, ...], dict[Row, int]]:
    """Rows whose replicas and ranks are linked; and one row of each sort with the number of such rows."""
    devices, assume = given.devices, given.settings.assume
    linked, sorts, counts = [], dict[tuple[object, ...], Row](), dict[Row, int]()
    for row in rows:
        ring = ring_rate(devices, row, assume)
        inside = [inside_rate(devices, rank, assume) for rank in row]
        if min(ring, *inside) > 0.0:
            linked.append(row)
            kinds = [(devices[rank[0]].kind, rate) for rank, rate in zip(row, inside, strict=True)]
            first = sorts.setdefault((ring, *kinds), row)
            counts[first] = counts.get(first, 0) + 1
    return tuple(linked), counts


def _subsets(devices: Devices, settings: SearchSettings) -> list[tuple[int, ...]]:
    """All devices; where fewer may be better, also fewer of each kind."""
    if settings.objective == "throughput" or (settings.objective == "latency" and not settings.idle_weight):
        return [tuple(range(len(devices)))]
    by_kind = [[i for i, d in enumerate(devices.devices) if d.kind == kind] for kind in devices.kinds]
    counts = [[0, *(1 << k for k in range(8) if 1 << k < len(same)), len(same)] for same in by_kind]
    subsets = {
        tuple(sorted(i for same, count in zip(by_kind, taken, strict=True) for i in same[:count]))
        for taken in product(*counts)
    }
    return sorted(subset for subset in subsets if subset)


def _layouts(grouping: Grouping, recipe: Recipe, settings: SearchSettings) -> Iterator[Layout]:
    """Micro-batches, sharding and recomputation for a grouping."""
    chosen, batch = settings.microbatches, recipe.batch
    if chosen is not None and (chosen < 1 or batch % chosen):
        raise BadInputError(f"{chosen} micro-batches do not divide a batch of {batch} samples")
    if chosen is None and settings.objective == "latency":
        chosen = 1
    for count in [chosen] if chosen else [count for count in range(1, batch + 1) if batch % count == 0]:
        shares = grouping.shares(batch // count)
        if shares is None:
            continue
        shardings = settings.shardings if grouping.replicas > 1 and recipe.training else ("none",)
        for sharding in shardings:
            for recompute in (False, True) if settings.recompute and recipe.training else (False,):
                schedule = settings.schedule or "1f1b"
                yield Layout(shares, grouping.tensor, count, schedule, sharding, recompute)


def _bound(given: _SearchInput, layout: Layout, counts: dict[Row, int]) -> float:
    """Lower bound on the step of any cut of a mix; infinite where even all rows together lack the memory.

    No cut beats all work evenly over all rows, after a first micro-batch with each node on its fastest row.
    """
    problem, count = given.problem(layout, tuple(counts)), np.array(list(counts.values()))
    if float(problem.resident.sum()) > float(problem.capacity @ count):
        return np.inf
    work = problem.forward + problem.backward
    evenly = float(count @ (1.0 / np.maximum(work.sum(axis=1), 1e-30)))
    if evenly <= 0.0:
        return np.inf
    bound = float(work.min(axis=0).sum()) + (layout.microbatches - 1) / evenly
    if given.settings.objective == "cost":
        bound *= min(_price(given.devices, row) for row in counts)
    return bound


def _nearest(given: _SearchInput) -> list[_QuickCut]:
    """Where nothing fits, the mix that would fit with the smallest factor on the memory of each device."""
    unlimited = tuple(replace(device, memory=_UNLIMITED) for device in given.devices.devices)
    roomy = replace(given, devices=Devices(unlimited, given.devices.bandwidth, given.devices.latency))

    def rough_bytes(mix: _Candidate) -> float:
        """A rough measure of the bytes that a mix needs on each device."""
        graph, layout = given.graph, mix.layout
        held = float(graph.saved.sum()) * max(layout.shares)
        held *= 1 if layout.recompute else layout.in_flight(len(mix.rows))
        weights = graph.total_parameters * sum(bytes_per_weight(given.recipe, layout))
        return (weights + held) / (layout.tensor * len(mix.rows))

    mixes = sorted(_candidates(roomy), key=rough_bytes)
    problems = [given.problem(mix.layout, mix.rows) for mix in mixes[: given.settings.finalists]]

    def with_factor(factor: float) -> _QuickCut | None:
        for problem in problems:
            larger = replace(problem, capacity=problem.capacity * factor)
            cut = best_cut(larger, QUICK)
            if cut is not None:
                return cut.seconds, larger, cut
        return None

    low, high = 1.0, 2.0
    while (nearest := with_factor(high)) is None:
        low, high = high, 2.0 * high
        if high * float(given.devices.memory.max()) > _UNLIMITED:
            raise BadInputError(f"{given.graph.name} needs several devices, and no links join enough of them")
    while high / low > _NEAR:
        middle = (low * high) ** 0.5
        nearer = with_factor(middle)
        low, high, nearest = (middle, high, nearest) if nearer is None else (low, middle, nearer)
    return [nearest]
