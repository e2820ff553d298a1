"""From a profile to ranked configurations: enumerate, estimate, drop what does not fit, rank."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trimtab.catalog import OfferTable, accelerator
from trimtab.core import (
    BadInputError,
    Configuration,
    Dropped,
    Estimate,
    Profile,
    format_bytes,
    score,
    within_limits,
)
from trimtab.predict import ENOUGH_STEPS, EarlierRun, GuardedEstimator, StepEstimates, kinds
from trimtab.recommend.candidates import Candidates, candidates, eligible
from trimtab.recommend.layouts import MOST_DEVICES
from trimtab.recommend.request import Request, Work

_DISTRIBUTED_NODES = 4  # the most machines for a distributed script if the user names no limit
_SPREAD_NODES = 64  # the most machines for a model that no single device can hold, likewise
PARTS = ("launch", "compute", "traffic", "update", "network", "input")
MEMORY_COVERAGE = 0.95  # of the upper bound of a step's memory


@dataclass(frozen=True, slots=True)
class Side:
    """The rule's or the model's estimates for a row; None where it has none."""

    time: Estimate | None
    cost: Estimate | None
    memory: Estimate | None


@dataclass(frozen=True, slots=True)
class Row:
    """One recommended configuration. Seconds, dollars, joules, bytes; `parts` are seconds of one step.

    `time_by_model` and `memory_by_model` say whether the guard chose `model` over `rule` (cost follows time),
    `time_choice` and `memory_choice` why. `measured` is False if the device's constants are carried over from
    another. An `efficient` row is beaten by no candidate in both time and cost. `dearer` counts machines of
    the same cloud and accelerators that take the same time for more money and are not ranked.
    """

    rank: int
    configuration: Configuration
    time: Estimate
    cost: Estimate
    energy: Estimate | None
    steps: float
    step_seconds: float
    parts: dict[str, float]
    memory: float
    memory_high: float
    memory_limit: float
    stretch: float
    measured: bool
    efficient: bool
    dearer: int
    rule: Side
    model: Side
    time_by_model: bool
    memory_by_model: bool
    time_choice: str
    memory_choice: str


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The ranked rows, counts of dropped offers, and all candidates for the chart (`frontier` by time)."""

    profile: Profile
    request: Request
    work: Work
    rows: tuple[Row, ...]
    dropped: tuple[Dropped, ...]
    notes: tuple[str, ...]
    considered: int
    candidates: Candidates
    feasible: NDArray[np.intp]
    frontier: NDArray[np.intp]


def recommend(
    profile: Profile,
    offers: OfferTable,
    request: Request,
    work: Work,
    earlier: Sequence[EarlierRun] = (),
) -> Recommendation:
    """The best configurations for a profiled workload under the request's limits.

    `earlier` are outcomes of earlier decisions about it (see `runs_after`), oldest first.
    """
    estimator = GuardedEstimator(profile, request.precision, earlier)
    batch_sizes = request.batch_sizes or (profile.steps.batch_size if profile.steps else 1,)
    request, restricted = _devices_of(profile, request)
    usable, dropped = eligible(offers, request)
    loaders = profile.steps.loader_workers if profile.steps else 0
    all_candidates = candidates(usable, request, work, estimator, batch_sizes, loaders)
    if restricted and (_is_large(profile) or not _an_accelerator_fits(all_candidates)):
        request, restricted = replace(request, max_nodes=_SPREAD_NODES, max_devices=MOST_DEVICES), False
        all_candidates = candidates(usable, request, work, estimator, batch_sizes, loaders)
    fitting, misfits = _that_fit(all_candidates)
    dropped += misfits
    within = fitting[
        within_limits(
            all_candidates.time[fitting],
            all_candidates.cost[fitting],
            request,
            lambda place: all_candidates.configuration(int(fitting[place])).key,
        )
    ]
    energy = all_candidates.energy
    if request.objective == "energy" and np.isnan(energy[within]).any():
        unknown = within[np.isnan(energy[within])]
        dropped.append(Dropped(len(unknown), "the power of the device is unpublished"))
        within = np.setdiff1d(within, unknown)
        if not len(within):
            raise BadInputError("the power of no device that is left is published; choose another objective")
    scores = score(
        request.objective, all_candidates.time[within], all_candidates.cost[within], energy[within]
    )
    best = _one_region_each(all_candidates, within[np.argsort(scores, kind="stable")])
    best, dearer = _without_dearer(all_candidates, best, request.top)
    frontier = _frontier(all_candidates, within)
    efficient = set(frontier.tolist())
    rows = tuple(
        _row(all_candidates, int(i), rank, i in efficient, count)
        for rank, (i, count) in enumerate(zip(best, dearer, strict=True), 1)
    )
    over = len(fitting) - len(within)
    if over:
        dropped.append(Dropped(over, "over the deadline or the budget"))
    return Recommendation(
        profile,
        request,
        work,
        rows,
        tuple(dropped),
        (
            *_notes(profile, rows, work, restricted),
            *_guard_notes(all_candidates, within, rows, request, earlier),
        ),
        len(all_candidates),
        all_candidates,
        within,
        frontier,
    )


