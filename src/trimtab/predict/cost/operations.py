"""How long a model's single operations take, forward and backward apart: for whoever cuts a model up.

    host   = launches of the operations, by kind
    device = FLOP / rate + bytes / bandwidth + a floor per kernel
    pass   = (host^q + device^q)^(1/q), shared out over the operations

The constants were fitted to parts of nine models on an H200 (`predict.operation_fit`; a test fits them again)
and carry over to other accelerators relative to their peak rates. A CPU goes by those of `predict.cpu`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.catalog import find_accelerator
from trimtab.predict.cost.calibrated import CARRIED_OVER, calibration, reference
from trimtab.predict.cost.constants import Device, fitted, rates
from trimtab.predict.cost.cpu import CpuConstants
from trimtab.predict.cost.demand import TRAINING_FLOP_PER_FORWARD_FLOP, Quantity, is_half
from trimtab.predict.cost.step_time import conv_width_factor, either

Array = NDArray[np.float64]

PRODUCTS = ("conv", "matmul", "attention", "rnn")
_OTHERS = ("norm", "pool", "softmax", "embedding")
_SMALL = ("elementwise", "view", "copy")
_NO_TRAFFIC = ("view", "input", "output")
# Bytes of the backward pass for one of the forward pass: a product has a gradient for each of its factors;
# others read what came in and what comes back, and write one.
_PRODUCT_BYTES, _LIGHT_BYTES = 2.0, 1.5
_CPU_ERROR = (0.5, 2.0)  # truth over estimate on a CPU that was not measured
_STAGE_ERROR = (0.67, 1.68)  # on the H200, of parts of models left out: `trimtab bench partition`


@dataclass(frozen=True, slots=True)
class Operations:
    """Operations as columns, of one forward pass: kernels, FLOP, bytes moved without weights, and weights."""

    kinds: NDArray[np.str_]
    calls: Array
    flop: Array
    traffic: Array
    weight_bytes: Array


@dataclass(frozen=True, slots=True)
class Hardware:
    """What runs them: an accelerator by its `kind`, peaks in FLOP/s by format and B/s; or cores of a CPU."""

    kind: str
    peak: Mapping[str, float]
    memory_bandwidth: float
    cores: float = 0.0


@dataclass(frozen=True, slots=True)
class OperationConstants:
    """Constants of the formula. Launches in seconds; rates as a share of the device's peak."""

    product_launch: Quantity = fitted(50e-6, 5e-6, 300e-6, value=122.8e-6)
    """Host time of a convolution, matrix product or attention, and of what comes along with it."""
    other_launch: Quantity = fitted(15e-6, 1e-6, 100e-6, value=1.279e-6)
    """Norms, pools, softmaxes, embeddings."""
    small_launch: Quantity = fitted(6e-6, 0.5e-6, 50e-6, value=3.109e-6)
    """Elementwise operations, views and copies."""
    backward_launch: Quantity = fitted(1.2, 0.5, 3.0, value=1.184)
    """Host time of the backward pass, relative to the forward pass."""
    half_launch: Quantity = fitted(1.4, 1.0, 3.0, value=1.427)
    """Host time under 16-bit autocast, relative to without it."""
    conv_utilization: Quantity = fitted(0.4, 0.08, 1.0, value=0.3095)
    half_conv_utilization: Quantity = fitted(0.35, 0.08, 1.0, value=0.2637)
    conv_width_gain: Quantity = fitted(1.2, 0.7, 2.0, value=1.381)
    """Factor on the convolutions' rate per doubling of their weights."""
    matmul_utilization: Quantity = fitted(0.5, 0.08, 1.0, value=0.4873)
    half_matmul_utilization: Quantity = fitted(0.5, 0.08, 1.0, value=0.6156)
    attention_utilization: Quantity = fitted(0.4, 0.04, 1.0, value=0.3089)
    half_attention_utilization: Quantity = fitted(0.4, 0.04, 1.0, value=1.0)
    backward_arithmetic: Quantity = fitted(1.0, 0.5, 2.0, value=1.020)
    """Seconds per FLOP of the backward pass, relative to the forward pass."""
    backward_conv: Quantity = fitted(1.1, 0.5, 2.0, value=1.156)
    """The same once more for convolutions."""
    product_bandwidth: Quantity = fitted(0.7, 0.1, 4.0, value=0.4803)
    """Traffic of products relative to the memory's bandwidth."""
    light_bandwidth: Quantity = fitted(1.0, 0.2, 4.0, value=2.427)
    backward_light: Quantity = fitted(1.0, 0.2, 3.0, value=0.4843)
    """How much slower a byte of the others is in the backward pass."""
    half_traffic: Quantity = fitted(0.9, 0.4, 1.5, value=0.9814)
    """Traffic under 16-bit autocast relative to fp32."""
    kernel_floor: Quantity = fitted(4e-6, 0.5e-6, 30e-6, value=11.77e-6)
    """The least time a kernel occupies the device."""
    sharpness: float = 3.0
    """The exponent q. Not fitted."""


@dataclass(frozen=True, slots=True)
class OperationTimes:
    """Seconds of each operation; `once` of a step beside them, `update` per byte of weights that is trained.

    The truth is between `low` and `high` times that in nine cases of ten.
    """

    forward: Array
    backward: Array
    once: float
    update: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class PassSeconds:
    """Seconds of the host and of the device for every operation, in one pass."""

    host: Array
    device: Array


