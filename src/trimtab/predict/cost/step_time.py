"""Seconds of an operation, of a pass and of a whole step on one device: the one cost model.

Every operation takes time of the host that launches it and of the device that runs it, by kind of operation:

    host   = calls · launch
    device = FLOP / rate + bytes / bandwidth + a floor per kernel

A step is the composition of its operations, with the parameter update and a constant once per step:

    step   = (Σ host^q + Σ device^q)^(1/q)

The host runs ahead of the device, so the slower of the two sets the pace; near a tie each delays the other a
little, which the exponent q says. `step_time` estimates whole steps (for `recommend`), `operation_times`
gives every operation its share of the step (for `partition`): both are the same sums.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np

from trimtab.catalog import find_accelerator
from trimtab.predict.cost.constants import (
    CpuConstants,
    PeakRates,
    StepConstants,
    calibration,
    cpu_calibration,
    peak_rates,
    reference,
)
from trimtab.predict.cost.demand import Demand, Operations, Quantity, demand_of_operations, summed
from trimtab.predict.tables import Array

# Weights of a convolution (bytes) at which its rate is the utilization itself, and the range between the
# narrowest and the widest models measured: beyond it the rate is taken to stay as it is at the end.
_USUAL_CONV_WEIGHTS = 1.2e6
_MEASURED_CONV_WEIGHTS = (20e3, 5e6)
# Kinds of calls with a launch constant each.
_LAUNCHED = ("conv", "matmul", "attention", "recurrent", "other", "small")


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of a step and where they go; the four parts add up to `total`."""

    total: Quantity
    launch: Quantity
    compute: Quantity
    traffic: Quantity
    update: Quantity

    def scaled(self, factor: Quantity) -> "StepTime":
        return StepTime(*(getattr(self, part.name) * factor for part in fields(self)))


def step_time(demand: Demand, rates: PeakRates, constants: StepConstants) -> StepTime:
    """Seconds of one step, without network and input."""
    host = _once_seconds(demand, constants) + launch_seconds(demand, constants)
    compute = compute_seconds(demand, rates, constants)
    traffic = traffic_seconds(demand, rates, constants)
    update = demand.updated_bytes / (constants.update_bandwidth * rates.bandwidth)
    on_device = compute + traffic + update
    total, host_share, device_share = _composed(host, on_device, constants.sharpness)
    return StepTime(
        total, host * host_share, compute * device_share, traffic * device_share, update * device_share
    )


def _composed(host: Quantity, device: Quantity, sharpness: Quantity) -> tuple[Quantity, Quantity, Quantity]:
    """Seconds of host and device together, and the share of a second on either side that counts."""
    q = sharpness
    total = (host**q + device**q) ** (1.0 / q)
    # Each side's share of the total is its q-th power; so written, a part is never negative.
    least = np.maximum(total, 1e-300)
    return total, (host / least) ** (q - 1.0), (device / least) ** (q - 1.0)


def launch_seconds(demand: Demand, constants: StepConstants) -> Quantity:
    """Host seconds of all calls."""
    d, c = demand, constants
    forward, backward = (
        sum(getattr(d, f"{phase}_{kind}_calls") * getattr(c, f"{kind}_launch") for kind in _LAUNCHED)
        for phase in ("forward", "backward")
    )
    casting = c.half_launch * either(d.training, 1.0, c.inference_half_launch)
    slower = either(d.training, 1.0, c.inference_launch) * either(d.half, casting, 1.0)
    seconds: Quantity = (forward + c.backward_launch * backward) * slower
    return seconds


def _once_seconds(demand: Demand, constants: StepConstants) -> Quantity:
    """Host seconds of a step beside its calls."""
    return constants.step_launch * either(demand.training, 1.0, constants.inference_step_launch)