_LARGE_STATE = 16e9  # bytes: many accelerators that people rent have no more memory


def _is_large(profile: Profile) -> bool:
    """Whether weights, gradients and optimizer state alone exceed the memory of many accelerators."""
    model = profile.model
    return model is not None and 2 * model.parameter_bytes + model.optimizer_state_bytes > _LARGE_STATE


def _an_accelerator_fits(all_candidates: Candidates) -> bool:
    """Whether any accelerator holds the model alone; True also where only CPUs are to be considered."""
    step, offers = all_candidates.step, all_candidates.offers
    accelerated = step.known & (offers.accelerators[all_candidates.offer] > 0)
    return not accelerated.any() or bool((step.memory <= step.memory_limit)[accelerated].any())


def _that_fit(all_candidates: Candidates) -> tuple[NDArray[np.intp], list[Dropped]]:
    """Rows whose device is known and whose memory suffices; the others counted by reason."""
    step, dropped = all_candidates.step, []
    names = np.array([w or "host" for w in all_candidates.offers.accelerator.vocabulary] or ["host"])
    device = names[all_candidates.offers.accelerator.codes[all_candidates.offer]]
    unknown = sorted(set(device[~step.known].tolist()))
    if unknown:
        dropped.append(Dropped(int((~step.known).sum()), f"the catalog has no facts on {', '.join(unknown)}"))
    too_large = step.known & (step.memory > step.memory_limit)
    for name in np.unique(device[too_large]):
        rows = np.flatnonzero(too_large & (device == name))
        nearest = rows[np.argmin(step.memory[rows] - step.memory_limit[rows])]
        need = format_bytes(float(step.memory[nearest]))
        room = format_bytes(float(step.memory_limit[nearest]))
        dropped.append(Dropped(len(rows), f"{name} memory: a step needs at least {need}, {room} are usable"))
    fitting = np.flatnonzero(step.known & ~too_large)
    if len(fitting) == 0:
        reasons = "; ".join(d.reason for d in dropped)
        raise BadInputError(f"no configuration can run this workload ({reasons}); try a smaller --batch-size")
    return fitting, dropped


def _one_region_each(all_candidates: Candidates, ranked: NDArray[np.intp]) -> NDArray[np.intp]:
    """The best region of each cloud, instance type, nodes, batch and spot, in the order of the ranking."""
    offers, offer = all_candidates.offers, all_candidates.offer[ranked]
    first, _ = kinds(
        offers.cloud.codes[offer],
        offers.instance.codes[offer],
        all_candidates.nodes[ranked],
        all_candidates.batch[ranked],
        all_candidates.spot[ranked],
    )
    return ranked[np.sort(first)]


_SAME_TIME = math.log(1.02)


def _without_dearer(
    all_candidates: Candidates, ranked: NDArray[np.intp], top: int
) -> tuple[NDArray[np.intp], list[int]]:
    """The first `top` of the ranking without machines that add only to the price, and counts of those.

    A machine is left out if a better-ranked one of the same cloud has the same accelerators (and nodes, batch
    and spot) and takes the same time for less money.
    """
    offers, offer = all_candidates.offers, all_candidates.offer[ranked]
    _, kind = kinds(
        offers.cloud.codes[offer],
        offers.accelerator.codes[offer],
        offers.accelerators[offer] * all_candidates.nodes[ranked],
        all_candidates.batch[ranked],
        all_candidates.spot[ranked],
        all_candidates.layouts.parts[ranked],
    )
    time, cost = np.log(all_candidates.time[ranked]), all_candidates.cost[ranked]
    pending = np.ones(len(ranked), dtype=np.bool_)
    best: list[int] = []
    dearer: list[int] = []
    for place in range(len(ranked)):
        if not pending[place]:
            continue
        pending[place] = False
        same_time = np.abs(time - time[place]) < _SAME_TIME
        alike = pending & (kind == kind[place]) & same_time & (cost >= cost[place])
        pending &= ~alike
        best.append(place)
        dearer.append(int(alike.sum()))
        if len(best) == top:
            break
    return ranked[best], dearer