def operation_times(
    asked: Operations, hardware: Hardware, precision: str, training: bool = True
) -> OperationTimes:
    """Seconds of every operation; in inference, `backward` and `update` are zero."""
    if hardware.cores:
        return _on_cores(asked, hardware, training)
    known = calibration(find_accelerator(hardware.kind) or reference())
    device, half = rates(hardware.peak, hardware.memory_bandwidth, precision), float(is_half(precision))
    constants = OperationConstants()
    ahead, back = (pass_seconds(asked, device, half, constants, backward=way) for way in (False, True))
    if not training:
        fewer = float(np.mean(known.step.inference_launch))
        forward = _shared_out([PassSeconds(ahead.host * fewer, ahead.device)], constants.sharpness)[0]
        once = float(np.mean(known.step.step_launch * known.step.inference_step_launch))
        return OperationTimes(forward, np.zeros(len(forward)), once, 0.0, *_range(known.measured))
    forward, backward = _shared_out([ahead, back], constants.sharpness)
    update = 1.0 / (float(np.mean(known.step.update_bandwidth)) * hardware.memory_bandwidth)
    once = float(np.mean(known.step.step_launch))
    return OperationTimes(forward, backward, once, update, *_range(known.measured))


def _range(measured: bool) -> tuple[float, float]:
    """Wider on a device that borrows constants."""
    low, high = _STAGE_ERROR
    return (low, high) if measured else (low / CARRIED_OVER, high * CARRIED_OVER)


def joined(host: Quantity, device: Quantity, sharpness: float) -> Quantity:
    """The host launches ahead of the device; near a tie each delays the other a little."""
    return np.asarray((host**sharpness + device**sharpness) ** (1.0 / sharpness))


def _shared_out(passes: list[PassSeconds], sharpness: float) -> list[Array]:
    """What joins host and device over all passes, given to operations by what they ask of both."""
    host, device = (sum(float(np.sum(side)) for side in sides) for sides in _sides(passes))
    factor = float(joined(host, device, sharpness)) / max(host + device, 1e-30)
    return [(each.host + each.device) * factor for each in passes]


def _sides(passes: list[PassSeconds]) -> tuple[list[Array], list[Array]]:
    return [each.host for each in passes], [each.device for each in passes]


def pass_seconds(
    asked: Operations, device: Device, half: Quantity, constants: OperationConstants, backward: bool
) -> PassSeconds:
    """Host and device seconds of every operation in one pass; `half` is 1 under 16-bit autocast."""
    c, kinds = constants, asked.kinds
    launch = np.select(
        [np.isin(kinds, PRODUCTS), np.isin(kinds, _OTHERS), np.isin(kinds, _SMALL)],
        [c.product_launch, c.other_launch, c.small_launch],
        0.0,
    )
    host = asked.calls * launch * either(half, c.half_launch, 1.0)
    seconds = _arithmetic(asked, device, half, c, backward) + _traffic(asked, device, half, c, backward)
    kernels = np.where(np.isin(kinds, _NO_TRAFFIC), 0.0, asked.calls)
    seconds = seconds + kernels * c.kernel_floor * (2.0 if backward else 1.0)
    return PassSeconds(host * (c.backward_launch if backward else 1.0), seconds)


def _arithmetic(
    asked: Operations, device: Device, half: Quantity, c: OperationConstants, backward: bool
) -> Array:
    width = conv_width_factor(asked.weight_bytes / np.maximum(asked.calls, 1.0), c.conv_width_gain)
    conv = device.conv_peak * either(half, c.half_conv_utilization, c.conv_utilization) * width
    matmul = device.matmul_peak * either(half, c.half_matmul_utilization, c.matmul_utilization)
    attention = device.matmul_peak * either(half, c.half_attention_utilization, c.attention_utilization)
    is_conv, is_attention = asked.kinds == "conv", asked.kinds == "attention"
    rate = np.where(is_conv, conv, np.where(is_attention, attention, matmul))
    slower = np.where(is_conv, c.backward_conv, 1.0) * c.backward_arithmetic
    times = (TRAINING_FLOP_PER_FORWARD_FLOP - 1.0) * slower if backward else 1.0
    return np.asarray(asked.flop / rate * times)


def _traffic(
    asked: Operations, device: Device, half: Quantity, c: OperationConstants, backward: bool
) -> Array:
    products = np.isin(asked.kinds, PRODUCTS)
    moved = np.where(np.isin(asked.kinds, _NO_TRAFFIC), 0.0, asked.traffic)
    product = (moved + asked.weight_bytes) / c.product_bandwidth * (_PRODUCT_BYTES if backward else 1.0)
    light = moved / c.light_bandwidth * (_LIGHT_BYTES * c.backward_light if backward else 1.0)
    relative = np.where(products, product, light)
    return np.asarray(relative / device.bandwidth * either(half, c.half_traffic, 1.0))


def _on_cores(asked: Operations, hardware: Hardware, training: bool) -> OperationTimes:
    """By the constants of a virtual core: dispatch and work take turns."""
    c = CpuConstants()
    workers = hardware.cores**c.scaling
    products = np.isin(asked.kinds, PRODUCTS)
    moved = np.where(np.isin(asked.kinds, _NO_TRAFFIC), 0.0, asked.traffic)
    rate = np.where(asked.kinds == "conv", c.conv_rate, c.matmul_rate)
    work = asked.flop / rate
    bytes_ = moved + np.where(products, asked.weight_bytes, 0.0)
    forward = asked.calls * c.dispatch + (work + bytes_ / c.bandwidth) / workers
    factor = np.where(products, _PRODUCT_BYTES, _LIGHT_BYTES)
    backward = (
        asked.calls * factor * c.dispatch
        + ((TRAINING_FLOP_PER_FORWARD_FLOP - 1.0) * work + factor * bytes_ / c.bandwidth) / workers
    )
    if not training:
        return OperationTimes(forward, np.zeros(len(forward)), 0.0, 0.0, *_CPU_ERROR)
    return OperationTimes(forward, backward, 0.0, 1.0 / (c.update_bandwidth * workers), *_CPU_ERROR)
