"""Every configuration that can be rented, as columns, with its time and cost."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from trimtab.catalog import ARCHITECTURES, OfferTable, architecture, find_accelerator
from trimtab.core import BadInputError, Configuration, Dropped, Estimate, NotFoundError, Parallelism
from trimtab.predict import (
    GuardedEstimates,
    GuardedEstimator,
    Layouts,
    Placements,
    Power,
    StepEstimates,
    blocks_of,
    energy_constants,
    kinds,
    power,
    restart_factor,
)
from trimtab.recommend.layouts import WAYS, effort, possible_layouts
from trimtab.recommend.request import Assumptions, Request, Work

Array = NDArray[np.float64]
Index = NDArray[np.intp]

COVERAGE = 0.9


@dataclass(frozen=True, slots=True)
class Candidates:
    """Configurations as columns: `offer` is a row of `offers`. Seconds and dollars of the job.

    `step` are the guard's chosen estimates, `guarded` those of rule and model.
    """

    offers: OfferTable
    offer: Index
    nodes: Array
    batch: Array
    spot: NDArray[np.bool_]
    layouts: Layouts
    step: StepEstimates
    guarded: GuardedEstimates
    steps: Array
    stretch: Array
    assume: Assumptions
    time: Array
    price: Array
    power: Power

    def __len__(self) -> int:
        return len(self.offer)

    @property
    def cost(self) -> Array:
        return self.time * self.price

    @property
    def energy(self) -> Array:
        """Joules of the job; NaN where a device's power is unpublished."""
        running = self.time - self.assume.startup
        return self.assume.startup * self.power.starting + running * self.power.running

    def job_energy(self, row: int, time: Estimate) -> Estimate | None:
        """The energy of the job in row `row` whose time is given; None where the power is unpublished.

        The errors of time and power are independent, so the squares of their logarithms add up.
        """
        value, error = float(self.energy[row]), math.log(energy_constants().error)
        if math.isnan(value):
            return None
        low, high = (math.hypot(math.log(end / time.value), error) for end in (time.low, time.high))
        return Estimate(value, value * math.exp(-low), value * math.exp(high), COVERAGE, "J")

    def job_time(self, row: int, step: StepEstimates) -> Estimate:
        """The time of the job in row `row` with the given step estimates.

        Start-up and running time are independent, so the squares of their deviations add up.
        """
        running = float(self.steps[row] * step.total[row] * self.stretch[row])
        start, (soonest, latest) = self.assume.startup, self.assume.startup_range
        below = math.hypot(start - min(soonest, start), running * (1.0 - float(step.low[row])))
        above = math.hypot(max(latest, start) - start, running * (float(step.high[row]) - 1.0))
        value = start + running
        least = running * float(step.low[row])  # never less than the run itself at its fastest
        return Estimate(value, max(value - below, least), value + above, COVERAGE, "s")

    def configuration(self, row: int) -> Configuration:

        return Configuration(
            self.offers[int(self.offer[row])],
            int(self.nodes[row]),
            int(self.batch[row]),
            bool(self.spot[row]),
            self.layouts.row(row),
        )


