"""What more than one device, a slow input and a reclaimed machine add to a step and to a job."""

from dataclasses import dataclass

import numpy as np

from trimtab.predict.cost.demand import Quantity


@dataclass(frozen=True, slots=True)
class ScaleOutAssumptions:
    """Rules of thumb that no local run can measure. Ratios unless said otherwise."""

    link_efficiency: float = 0.75
    """Share of a link's bandwidth that a ring all-reduce gets."""
    link_latency: float = 15e-6
    """Seconds per ring step and bucket between devices of one machine."""
    network_latency: float = 40e-6
    """Seconds per ring step and bucket between machines."""
    bucket: float = 25 * 2**20
    """Bytes that PyTorch's DistributedDataParallel reduces at once."""
    overlap: float = 0.45
    """Share of a step (most of the backward pass) during which gradients travel unnoticed."""
    exposed: float = 0.1
    """Share of the all-reduce that is never hidden: the last bucket."""


def all_reduce_seconds(
    gradient_bytes: Quantity,
    per_node: Quantity,
    nodes: Quantity,
    link: Quantity,
    network: Quantity,
    assume: ScaleOutAssumptions,
) -> Quantity:
    """Seconds of a ring all-reduce, first inside each node, then between nodes.

    A ring of n members sends 2(n-1)/n of the data over each link. `link` and `network` in bytes/s per
    device and per node, one direction.
    """
    buckets = np.maximum(1.0, np.ceil(np.asarray(gradient_bytes) / assume.bucket))
    inside = 2 * (per_node - 1) / per_node * gradient_bytes / (assume.link_efficiency * link)
    between = 2 * (nodes - 1) / nodes * gradient_bytes / (assume.link_efficiency * network)
    latency = 2 * (per_node - 1) * assume.link_latency + 2 * (nodes - 1) * assume.network_latency
    return inside + between + latency * buckets


def exposed_seconds(all_reduce: Quantity, step: Quantity, assume: ScaleOutAssumptions) -> Quantity:
    """The part of an all-reduce that the backward pass does not hide."""
    return np.maximum(all_reduce - assume.overlap * step, assume.exposed * all_reduce)


def input_seconds(
    serial: bool, cpu_seconds_per_sample: float, batch: Quantity, cores_per_device: Quantity, step: Quantity
) -> Quantity:
    """Time a step waits for its data.

    Loaded in the training process (`serial`) it always waits; with loader workers, only for what they do not
    finish during the step.
    """
    load = cpu_seconds_per_sample * np.asarray(batch)
    if serial:
        return load + 0.0 * np.asarray(step)
    return np.maximum(0.0, load / np.maximum(1.0, cores_per_device) - step)


def restart_factor(
    interruptions_per_hour: float, nodes: Quantity, restart: float, checkpoint_every: float
) -> Quantity:
    """Expected stretch of a job on spot machines: losing any node costs a restart and half an interval."""
    lost = restart + checkpoint_every / 2
    return 1.0 + interruptions_per_hour / 3600.0 * np.asarray(nodes, dtype=float) * lost