def compute_seconds(demand: Demand, rates: PeakRates, constants: StepConstants) -> Quantity:
    """Device seconds of arithmetic, with a floor per kernel."""
    d, c = demand, constants
    conv_rate = (
        rates.conv_peak
        * either(d.half, c.half_conv_utilization, c.conv_utilization)
        # Few channels leave the cores idle.
        * np.asarray(c.conv_width_gain)
        ** np.log2(np.clip(d.conv_weight_bytes, *_MEASURED_CONV_WEIGHTS) / _USUAL_CONV_WEIGHTS)
    )
    matmul_rate = rates.matmul_peak * either(d.half, c.half_matmul_utilization, c.matmul_utilization)
    attention_rate = rates.matmul_peak * either(d.half, c.half_attention_utilization, c.attention_utilization)
    kernels = _calls(d, "conv", "matmul", "attention", "other")
    return (
        d.conv_flop / conv_rate
        + d.matmul_flop / matmul_rate
        + d.attention_flop / attention_rate
        + d.grouped_flop / (c.grouped_utilization * rates.full_peak)
        + kernels * c.kernel_floor
    )


def _calls(demand: Demand, *kinds: str) -> Quantity:
    passes = (f"{phase}_{kind}_calls" for kind in kinds for phase in ("forward", "backward"))
    return sum((getattr(demand, name) for name in passes), start=0.0)


def traffic_seconds(demand: Demand, rates: PeakRates, constants: StepConstants) -> Quantity:
    """Device seconds of reading and writing memory, without the parameter update."""
    d, c = demand, constants
    backward = c.backward_traffic * either(d.half, c.half_backward_traffic, 1.0)
    relative = (
        (d.forward_conv_bytes + backward * d.backward_conv_bytes) / c.conv_bandwidth
        + (d.forward_matmul_bytes + backward * d.backward_matmul_bytes) / c.matmul_bandwidth
        + (d.forward_light_bytes + backward * d.backward_light_bytes) / c.light_bandwidth
        + d.copied_bytes / c.matmul_bandwidth
        + d.recurrent_bytes / c.recurrent_bandwidth
    )
    return relative / rates.bandwidth * either(d.half, c.half_traffic, 1.0)


def pass_seconds(demand: Demand, rates: PeakRates, constants: StepConstants) -> Quantity:
    """Seconds of one training pass of a part of a model that runs alone."""
    host = constants.pass_launch * launch_seconds(demand, constants)
    device = compute_seconds(demand, rates, constants) + traffic_seconds(demand, rates, constants)
    return _composed(host, device, constants.sharpness)[0]


def either(flag: Quantity, yes: Quantity, no: Quantity) -> Quantity:
    """`yes` where the flag is one; plain numbers stay plain, which is faster."""
    return np.asarray(flag) * yes + (1.0 - np.asarray(flag)) * no


def amdahl(parallel: float, cores: Quantity) -> Quantity:
    """Time on `cores` cores over that on one, if the share `parallel` of the work can be divided."""
    return np.asarray((1.0 - parallel) + parallel / np.maximum(np.asarray(cores, dtype=float), 1e-3))


def cpu_step_time(demand: Demand, cores: Quantity, constants: CpuConstants | None = None) -> StepTime:
    """Seconds of one step on `cores` virtual cores; dispatch and work take turns, so the parts add up.

    Dispatch stays on one core; arithmetic and traffic are shared by Amdahl's law.
    """
    d, c = demand, constants or cpu_calibration().constants
    compute_share, traffic_share = amdahl(c.compute_parallel, cores), amdahl(c.traffic_parallel, cores)
    traffic = d.copied_bytes + d.recurrent_bytes
    for kind in ("conv", "matmul", "light"):
        traffic = traffic + getattr(d, f"forward_{kind}_bytes") + getattr(d, f"backward_{kind}_bytes")
    calls = _calls(d, *_LAUNCHED)
    launch = calls * c.dispatch + 0.0 * compute_share
    compute = (d.conv_flop / c.conv_rate + (d.matmul_flop + d.attention_flop) / c.matmul_rate) * compute_share
    moved = traffic / c.bandwidth * traffic_share
    update = d.updated_bytes / c.update_bandwidth * traffic_share
    return StepTime(launch + compute + moved + update, launch, compute, moved, update)


