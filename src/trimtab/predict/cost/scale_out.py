"""A step on several devices: how a model is spread over them, what they exchange, and what each keeps.

With r replicas of a model, each divided into p pipeline stages whose products t devices share, one device
computes 1/(t p) of a micro-batch's pass. A step of M micro-batches takes

    passes   = (M + p - 1) × pass / (t p)                 stages wait for the first and the last micro-batch
    update   = update / (t p), and by r where replicas share the optimizer's state (ZeRO)
    network  = exchange of gradients and weights between replicas, as far as the passes do not hide it,
               + sums over devices that share products + tensors handed from stage to stage
    straggle = jitter × √(2 ln devices) of all of it      the slowest of many devices sets the pace

An all-reduce of V bytes over n devices sends 2 (n-1)/n V over each link (ring); FSDP gathers the weights
twice and scatters the gradients once per micro-batch, which is 3/2 of that. `partition` uses the same
formulas for stages that differ.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.catalog import measured_constants
from trimtab.core import Model, Parallelism
from trimtab.predict.cost.demand import Quantity, is_half
from trimtab.predict.tables import Array, Flags

SHARDINGS = ("none", "optimizer", "gradients", "full")
"""Parts of the state that replicas share out: nothing; ZeRO 1; ZeRO 2; weights too (ZeRO 3, FSDP)."""
FULL = SHARDINGS.index("full")

# Adapters of rank 16 on every projection train about this share of a language model's weights.
_ADAPTER_SHARE_PER_RANK = 0.0004
# Without gradients of the frozen weights a backward pass costs what a forward pass costs.
_FROZEN_FLOP = 2.0 / 3.0


def _calibrated(name: str) -> Any:
    return field(default_factory=lambda: float(measured_constants("scale-out")[name]))


@dataclass(frozen=True, slots=True)
class ScaleOutAssumptions:
    """Constants of collectives and of many devices in step, from the calibration. Ratios unless stated."""

    link_efficiency: float = _calibrated("link_efficiency")
    """Share of a link's bandwidth that a ring all-reduce gets."""
    network_efficiency: float = _calibrated("network_efficiency")
    """Share of the bandwidth between machines likewise."""
    link_latency: float = _calibrated("link_latency")
    """Seconds per level of the tree and bucket between devices of one machine."""
    network_latency: float = _calibrated("network_latency")
    """Seconds per level of the tree and bucket between machines."""
    bucket: float = _calibrated("bucket")
    """Bytes that PyTorch's DistributedDataParallel reduces at once."""
    overlap: float = _calibrated("overlap")
    """Share of a step (most of the backward pass) that hides the all-reduce."""
    exposed: float = _calibrated("exposed")
    """Share of the all-reduce that is never hidden: the last bucket."""
    spread_time: float = _calibrated("spread_time")
    """Passes of language models that are spread over devices, over the estimate: frameworks fuse kernels."""
    jitter: float = _calibrated("jitter")
    """Standard deviation of a device's step relative to its mean."""
    scaling_low: float = _calibrated("scaling_low")
    """Published over estimated time of a step on several devices, given that of one: the 5% quantile."""
    scaling_high: float = _calibrated("scaling_high")
    """The 95% quantile of that ratio: some systems scale badly."""


def all_reduce_seconds(
    gradient_bytes: Quantity,
    per_node: Quantity,
    nodes: Quantity,
    link: Quantity,
    network: Quantity,
    assume: ScaleOutAssumptions,
) -> Quantity:
    """Seconds of an all-reduce, first inside each node, then between nodes.

    A ring of n members sends 2(n-1)/n of the data over each link; latency is a tree's, up and down. `link`
    and `network` in bytes/s per device and per node, one direction.
    """
    buckets = np.maximum(1.0, np.ceil(np.asarray(gradient_bytes) / assume.bucket))
    inside = 2 * (per_node - 1) / per_node * gradient_bytes / (assume.link_efficiency * link)
    between = 2 * (nodes - 1) / nodes * gradient_bytes / (assume.network_efficiency * network)
    latency = 2 * np.log2(per_node) * assume.link_latency + 2 * np.log2(nodes) * assume.network_latency
    return inside + between + latency * buckets


def exposed_seconds(all_reduce: Quantity, step: Quantity, assume: ScaleOutAssumptions) -> Quantity:
    """The part of an all-reduce that the backward pass does not hide."""
    return np.maximum(all_reduce - assume.overlap * step, assume.exposed * all_reduce)


def straggler_factor(devices: Quantity, assume: ScaleOutAssumptions) -> Quantity:
    """Expected time of the slowest of `devices` over the mean: about σ √(2 ln n) above, if normal."""
    return 1.0 + assume.jitter * np.sqrt(2.0 * np.log(np.maximum(devices, 1.0)))


def kept_shares(sharding: str, replicas: float) -> tuple[float, float, float]:
    """Shares of the weights, gradients and optimizer state that each of `replicas` keeps."""
    level, part = SHARDINGS.index(sharding), 1.0 / replicas
    return (part if level >= FULL else 1.0), (part if level >= 2 else 1.0), (part if level >= 1 else 1.0)


