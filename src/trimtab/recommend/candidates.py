"""Every configuration that might be rented, as columns, with what it would take and cost."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.catalog import OfferTable, find_accelerator
from trimtab.core import BadInputError, Configuration, Dropped, Estimate, NotFoundError
from trimtab.predict import GuardedEstimates, GuardedEstimator, Placements, StepEstimates, restart_factor
from trimtab.recommend.request import Request, Work

Array = NDArray[np.float64]
Index = NDArray[np.intp]

COVERAGE = 0.9


@dataclass(frozen=True, slots=True)
class Candidates:
    """Configurations as columns: `offer` is a row of `offers`. Seconds and dollars for the whole job.

    `step` is the answer that counts, `guarded` what rule and model say.
    """

    offers: OfferTable
    offer: Index
    nodes: Array
    batch: Array
    spot: NDArray[np.bool_]
    step: StepEstimates
    guarded: GuardedEstimates
    steps: Array
    stretch: Array
    startup: float
    time: Array
    price: Array

    def __len__(self) -> int:
        return len(self.offer)

    @property
    def cost(self) -> Array:
        return self.time * self.price

    def job_time(self, row: int, step: StepEstimates) -> Estimate:
        """How long the job in row `row` takes if its steps are as `step` says."""
        running = float(self.steps[row] * step.total[row] * self.stretch[row])
        low, value, high = (
            self.startup + running * f for f in (float(step.low[row]), 1.0, float(step.high[row]))
        )
        return Estimate(value, low, high, COVERAGE, "s")

    def configuration(self, row: int) -> Configuration:
        """The configuration in row `row`."""
        return Configuration(
            self.offers[int(self.offer[row])],
            int(self.nodes[row]),
            int(self.batch[row]),
            bool(self.spot[row]),
        )


def eligible(offers: OfferTable, request: Request) -> tuple[OfferTable, list[Dropped]]:
    """The offers that the request's clouds, regions and accelerators leave, and what was dropped unasked.

    Devices that need a port of the script (TPU, Trainium, Gaudi) are only considered when they are named.
    """
    for cloud in request.clouds:
        known = sorted(set(offers.cloud.vocabulary))
        if not offers.cloud.matches([cloud]).any():
            raise NotFoundError(f'no offer is from a cloud called "{cloud}"; there are {", ".join(known)}')
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
    facts = {name: find_accelerator(name) for name in chosen.accelerator.vocabulary if name}
    for names, why in (
        ([n for n, a in facts.items() if a and not a.trains], "only infer"),
        (
            [
                n
                for n, a in facts.items()
                if a and a.trains and not (a.runs_plain_pytorch or request.accelerators)
            ],
            "need a port of the script (--accelerator NAME considers one)",
        ),
    ):
        rows = chosen.accelerator.matches(names)
        if rows.any():
            present = sorted(set(chosen.select(rows).accelerator.values()))
            dropped.append(Dropped(int(rows.sum()), f"{', '.join(present)} {why}"))
            usable &= ~rows
    if not usable.any():
        raise NotFoundError(f"no offer is left: {'; '.join(d.reason for d in dropped)}")
    return chosen.select(usable), dropped


def candidates(
    offers: OfferTable, request: Request, work: Work, estimator: GuardedEstimator, batch_sizes: Sequence[int]
) -> Candidates:
    """All combinations of offer, nodes, batch size and spot, estimated."""
    offer, nodes, batch, spot = _combinations(offers, request, batch_sizes)
    per_node = np.maximum(1, offers.accelerators[offer]).astype(float)
    guarded = estimator.estimate(_placements(offers, offer, nodes, per_node, batch))
    steps = np.ceil(work.samples / (batch * nodes * per_node))
    assume = request.assume
    stretch = np.where(
        spot,
        restart_factor(
            assume.interruptions_per_hour,
            nodes,
            restart=assume.restart,
            checkpoint_every=assume.checkpoint_every,
        ),
        1.0,
    )
    price = nodes * np.where(spot, offers.spot_price[offer], offers.price[offer])
    return Candidates(
        offers=offers,
        offer=offer,
        nodes=nodes,
        batch=batch,
        spot=spot,
        step=guarded.chosen,
        guarded=guarded,
        steps=steps,
        stretch=stretch,
        startup=assume.startup,
        time=assume.startup + steps * guarded.chosen.total * stretch,
        price=price,
    )


def _combinations(
    offers: OfferTable, request: Request, batch_sizes: Sequence[int]
) -> tuple[Index, Array, Array, NDArray[np.bool_]]:
    grid = np.meshgrid(
        np.arange(len(offers)),
        np.arange(1, (request.max_nodes or 1) + 1),
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


def _placements(offers: OfferTable, offer: Index, nodes: Array, per_node: Array, batch: Array) -> Placements:
    # The vocabulary holds "" for machines without an accelerator.
    words = offers.accelerator.vocabulary
    is_plain = np.array([word == "" for word in words], dtype=bool)
    codes = offers.accelerator.codes[offer].astype(np.intp)
    return Placements(
        devices=tuple(words),
        device=np.where(is_plain[codes] if len(words) else True, -1, codes),
        per_node=per_node,
        nodes=nodes,
        cores=offers.vcpus[offer],
        memory=offers.memory[offer],
        network=offers.network[offer],
        batch=batch,
    )