def _frontier(all_candidates: Candidates, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Rows that no other row beats in both time and cost, fastest first."""
    time, cost = all_candidates.time[rows], all_candidates.cost[rows]
    order = np.lexsort((cost, time))
    cheapest_before = np.concatenate([[np.inf], np.minimum.accumulate(cost[order])[:-1]])
    return rows[order[cost[order] < cheapest_before]]


def _row(all_candidates: Candidates, i: int, rank: int, efficient: bool, dearer: int) -> Row:
    step, price, guarded = all_candidates.step, float(all_candidates.price[i]), all_candidates.guarded
    time = all_candidates.job_time(i, step)
    return Row(
        rank=rank,
        configuration=all_candidates.configuration(i),
        time=time,
        cost=time.scaled(price, "$"),
        energy=all_candidates.job_energy(i, time),
        steps=float(all_candidates.steps[i]),
        step_seconds=float(step.total[i]),
        parts={name: float(getattr(step, name)[i]) for name in PARTS},
        memory=float(step.memory[i]),
        memory_high=float(step.memory_high[i]),
        memory_limit=float(step.memory_limit[i]),
        stretch=float(all_candidates.stretch[i]),
        measured=bool(step.measured[i]),
        efficient=efficient,
        dearer=dearer,
        rule=_side(all_candidates, i, guarded.rule),
        model=_side(all_candidates, i, guarded.model, bool(guarded.has_time[i]), bool(guarded.has_memory[i])),
        time_by_model=bool(guarded.time.by_model[i]),
        memory_by_model=bool(guarded.memory.by_model[i]),
        time_choice=guarded.time.words(i),
        memory_choice=guarded.memory.words(i),
    )


def _side(
    all_candidates: Candidates, i: int, step: StepEstimates, has_time: bool = True, has_memory: bool = True
) -> Side:
    """The estimates of row `i` by the rule or the model."""
    time = all_candidates.job_time(i, step) if has_time else None
    memory = Estimate(float(step.memory[i]), 0.0, float(step.memory_high[i]), MEMORY_COVERAGE, "B")
    return Side(
        time, time and time.scaled(float(all_candidates.price[i]), "$"), memory if has_memory else None
    )


def _guard_notes(
    all_candidates: Candidates,
    within: NDArray[np.intp],
    rows: tuple[Row, ...],
    request: Request,
    earlier: Sequence[EarlierRun],
) -> list[str]:
    """Notes on changes by earlier outcomes; empty if there are none."""
    notes = list(dict.fromkeys(f"time: {r.time_choice}" for r in rows)) if earlier else []
    if any(r.time_by_model for r in rows):
        by_rule = (
            request.assume.startup
            + all_candidates.steps * all_candidates.guarded.rule.total * all_candidates.stretch
        )
        scores = score(
            request.objective,
            by_rule[within],
            by_rule[within] * all_candidates.price[within],
            by_rule[within] * all_candidates.power.running[within],
        )
        first = all_candidates.configuration(int(within[np.argmin(scores)]))
        if first.key != rows[0].configuration.key:
            notes.append(f"by the rule alone, the first row would be {first.key}")
    return notes


def _devices_of(profile: Profile, request: Request) -> tuple[Request, bool]:
    """The request with its unset limits filled in, and whether it was limited to one device.

    A script that ran as one process would leave a second device idle, unless the user sets a limit.
    """
    if request.max_nodes is not None:
        return request, False
    alone = profile.steps is None or profile.steps.workers == 1
    if request.parallel:
        return replace(
            request, max_nodes=_SPREAD_NODES, max_devices=request.max_devices or MOST_DEVICES
        ), False
    if alone and request.max_devices is None:
        return replace(request, max_nodes=1, max_devices=1), True
    most = request.max_devices or _DISTRIBUTED_NODES
    nodes = min(most, max(_DISTRIBUTED_NODES, min(_SPREAD_NODES, most // 8)))
    return replace(request, max_nodes=nodes), False


def _notes(profile: Profile, rows: tuple[Row, ...], work: Work, restricted: bool) -> tuple[str, ...]:
    notes = []
    if restricted:
        notes.append(
            "the profiled run was one process, so every row has one device; --max-nodes 4 considers more for"
            " a script that can run under DistributedDataParallel"
        )
    if not work.shown:
        notes.append(f"ranked for {work.source}")
    measured = len(profile.steps.seconds) if profile.steps else 0
    on_cpu = profile.steps is None or profile.steps.device == "cpu"
    resting = any((r.configuration.offer.accelerator is None) == on_cpu for r in rows)
    if 0 < measured < ENOUGH_STEPS and resting:
        notes.append(
            f"the local run had {measured} undisturbed step{'s' if measured > 1 else ''}, so ranges that rest"
            f" on it are wider; profile for longer (--for) to get {ENOUGH_STEPS}"
        )
    one_process = profile.steps is not None and profile.steps.workers == 1
    if one_process and any(r.configuration.devices > 1 and not r.configuration.parallel.name for r in rows):
        notes.append(
            "the profiled run was one process; rows with several devices assume DistributedDataParallel with"
            " the same batch on each"
        )
    if any(r.configuration.parallel.name for r in rows):
        notes.append(
            "rows with FSDP, ZeRO, tensor, pipeline or checkpointing assume a script that does so; the job"
            " file of --emit sets variables that say how"
        )
    tight = [str(r.rank) for r in rows if r.memory_high > r.memory_limit]
    if tight:
        notes.append(f"rows that may run out of memory (see --explain): {', '.join(tight)}")
    devices = {r.configuration.offer.accelerator for r in rows if not r.measured}
    carried = sorted({accelerator(name).name for name in devices if name})
    if carried:
        notes.append(f"never measured, so wider ranges by the laws of other devices: {', '.join(carried)}")
    return tuple(notes)