def eligible(offers: OfferTable, request: Request) -> tuple[OfferTable, list[Dropped]]:
    """The offers that match the request's clouds, regions and accelerators, and counts of dropped ones.

    Devices that need a port of the script (TPU, Trainium, Gaudi) are considered only if they are named, and
    machines with ARM CPUs only if the request says so.
    """
    for cloud in request.clouds:
        if not offers.cloud.matches([cloud]).any():
            clouds = ", ".join(sorted(set(offers.cloud.vocabulary)))
            raise NotFoundError(f'no offer is from a cloud called "{cloud}"; there are {clouds}')
    chosen = offers.where(
        cloud=request.clouds or None,
        region=request.regions or None,
        accelerator=request.accelerators or None,
    )
    if len(chosen) == 0:
        raise NotFoundError(
            "no offer is left after --cloud, --region and --accelerator; `trimtab catalog ls` lists all"
        )
    usable, dropped = np.ones(len(chosen), dtype=np.bool_), []
    reasons: dict[str, list[str]] = {}
    for name in chosen.accelerator.vocabulary:
        known = find_accelerator(name) if name else None
        if known and not known.trains:
            reasons.setdefault("only infer", []).append(name)
        elif known and not (known.runs_plain_pytorch or request.accelerators):
            port = "need a port of the script (--accelerator NAME considers one)"
            reasons.setdefault(port, []).append(name)
    for why, names in reasons.items():
        rows = chosen.accelerator.matches(names)
        if rows.any():
            present = sorted(set(chosen.select(rows).accelerator.values()))
            dropped.append(Dropped(int(rows.sum()), f"{', '.join(present)} {why}"))
            usable &= ~rows
    wanted = request.architecture or ARCHITECTURES[0]
    other = usable & (architectures(chosen) != wanted)
    if other.any():
        names = sorted(set(chosen.select(other).instance.values()))
        shown = f"{', '.join(names[:3])}{' and others' if len(names) > 3 else ''}"
        (kind,) = (name for name in ARCHITECTURES if name != wanted)
        dropped.append(Dropped(int(other.sum()), f"{shown}: {kind} CPUs (--arch {kind} considers them)"))
        usable &= ~other
    if not usable.any():
        raise NotFoundError(f"no offer is left: {'; '.join(d.reason for d in dropped)}")
    return chosen.select(usable), dropped


def architectures(offers: OfferTable) -> NDArray[np.str_]:
    """The architecture of every offer's CPU."""
    pairs = np.stack([offers.cloud.codes, offers.instance.codes], axis=1)
    unique, place = np.unique(pairs, axis=0, return_inverse=True)
    names = [architecture(offers.cloud.vocabulary[c], offers.instance.vocabulary[i]) for c, i in unique]
    return np.array(names, dtype=np.str_)[place.ravel()]


def candidates(
    offers: OfferTable,
    request: Request,
    work: Work,
    estimator: GuardedEstimator,
    batch_sizes: Sequence[int],
    loader_workers: int = 0,
) -> Candidates:
    """All combinations of offer, nodes, batch size and spot, estimated.

    A model that does not fit a device is spread over the configuration's devices, in the way that takes the
    least time of those that fit.
    """
    offer, nodes, batch, spot = _grid(offers, request, batch_sizes)
    where = _placements(offers, offer, nodes, batch)
    layouts, keep = _chosen_layouts(where, request, estimator)
    where, layouts = replace(where, layouts=layouts).at(keep), layouts.at(keep)
    offer, nodes, batch, spot = offer[keep], nodes[keep], batch[keep], spot[keep]
    guarded = estimator.estimate(where)
    steps = np.ceil(work.samples / (batch * np.maximum(1.0, nodes * where.per_node / layouts.parts)))
    assume = request.assume
    restarts = restart_factor(
        assume.interruptions_per_hour, nodes, restart=assume.restart, checkpoint_every=assume.checkpoint_every
    )
    stretch = np.where(spot, restarts, 1.0)
    return Candidates(
        offers=offers,
        offer=offer,
        nodes=nodes,
        batch=batch,
        spot=spot,
        layouts=layouts,
        step=guarded.chosen,
        guarded=guarded,
        steps=steps,
        stretch=stretch,
        assume=assume,
        time=assume.startup + steps * guarded.chosen.total * stretch,
        price=nodes * np.where(spot, offers.spot_price[offer], offers.price[offer]),
        power=power(where, guarded.chosen, 1.0 + loader_workers),
    )


_ALL_NODE_COUNTS = 64  # beyond it only powers of two, and the largest


def _grid(
    offers: OfferTable, request: Request, batch_sizes: Sequence[int]
) -> tuple[Index, Array, Array, NDArray[np.bool_]]:
    """Offer, nodes, batch size and spot of every combination within the request's limits."""
    most = request.max_nodes or 1
    counts = [n for n in range(1, most + 1) if n <= _ALL_NODE_COUNTS or n & (n - 1) == 0 or n == most]
    grid = np.meshgrid(
        np.arange(len(offers)),
        np.array(counts),
        np.asarray(batch_sizes),
        np.array([False, True] if request.spot else [False]),
        indexing="ij",
    )
    offer, nodes, batch, spot = (axis.ravel() for axis in grid)
    keep = ~spot | ~np.isnan(offers.spot_price[offer])
    if request.max_devices is not None:
        keep &= nodes * np.maximum(1, offers.accelerators[offer]) <= request.max_devices
    if not keep.any():
        raise BadInputError(
            f"no offer has at most {request.max_devices} devices; raise --max-devices or widen the search"
        )
    return offer[keep], nodes[keep].astype(float), batch[keep].astype(float), spot[keep]