@dataclass(frozen=True, slots=True)
class Hardware:
    """A device: an accelerator by its `kind`, peaks in FLOP/s by number format and bytes/s; or CPU cores."""

    kind: str
    peak: Mapping[str, float]
    memory_bandwidth: float
    cores: float = 0.0


@dataclass(frozen=True, slots=True)
class OperationTimes:
    """Seconds of each operation, and `step` seconds of a step beside them; their sum is the step's estimate.

    `forward` and `backward` are taken by every micro-batch, `once` (optimizer, zeroed gradients) and `update`
    (traffic of the weights) by every step. The truth is between `low` and `high` times that in nine cases of
    ten.
    """

    forward: Array
    backward: Array
    once: Array
    update: Array
    step: float
    low: float
    high: float

    @property
    def total(self) -> float:
        """Seconds of a step of one micro-batch."""
        return float(
            sum(part.sum() for part in (self.forward, self.backward, self.once, self.update)) + self.step
        )


def operation_times(
    operations: Operations, hardware: Hardware, precision: str, training: bool = True
) -> OperationTimes:
    """Seconds of every operation in a step; without training, only forward passes take any."""
    passes = [
        demand_of_operations(operations, backward, training, precision)
        for backward in ((False, True) if training else (False,))
    ]
    weights = operations.weight_bytes if training else 0.0 * operations.weight_bytes
    nothing = np.zeros(len(weights))
    if hardware.cores:
        on_cores, cores = cpu_calibration(), hardware.cores
        seconds = [np.asarray(cpu_step_time(demand, cores).total) for demand in passes] + [nothing]
        shared = float(np.asarray(amdahl(on_cores.constants.traffic_parallel, cores)))
        per_byte = shared / on_cores.constants.update_bandwidth
        return OperationTimes(
            seconds[0], seconds[1], nothing, weights * per_byte, 0.0, *on_cores.operation_error
        )
    known = calibration(find_accelerator(hardware.kind) or reference())
    rates, c = peak_rates(hardware.peak, hardware.memory_bandwidth, precision), known.step
    host = [np.asarray(launch_seconds(demand, c)) for demand in passes]
    device = [_device_seconds(demand, rates, c) for demand in passes]
    update = weights / (c.update_bandwidth * rates.bandwidth)
    once = float(np.mean(_once_seconds(passes[0], c))) if len(weights) else 0.0
    _, host_share, device_share = _composed(
        once + sum(float(part.sum()) for part in host),
        float(update.sum()) + sum(float(part.sum()) for part in device),
        c.sharpness,
    )
    # Without training there is no optimizer: all launches are the pass's.
    of_passes = c.pass_launch if training else 1.0
    seconds = [of_passes * h * host_share + d * device_share for h, d in zip(host, device, strict=True)]
    return OperationTimes(
        forward=np.asarray(seconds[0]),
        backward=np.asarray(seconds[1]) if training else nothing,
        once=np.asarray((1.0 - of_passes) * host_share * np.sum(host, axis=0)),
        update=np.asarray(update * device_share),
        step=float(once * host_share),
        low=known.operation_error[0],
        high=known.operation_error[1],
    )


def _device_seconds(demand: Demand, rates: PeakRates, constants: StepConstants) -> Array:
    """Device seconds of every operation, which add up to those of all of them as one step.

    A step has only the mean width of its convolutions, single operations have their own: so the time of
    all convolutions is the step's, shared out by width.
    """
    alone = np.asarray(compute_seconds(demand, rates, constants))
    total = float(np.sum(compute_seconds(summed(demand), rates, constants)))
    rest = replace(demand, conv_flop=0.0 * np.asarray(demand.conv_flop))
    others = np.asarray(compute_seconds(rest, rates, constants))
    conv = alone - others
    scale = (total - float(others.sum())) / float(conv.sum()) if conv.any() else 1.0
    return np.asarray(others + conv * scale + traffic_seconds(demand, rates, constants))
