"""From a profile to a ranked list: enumerate, drop what cannot be, estimate, rank."""

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
from trimtab.predict import EarlierRun, GuardedEstimator, StepEstimates
from trimtab.recommend.candidates import Candidates, candidates, eligible
from trimtab.recommend.request import Request, Work

# How many machines to consider for a distributed script where the user names no limit.
_DISTRIBUTED_NODES = 4
PARTS = ("launch", "compute", "traffic", "update", "network", "input")
# A need for memory is stated as at most this, in this share of cases.
MEMORY_COVERAGE = 0.95


@dataclass(frozen=True, slots=True)
class Side:
    """Answer of the rule or the model about a row; None where it has none."""

    time: Estimate | None
    cost: Estimate | None
    memory: Estimate | None


@dataclass(frozen=True, slots=True)
class Row:
    """One recommended configuration. Seconds, dollars, bytes; `parts` are seconds of one step.

    `rule` and `model` are the two answers; which of them counts, and why, is in words in `time_choice` (cost
    follows time) and `memory_choice`, and in `time_by_model` and `memory_by_model`. `measured` says whether
    the device itself was measured, or its constants carried over from another.
    """

    rank: int
    configuration: Configuration
    time: Estimate
    cost: Estimate
    steps: float
    step_seconds: float
    parts: dict[str, float]
    memory: float
    memory_high: float
    memory_limit: float
    stretch: float
    measured: bool
    efficient: bool
    """No other candidate is both faster and cheaper."""
    rule: Side
    model: Side
    time_by_model: bool
    memory_by_model: bool
    time_choice: str
    memory_choice: str


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The ranked rows, what was left out, and every candidate for the chart (`frontier` by time)."""

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

    `earlier` is what became of earlier decisions about it (`earlier_runs` finds them), oldest first.
    """
    estimator = GuardedEstimator(profile, request.precision, earlier)
    batch_sizes = request.batch_sizes or (profile.steps.batch_size if profile.steps else 1,)
    request, restricted = _devices_of(profile, request)
    usable, dropped = eligible(offers, request)
    found = candidates(usable, request, work, estimator, batch_sizes)
    fitting, misfits = _that_fit(found)
    dropped += misfits
    within = _within_limits(found, fitting, request)
    best = _one_region_each(found, within[np.argsort(_scores(found, within, request), kind="stable")])
    frontier = _frontier(found, within)
    efficient = set(frontier.tolist())
    rows = tuple(_row(found, int(i), rank, i in efficient) for rank, i in enumerate(best[: request.top], 1))
    over = len(fitting) - len(within)
    if over:
        dropped.append(Dropped(over, "over the deadline or the budget"))
    return Recommendation(
        profile,
        request,
        work,
        rows,
        tuple(dropped),
        (*_notes(profile, rows, work, restricted), *_guard_notes(found, within, rows, request, earlier)),
        len(found),
        found,
        within,
        frontier,
    )


def _scores(found: Candidates, rows: NDArray[np.intp], request: Request) -> NDArray[np.float64]:
    return score(request.objective, found.time[rows], found.cost[rows])


def _that_fit(found: Candidates) -> tuple[NDArray[np.intp], list[Dropped]]:
    """Rows whose device is known and whose memory suffices; the others counted by reason."""
    step, dropped = found.step, []
    names = np.array([w or "host" for w in found.offers.accelerator.vocabulary] or ["host"])
    device = names[found.offers.accelerator.codes[found.offer]]
    unknown = sorted(set(device[~step.known].tolist()))
    if unknown:
        dropped.append(Dropped(int((~step.known).sum()), f"nothing is known of {', '.join(unknown)}"))
    too_large = step.known & (step.memory > step.memory_limit)
    for name in np.unique(device[too_large]):
        rows = np.flatnonzero(too_large & (device == name))
        nearest = rows[np.argmin(step.memory[rows] - step.memory_limit[rows])]
        need = format_bytes(float(step.memory[nearest]))
        room = format_bytes(float(step.memory_limit[nearest]))
        what = "host memory" if name == "host" else f"{name} memory"
        dropped.append(Dropped(len(rows), f"{what}: a step needs {need} at best, {room} can be used"))
    fitting = np.flatnonzero(step.known & ~too_large)
    if len(fitting) == 0:
        reasons = "; ".join(d.reason for d in dropped)
        raise BadInputError(f"no configuration can run this workload ({reasons}); try a smaller --batch-size")
    return fitting, dropped


def _within_limits(found: Candidates, rows: NDArray[np.intp], request: Request) -> NDArray[np.intp]:
    def name(place: int) -> str:
        return found.configuration(int(rows[place])).key

    return rows[within_limits(found.time[rows], found.cost[rows], request, name)]


