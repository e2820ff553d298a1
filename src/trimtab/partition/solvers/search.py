"""The search for a plan: all mixes of pipeline, data, sharded and tensor parallelism, the best ones cut well.

Every mix gets a bound that no cut of it can beat. In the order of their bounds they are cut quickly, until no
bound is better than the best found; the best few are then cut thoroughly and played through.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trimtab.core import BadInputError
from trimtab.partition.devices import Device, Devices
from trimtab.partition.forecast import evaluate
from trimtab.partition.graph import Coarse, Graph, Ints, coarsened
from trimtab.partition.node_times import CostAssumptions, NodeTimes, inside_rate, ring_rate
from trimtab.partition.plan import Forecast, Layout, Plan, Recipe, Row, Schedule, Sharding, Stage
from trimtab.partition.problem import CutProblem, bytes_per_weight, problem_of
from trimtab.partition.solvers.chain import Cut, states_of_order
from trimtab.partition.solvers.cutting import QUICK, CutEffort, best_cut, one_of_each, polished, sharpened

Objective = Literal["throughput", "latency", "cost"]


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """Defaults look among all plans for the one with the most samples per second."""

    objective: Objective = "throughput"
    """Most samples per second, the shortest time of one micro-batch, or fewest dollars per sample."""
    idle_weight: float = 0.0
    """How much idle memory, as a share of all memory, counts beside latency, relative to the shortest."""
    microbatches: int | None = None
    """Micro-batches of a step; None tries all that divide the batch, or one where latency counts."""
    schedule: Schedule | None = None
    """The order of forward and backward passes; None takes 1f1b, or gpipe where that fits and is faster."""
    pipeline_only: bool = False
    """Neither data nor tensor parallelism."""
    most_replicas: int | None = None
    """Pipelines side by side at most (data parallelism)."""
    most_tensor: int = 8
    """Devices that share every product at most (tensor parallelism)."""
    shardings: tuple[Sharding, ...] = ("none", "optimizer", "full")
    """What replicas may keep only a part of."""
    recompute: bool = True
    """Whether activations may be computed again in the backward pass."""
    finalists: int = 6
    """Mixes that are cut thoroughly."""
    effort: CutEffort = field(default_factory=CutEffort)
    """How long to look at each of those."""
    seed: int = 0
    assume: CostAssumptions = field(default_factory=CostAssumptions)


Rank = tuple[int, ...]

_FEW = range(2, 9)  # replicas of different speeds, beside one on every device


@dataclass(frozen=True, slots=True)
class Grouping:
    """Rows of `replicas` ranks of `tensor` devices each; `pace` of every replica, relative to the others."""

    rows: tuple[Row, ...]
    replicas: int
    tensor: int
    pace: tuple[float, ...]

    @property
    def even(self) -> bool:
        """Whether all replicas are equally fast."""
        return max(self.pace) - min(self.pace) <= 1e-6 * max(self.pace)

    def shares(self, samples: int) -> tuple[int, ...] | None:
        """How replicas share so many samples; None where one would get none, or equals unequal numbers."""
        if samples < self.replicas or (self.even and samples % self.replicas):
            return None
        exact = np.array(self.pace) / sum(self.pace) * samples
        whole = np.maximum(1, np.floor(exact)).astype(int)
        while whole.sum() > samples:
            whole[int(np.argmax(whole - exact))] -= 1
        for index in np.argsort(-(exact - whole), kind="stable")[: samples - int(whole.sum())]:
            whole[index] += 1
        return tuple(int(each) for each in whole)


def groupings(
    devices: Devices, speed: NDArray[np.float64], most_replicas: int, most_tensor: int
) -> Iterator[Grouping]:
    """Every way that makes sense: replicas of a row alike, next to each other or far apart, or mixed."""
    tensor = 1
    while tensor <= most_tensor:
        ranks = _ranks(devices, tensor)
        if not ranks:
            return
        for replicas in _replica_counts(min(most_replicas, len(ranks))):
            seen: set[tuple[Row, ...]] = set()
            for rows in (
                _rows_of_one_kind(devices, ranks, replicas, near=True),
                _rows_of_one_kind(devices, ranks, replicas, near=False),
                _rows_of_mixed_kinds(ranks, replicas, speed) if replicas in (*_FEW, len(ranks)) else (),
            ):
                if rows and rows not in seen:
                    seen.add(rows)
                    pace = [sum(float(speed[row[r][0]]) for row in rows) for r in range(replicas)]
                    yield Grouping(rows, replicas, tensor, tuple(pace))
        tensor *= 2


def _replica_counts(most: int) -> list[int]:
    """Numbers of replicas worth trying: all small ones, then those with few odd factors, and the most."""
    return [
        n for n in range(1, most + 1) if n <= 4 or n == most or n % (1 << max(0, n.bit_length() - 2)) == 0
    ]


def _ranks(devices: Devices, tensor: int) -> list[Rank]:
    """Devices of one kind in one machine, so many together."""
    together: dict[tuple[int, str], list[int]] = {}
    for index, device in enumerate(devices.devices):
        together.setdefault((device.machine, device.kind), []).append(index)
    return [
        tuple(members[start : start + tensor])
        for members in together.values()
        for start in range(0, len(members) - tensor + 1, tensor)
    ]


def _rows_of_one_kind(devices: Devices, ranks: list[Rank], replicas: int, near: bool) -> tuple[Row, ...]:
    """Rows of one kind each: of neighbours, or of ranks as far apart as there are rows."""
    by_kind: dict[str, list[Rank]] = {}
    for rank in ranks:
        by_kind.setdefault(devices[rank[0]].kind, []).append(rank)
    rows: list[Row] = []
    for members in by_kind.values():
        count = len(members) // replicas
        for row in range(count):
            chosen = (
                range(row * replicas, (row + 1) * replicas) if near else range(row, count * replicas, count)
            )
            rows.append(tuple(members[index] for index in chosen))
    return tuple(rows)


def _rows_of_mixed_kinds(ranks: list[Rank], replicas: int, speed: NDArray[np.float64]) -> tuple[Row, ...]:
    """Replicas of neighbours each, fast ones together; so rows are of several kinds."""
    ordered = sorted(ranks, key=lambda rank: -float(speed[rank[0]]))
    count = len(ordered) // replicas
    return tuple(tuple(ordered[r * count + row] for r in range(replicas)) for row in range(count))


_EQUAL = 1e-3  # steps this close are equally long; then the plan that leaves less memory idle is better
_NEAR = 1.03  # a quick cut is this far from a thorough one at most, mostly
_PATIENCE = 40  # mixes that fit and are no better, in the order of their bounds, after which no more are cut
_MANY_NODES = 1200  # of a graph that is searched as it is; twice as many are made fewer first
_POLISHED = 3  # finalists whose plans are improved by playing them
_TRIES = 150
_NODES_TRIED = 450_000  # tries times nodes: fewer tries where each takes long
_QUICKLY_PLAYED = 1000  # stages times micro-batches
_ROOMY = 1e18  # bytes that any model fits in


Found = tuple[Plan, Forecast]
Tell = Callable[[str, int, int], None]
_Sifted = tuple[float, CutProblem, Cut]


@dataclass(frozen=True, slots=True, eq=False)
class SearchResult:
    """The best plan, what to expect of it, and the best of each other mix that was cut thoroughly."""

    plan: Plan
    forecast: Forecast
    others: tuple[Found, ...]
    mixes: int
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """A mix, and what no cut of it can beat."""

    layout: Layout
    rows: tuple[Row, ...]
    bound: float


@dataclass(frozen=True, slots=True, eq=False)
class _Ask:
    """Input of a search, with node times that are computed once."""

    graph: Graph
    devices: Devices
    recipe: Recipe
    settings: SearchSettings
    times: NodeTimes

    def problem(self, layout: Layout, rows: tuple[Row, ...]) -> CutProblem:
        """The columns of a mix."""
        return problem_of(
            self.graph, self.devices, self.recipe, layout, rows, self.settings.assume, self.times
        )

    def coarser(self, coarse: Coarse) -> "_Ask":
        """Input for the coarse graph."""
        times = NodeTimes(self.graph, self.recipe, self.settings.assume, coarse)
        return replace(self, graph=coarse.graph, times=times)


def search(
    graph: Graph,
    devices: Devices,
    recipe: Recipe,
    settings: SearchSettings | None = None,
    tell: Tell | None = None,
) -> SearchResult:
    """The best plan for the graph on (some of) the devices; where none fits, the one that comes nearest.

    `tell` hears what is being done, how much of it is done, and how much there is.
    """
    settings, began = settings or SearchSettings(), monotonic()
    whole = _Ask(graph, devices, recipe, settings, NodeTimes(graph, recipe, settings.assume))
    coarse = coarsened(graph, _MANY_NODES) if len(graph) > 2 * _MANY_NODES else None
    ask = whole if coarse is None else whole.coarser(coarse)
    candidates = sorted(_candidates(ask), key=lambda each: each.bound)
    found = _sifted(ask, candidates, tell) or _nearest(ask)
    finished: list[Found] = []
    for number, (_, problem, quick) in enumerate(found[: settings.finalists]):
        if tell:
            tell("cutting", number, min(settings.finalists, len(found)))
        cut = best_cut(problem, settings.effort, settings.seed) or quick
        cut = min(cut, quick, key=lambda each: each.seconds)
        if coarse is not None:
            problem, cut = _finer(whole, coarse, problem, cut)
        found_here = _played(whole, _plan(problem, cut))
        finished.append(_polished(whole, problem, cut, found_here) if number < _POLISHED else found_here)
    finished = [each for each in finished if each[1].fits] or finished[:1]
    best = _best(finished, settings, devices)
    others = tuple(each for each in finished if each is not best)
    return SearchResult(*best, others, len(candidates), monotonic() - began)


def _played(ask: _Ask, plan: Plan) -> Found:
    """The plan with its forecast, in the better of the schedules that are allowed."""
    both = ask.settings.schedule is None and len(plan.stages) > 1 and ask.recipe.training
    plans = [plan, replace(plan, schedule="gpipe")] if both else [plan]
    found = [
        (each, evaluate(ask.graph, ask.devices, ask.recipe, each, ask.settings.assume, ask.times))
        for each in plans
    ]
    return min(found, key=lambda each: (not each[1].fits, each[1].seconds))


def _polished(ask: _Ask, problem: CutProblem, cut: Cut, known: Found) -> Found:
    """The plan after small moves that shorten the schedule played through, which the formula only comes near.

    Not where playing it takes long: there a step has so many micro-batches that the two hardly differ.
    """
    slots = known[0].microbatches * len(problem.rows)
    if not known[1].fits or slots > _QUICKLY_PLAYED or ask.settings.objective != "throughput":
        return known
    best = known

    def judge(stage_of: Ints, row_of: tuple[int, ...]) -> float:
        nonlocal best
        found = _played(ask, _plan(problem, Cut(stage_of, row_of, 0.0)))
        if not found[1].fits:
            return np.inf
        if found[1].seconds < best[1].seconds:
            best = found
        return found[1].seconds

    start = replace(cut, seconds=known[1].seconds)
    tries = min(_TRIES, _NODES_TRIED // len(problem.graph))
    polished(problem, start, one_of_each(problem, set(range(len(problem.rows)))), judge, tries)
    return best


def _finer(whole: _Ask, coarse: Coarse, problem: CutProblem, cut: Cut) -> tuple[CutProblem, Cut]:
    """The cut of a coarse graph as one of the whole graph, with its places looked at closely."""
    fine = whole.problem(problem.layout, problem.rows)
    stage_of = coarse.spread(cut.stage_of)
    start = Cut(stage_of, cut.row_of, fine.cost(stage_of, cut.row_of).seconds)
    states = states_of_order(fine, cut.row_of)
    step = max(1, len(whole.graph) // len(coarse.graph))
    return fine, sharpened(fine, start, states, whole.settings.effort, step)


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
    """Objective to minimise: seconds, or dollars, per sample."""
    if settings.objective == "cost":
        if forecast.price is None:
            raise BadInputError("a device has no price; give one in the devices' file to look for low cost")
        return forecast.price * forecast.seconds / forecast.batch
    return forecast.seconds / forecast.batch


def _sifted(ask: _Ask, candidates: list[_Candidate], tell: Tell | None) -> list[_Sifted]:
    """Quick cuts of the candidates that may be the best, best first."""
    found: list[_Sifted] = []
    best, since = np.inf, 0
    for number, candidate in enumerate(candidates):
        if candidate.bound > best * _NEAR or (since > _PATIENCE and ask.settings.objective == "throughput"):
            break
        if tell and number % 8 == 0:
            tell("comparing mixes", number, len(candidates))
        problem = ask.problem(candidate.layout, candidate.rows)
        cut = best_cut(problem, QUICK)
        if cut is not None:
            value = cut.seconds * _price(problem, cut, ask.devices, ask.settings)
            since = 0 if value < best * (1.0 - _EQUAL) else since + 1
            best = min(best, value)
            found.append((value, problem, cut))
    return sorted(found, key=lambda each: each[0])


def _price(problem: CutProblem, cut: Cut, devices: Devices, settings: SearchSettings) -> float:
    """Dollars per second of the devices in use, where that counts."""
    if settings.objective != "cost":
        return 1.0
    used = [device for row in cut.row_of for rank in problem.rows[row] for device in rank]
    return sum(devices[device].price or 0.0 for device in used)


def _plan(problem: CutProblem, cut: Cut) -> Plan:
    stages = tuple(
        Stage(tuple(np.flatnonzero(cut.stage_of == number).tolist()), problem.rows[row])
        for number, row in enumerate(cut.row_of)
    )
    return problem.layout.plan(stages)


def _candidates(ask: _Ask) -> Iterator[_Candidate]:
    """All mixes that could fit at all, with their bounds."""
    devices, settings = ask.devices, ask.settings
    for chosen in _subsets(devices, settings):
        few = devices.only(chosen)
        speed = np.array([1.0 / _whole(ask.times, device) for device in few.devices])
        most, tensor = settings.most_replicas or len(few), settings.most_tensor
        if settings.pipeline_only:
            most = tensor = 1
        for grouping in groupings(few, speed, most, tensor):
            whole = (tuple(tuple(chosen[d] for d in rank) for rank in row) for row in grouping.rows)
            rows = tuple(row for row in whole if _joined(ask, row))
            if not rows:
                continue
            alike = _alike(ask, rows)
            for layout in _layouts(grouping, ask.recipe, settings):
                bound = _bound(ask, layout, alike)
                if np.isfinite(bound):
                    yield _Candidate(layout, rows, bound)


def _joined(ask: _Ask, row: Row) -> bool:
    """Whether all that replicas and those that share products exchange has a link."""
    assume = ask.settings.assume
    inside = [inside_rate(ask.devices, rank, assume) for rank in row]
    return min(ring_rate(ask.devices, row, assume), *inside) > 0.0


def _alike(ask: _Ask, rows: tuple[Row, ...]) -> dict[Row, int]:
    """One of each sort of row, and how many there are of it."""
    devices, assume = ask.devices, ask.settings.assume
    sorts: dict[tuple[object, ...], Row] = {}
    count: dict[Row, int] = {}
    for row in rows:
        kinds = [(devices[rank[0]].kind, inside_rate(devices, rank, assume)) for rank in row]
        first = sorts.setdefault((ring_rate(devices, row, assume), *kinds), row)
        count[first] = count.get(first, 0) + 1
    return count


def _whole(times: NodeTimes, device: Device) -> float:
    """Seconds of the whole model on one device, a sample at a time."""
    took = times.on(device, 1)
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
    chosen = 1 if settings.objective == "latency" and settings.microbatches is None else settings.microbatches
    for count in _microbatch_counts(recipe.batch, chosen):
        shares = grouping.shares(recipe.batch // count)
        if shares is None:
            continue
        shardings = settings.shardings if grouping.replicas > 1 and recipe.training else ("none",)
        for sharding in shardings:
            for again in (False, True) if settings.recompute and recipe.training else (False,):
                yield Layout(shares, grouping.tensor, count, settings.schedule or "1f1b", sharding, again)


def _microbatch_counts(batch: int, chosen: int | None) -> list[int]:
    if chosen is not None:
        if chosen < 1 or batch % chosen:
            raise BadInputError(f"{chosen} micro-batches do not divide a batch of {batch} samples")
        return [chosen]
    return [count for count in range(1, batch + 1) if batch % count == 0]


def _bound(ask: _Ask, layout: Layout, alike: dict[Row, int]) -> float:
    """Lower bound on the step of any cut of a mix; infinite where even all rows together lack the memory.

    No cut beats all work evenly over all rows, after a first micro-batch with each node on its fastest row.
    """
    problem, count = ask.problem(layout, tuple(alike)), np.array(list(alike.values()))
    if float(problem.resident.sum()) > float(problem.capacity @ count):
        return np.inf
    work = problem.forward + problem.backward
    evenly = float(count @ (1.0 / np.maximum(work.sum(axis=1), 1e-30)))
    if evenly <= 0.0:
        return np.inf
    bound = float(work.min(axis=0).sum()) + (layout.microbatches - 1) / evenly
    if ask.settings.objective == "cost":
        each = [sum(ask.devices[d].price or 0.0 for rank in row for d in rank) for row in alike]
        bound *= min(each)
    return bound


def _nearest(ask: _Ask) -> list[_Sifted]:
    """Where nothing fits, the mix that would with the least more memory on each device."""
    every = tuple(replace(device, memory=_ROOMY) for device in ask.devices.devices)
    roomy = replace(ask, devices=Devices(every, ask.devices.bandwidth, ask.devices.latency))
    mixes = sorted(_candidates(roomy), key=lambda each: _least_memory(ask, each))
    problems = [ask.problem(each.layout, each.rows) for each in mixes[: ask.settings.finalists]]

    def with_factor(factor: float) -> _Sifted | None:
        for problem in problems:
            larger = replace(problem, capacity=problem.capacity * factor)
            cut = best_cut(larger, QUICK)
            if cut is not None:
                return cut.seconds, larger, cut
        return None

    low, high = 1.0, 2.0
    while (found := with_factor(high)) is None:
        low, high = high, 2.0 * high
        if high * float(ask.devices.memory.max()) > _ROOMY:
            raise BadInputError(f"{ask.graph.name} needs several devices, and no links join enough of them")
    while high / low > _NEAR:
        middle = (low * high) ** 0.5
        nearer = with_factor(middle)
        low, high, found = (middle, high, found) if nearer is None else (low, middle, nearer)
    return [found]


def _least_memory(ask: _Ask, mix: _Candidate) -> float:
    """A rough measure of what a mix needs on each device."""
    graph, layout = ask.graph, mix.layout
    held = float(graph.saved.sum()) * max(layout.shares)
    held *= 1 if layout.recompute else layout.in_flight(len(mix.rows))
    weights = graph.total_parameters * sum(bytes_per_weight(ask.recipe, layout))
    return (weights + held) / (layout.tensor * len(mix.rows))