@dataclass(frozen=True, slots=True)
class Layouts:
    """Parallelism of many rows as columns. `sharding` indexes `SHARDINGS`."""

    sharding: NDArray[np.intp]
    tensor: Array
    pipeline: Array
    microbatches: Array
    recompute: Flags
    eight_bit: Flags
    adapter_rank: Array

    @classmethod
    def of(cls, rows: "list[Parallelism]") -> "Layouts":
        def column(name: str, kind: type) -> NDArray[Any]:
            return np.array([getattr(row, name) for row in rows], dtype=kind)

        return cls(
            np.array([SHARDINGS.index(row.sharding) for row in rows], dtype=np.intp),
            column("tensor", float),
            column("pipeline", float),
            column("microbatches", float),
            column("recompute", bool),
            column("eight_bit_optimizer", bool),
            column("adapter_rank", float),
        )

    @classmethod
    def plain(cls, rows: int) -> "Layouts":
        """Data parallelism without anything else."""
        return cls.of([Parallelism()]).at(np.zeros(rows, dtype=np.intp))

    def at(self, rows: NDArray[Any]) -> "Layouts":
        return Layouts(*(getattr(self, name)[rows] for name in Layouts.__slots__))

    def row(self, number: int) -> Parallelism:
        return Parallelism(
            SHARDINGS[self.sharding[number]],
            int(self.tensor[number]),
            int(self.pipeline[number]),
            int(self.microbatches[number]),
            bool(self.recompute[number]),
            bool(self.eight_bit[number]),
            int(self.adapter_rank[number]),
        )

    @property
    def parts(self) -> Array:
        """Devices that hold one replica."""
        return self.tensor * self.pipeline

    @property
    def is_plain(self) -> Flags:
        """Whether a device holds all of the model and computes what the profiled script computes."""
        changed = self.recompute | self.eight_bit | (self.adapter_rank > 0) | (self.microbatches > 1)
        return np.asarray((self.sharding == 0) & (self.parts == 1) & ~changed)

    @property
    def trained_share(self) -> Array:
        """Share of the weights that is trained."""
        adapters = np.minimum(1.0, _ADAPTER_SHARE_PER_RANK * self.adapter_rank)
        return np.where(self.adapter_rank > 0, adapters, 1.0)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Facts of a transformer's blocks, from its normalizations: there are two to a block.

    `exchanged` are fp32 bytes per sample that devices with shared products add up in a forward pass, in
    `sums` collectives; `boundary` those that one stage hands to the next; `count` the number of blocks.
    """

    count: float
    sums: float
    exchanged: float
    boundary: float


def blocks_of(model: Model) -> Blocks | None:
    """The blocks of a model made of matrix products; None if convolutions or recurrences make it up."""
    forward = [o for o in model.operators if o.phase == "forward"]
    calls = {kind: sum(o.calls for o in forward if o.kind == kind) for kind in ("matmul", "conv", "rnn")}
    norms = [o for o in forward if o.kind == "norm"]
    sums, written = sum(o.calls for o in norms), sum(o.written_sample_bytes for o in norms)
    if sums < 4 or not written or calls["rnn"] or calls["conv"] > 0.1 * calls["matmul"]:
        return None
    return Blocks(max(1.0, (sums - 1) / 2), sums, written, written / sums)


def passes_factor(layouts: Layouts) -> tuple[Array, Array, Array]:
    """Factors on launch, compute and traffic seconds of a micro-batch's pass, over all of a step's passes.

    Those seconds are of a device that has its part of every product, and of all stages.
    """
    again = np.where(layouts.recompute, 4.0 / 3.0, 1.0)  # the forward pass is a third of the two passes
    turns = layouts.microbatches + layouts.pipeline - 1.0
    frozen = np.where(layouts.adapter_rank > 0, _FROZEN_FLOP, 1.0)
    passes = turns * again / layouts.pipeline
    return passes, passes * frozen, passes


def network_seconds(
    model: Model,
    layouts: Layouts,
    batch: Array,
    per_node: Array,
    nodes: Array,
    link: Array,
    network: Array,
    passes: Array,
    precision: str,
    assume: ScaleOutAssumptions,
) -> Array:
    """Seconds of a step in which devices wait for what others send; `passes` are those of computing."""
    half = 0.5 if is_half(precision) else 1.0
    parts, devices = layouts.parts, per_node * nodes
    replicas = np.maximum(1.0, devices / parts)
    inside = np.clip(np.floor(per_node / parts), 1.0, replicas)
    outside = np.maximum(1.0, replicas / inside)
    weights = model.parameter_bytes / parts
    # All devices of a machine share its network; each replica in it has its own gradients.
    share = network / np.maximum(1.0, np.minimum(parts, per_node))
    trained = (model.trained_parameters or model.parameters) / max(1, model.parameters)
    gradients = weights * trained * layouts.trained_share
    reduced = np.asarray(all_reduce_seconds(gradients, inside, outside, link, share, assume))
    gathered = np.asarray(all_reduce_seconds(weights * half, inside, outside, link, share, assume))
    between_replicas = np.where(layouts.sharding == FULL, 1.5 * layouts.microbatches * gathered, reduced)
    exposed = np.asarray(exposed_seconds(between_replicas, passes, assume))
    blocks = blocks_of(model)
    if blocks is None or not (parts > 1).any():
        return np.where(replicas > 1, exposed, 0.0)
    samples = batch / layouts.microbatches
    # Forward, backward and, where it is computed again, forward once more.
    times = (2.0 + layouts.recompute) * (layouts.microbatches + layouts.pipeline - 1.0) / layouts.pipeline
    near = np.minimum(layouts.tensor, per_node)
    one_sum = all_reduce_seconds(
        blocks.boundary * half * samples, near, layouts.tensor / near, link, network, assume
    )
    summed = np.where(layouts.tensor > 1, blocks.sums * times * one_sum, 0.0)
    crosses = layouts.parts > per_node
    rate = np.where(crosses, assume.network_efficiency * share, assume.link_efficiency * link)
    latency = np.where(crosses, assume.network_latency, assume.link_latency)
    hand = latency + blocks.boundary * half * samples / layouts.tensor / rate
    handed = np.where(layouts.pipeline > 1, 2.0 * (layouts.microbatches + layouts.pipeline - 1.0) * hand, 0.0)
    return np.asarray(np.where(replicas > 1, exposed, 0.0) + summed + handed)