def _one_region_each(found: Candidates, ranked: NDArray[np.intp]) -> NDArray[np.intp]:
    """The best region of every instance type, nodes, batch and spot: the same machine is listed once."""
    offers = found.offers
    seen: set[tuple[int, int, float, float, bool]] = set()
    kept = []
    for row in ranked.tolist():
        o = found.offer[row]
        key = (
            int(offers.cloud.codes[o]),
            int(offers.instance.codes[o]),
            float(found.nodes[row]),
            float(found.batch[row]),
            bool(found.spot[row]),
        )
        if key not in seen:
            seen.add(key)
            kept.append(row)
    return np.array(kept, dtype=np.intp)


def _frontier(found: Candidates, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Rows that no other beats in both time and cost, fastest first."""
    time, cost = found.time[rows], found.cost[rows]
    order = np.lexsort((cost, time))
    cheapest_before = np.concatenate([[np.inf], np.minimum.accumulate(cost[order])[:-1]])
    return rows[order[cost[order] < cheapest_before]]


def _row(found: Candidates, i: int, rank: int, efficient: bool) -> Row:
    step, price, guarded = found.step, float(found.price[i]), found.guarded
    time = found.job_time(i, step)
    return Row(
        rank=rank,
        configuration=found.configuration(i),
        time=time,
        cost=time.scaled(price, "$"),
        steps=float(found.steps[i]),
        step_seconds=float(step.total[i]),
        parts={name: float(getattr(step, name)[i]) for name in PARTS},
        memory=float(step.memory[i]),
        memory_high=float(step.memory_high[i]),
        memory_limit=float(step.memory_limit[i]),
        stretch=float(found.stretch[i]),
        measured=bool(step.measured[i]),
        efficient=efficient,
        rule=_side(found, i, guarded.rule),
        model=_side(found, i, guarded.model, bool(guarded.has_time[i]), bool(guarded.has_memory[i])),
        time_by_model=bool(guarded.time.by_model[i]),
        memory_by_model=bool(guarded.memory.by_model[i]),
        time_choice=guarded.time.words(i),
        memory_choice=guarded.memory.words(i),
    )


def _side(
    found: Candidates, i: int, step: StepEstimates, has_time: bool = True, has_memory: bool = True
) -> Side:
    """One answer for row `i`, without the quantities that it does not have."""
    takes = found.job_time(i, step) if has_time else None
    needs = Estimate(float(step.memory[i]), 0.0, float(step.memory_high[i]), MEMORY_COVERAGE, "B")
    return Side(
        takes,
        takes and takes.scaled(float(found.price[i]), "$"),
        needs if has_memory else None,
    )


def _guard_notes(
    found: Candidates,
    within: NDArray[np.intp],
    rows: tuple[Row, ...],
    request: Request,
    earlier: Sequence[EarlierRun],
) -> list[str]:
    """Notes on what earlier outcomes changed; empty if there are none."""
    notes = list(dict.fromkeys(f"time: {r.time_choice}" for r in rows)) if earlier else []
    if any(r.time_by_model for r in rows):
        by_rule = found.startup + found.steps * found.guarded.rule.total * found.stretch
        scores = score(request.objective, by_rule[within], by_rule[within] * found.price[within])
        first = found.configuration(int(within[np.argmin(scores)]))
        if first.key != rows[0].configuration.key:
            notes.append(f"by the rule alone, the first row would be {first.key}")
    return notes


def _devices_of(profile: Profile, request: Request) -> tuple[Request, bool]:
    """The request with its open limits filled in, and whether it was kept to one device.

    A script that ran as one process would leave a second device idle, unless the user says that it can
    share its work.
    """
    if request.max_nodes is not None:
        return request, False
    alone = profile.steps is None or profile.steps.workers == 1
    if alone and request.max_devices is None:
        return replace(request, max_nodes=1, max_devices=1), True
    return replace(
        request, max_nodes=min(_DISTRIBUTED_NODES, request.max_devices or _DISTRIBUTED_NODES)
    ), False


def _notes(profile: Profile, rows: tuple[Row, ...], work: Work, restricted: bool) -> tuple[str, ...]:
    notes = []
    if restricted:
        notes.append(
            "the run was one process, so one device each; --max-nodes 4 considers more for a script that can"
            " run under DistributedDataParallel"
        )
    if not work.shown:
        notes.append(f"ranked for {work.source}")
    if profile.steps and profile.steps.workers == 1 and any(r.configuration.devices > 1 for r in rows):
        notes.append(
            "the run was one process; rows with several devices assume DistributedDataParallel with the same"
            " batch on each"
        )
    tight = [str(r.rank) for r in rows if r.memory_high > r.memory_limit]
    if tight:
        notes.append(f"rows that may run out of memory (see --explain): {', '.join(tight)}")
    carried = sorted({_device(r) for r in rows if not r.measured and r.configuration.offer.accelerator})
    if carried:
        notes.append(f"constants carried over from another device, so wider ranges: {', '.join(carried)}")
    return tuple(notes)


def _device(row: Row) -> str:
    return accelerator(row.configuration.offer.accelerator or "").name