def _placements(offers: OfferTable, offer: Index, nodes: Array, batch: Array) -> Placements:
    words = offers.accelerator.vocabulary  # "" for machines without an accelerator
    codes = offers.accelerator.codes[offer].astype(np.intp)
    is_plain = np.array([word == "" for word in words], dtype=bool)
    return Placements(
        devices=tuple(words),
        device=np.where(is_plain[codes] if len(words) else True, -1, codes),
        per_node=np.maximum(1, offers.accelerators[offer]).astype(float),
        nodes=nodes,
        cores=offers.vcpus[offer],
        memory=offers.memory[offer],
        network=offers.network[offer],
        batch=batch,
    )


_SIMPLER = 0.03  # a layout that asks for one thing more of the script must be this much faster


def _chosen_layouts(
    where: Placements, request: Request, estimator: GuardedEstimator
) -> tuple[Layouts, NDArray[np.bool_]]:
    """The layout of every placement, and which placements are considered.

    Plain where a device holds the model, else the best that fits; models are spread over powers of two of
    machines only.
    """
    rule, rows = estimator.rule, len(where.device)
    plain = rule.estimate(where)
    too_large = plain.known & (where.device >= 0) & (plain.memory > plain.memory_limit)
    power_of_two = np.isin(where.nodes, 2.0 ** np.arange(20))
    spread = np.flatnonzero(too_large & power_of_two)
    if request.parallel:
        spread = np.flatnonzero(plain.known & (where.device >= 0) & power_of_two)
    chosen, keep = [Parallelism()] * rows, ~too_large | power_of_two
    if not len(spread):
        return Layouts.plain(rows), keep
    blocks, ways = blocks_of(rule.model) is not None, request.parallel or WAYS
    # Time and memory are those of the device, machine and batch, whatever the region and the price.
    first, kind = kinds(
        *(c[spread] for c in (where.device, where.per_node, where.nodes, where.batch, where.network))
    )
    options = [
        possible_layouts(
            int(where.per_node[row] * where.nodes[row]),
            int(where.per_node[row]),
            int(where.batch[row]),
            ways,
            request.save_memory,
            blocks,
        )
        for row in spread[first]
    ]
    place = np.repeat(spread[first], [len(some) for some in options])
    flat = [layout for some in options for layout in some]
    if not flat:
        raise BadInputError(
            f"no configuration can be spread by {', '.join(ways)}; these ways need several devices, and"
            " tensor and pipeline a model made of matrix products; add data to --parallel or raise"
            " --max-devices"
        )
    step = rule.estimate(replace(where.at(place), layouts=Layouts.of(flat)))
    score = step.total / np.maximum(1.0, where.per_node[place] * where.nodes[place] / _parts(flat))
    score = score * (1.0 + _SIMPLER * np.array([effort(layout) for layout in flat]))
    # One that may run out of memory is taken only where nothing else fits.
    score = np.where(step.memory_high > step.memory_limit, score * 1e6, score)
    score = np.where(step.memory > step.memory_limit, 1e30 * step.memory, score)
    ends = np.cumsum([0, *(len(some) for some in options)])
    best = [
        flat[start + int(np.argmin(score[start:end]))] if end > start else Parallelism()
        for start, end in pairwise(ends.tolist())
    ]
    possible = np.array([len(some) > 0 for some in options])
    for row, number in zip(spread.tolist(), kind.tolist(), strict=True):
        chosen[row] = best[number]
    if request.parallel and "data" not in request.parallel:
        keep = np.zeros(rows, dtype=np.bool_)
        keep[spread] = possible[kind]
    return Layouts.of(chosen), keep


def _parts(rows: Sequence[Parallelism]) -> Array:
    return np.array([layout.tensor * layout.pipeline for layout in rows], dtype=float)
