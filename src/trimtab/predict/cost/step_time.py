"""How long one step takes on one device: a roofline per operator kind beside the host that launches it.

    host   = launches of every operator
    device = FLOP / rate + bytes / bandwidth + parameter update + a floor per kernel
    step   = (host^q + device^q)^(1/q)

The host runs ahead of the device, so the slower of the two sets the pace; near a tie each delays the other a
little, which the exponent q says.
"""

from dataclasses import dataclass

import numpy as np

from trimtab.predict.cost.constants import Device, StepConstants
from trimtab.predict.cost.demand import Demand, Quantity

# Weights of a convolution (bytes) at which its rate is the utilization itself, and the range between the
# narrowest and the widest models measured: beyond it the rate is taken to stay as it is at the end.
_USUAL_CONV_WEIGHTS = 1.2e6
_MEASURED_CONV_WEIGHTS = (20e3, 5e6)


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of a step and where they go; the four parts add up to `total`."""

    total: Quantity
    launch: Quantity
    compute: Quantity
    traffic: Quantity
    update: Quantity

    def scaled(self, factor: Quantity) -> "StepTime":
        """Every part times `factor`."""
        return StepTime(
            self.total * factor,
            self.launch * factor,
            self.compute * factor,
            self.traffic * factor,
            self.update * factor,
        )


def step_time(ask: Demand, device: Device, constants: StepConstants) -> StepTime:
    """Seconds of one step, without network and input."""
    host = _host_seconds(ask, constants)
    compute = _compute_seconds(ask, device, constants)
    traffic = _traffic_seconds(ask, device, constants)
    update = ask.updated_bytes / (constants.update_bandwidth * device.bandwidth)
    on_device = compute + traffic + update
    q = constants.sharpness
    total = (host**q + on_device**q) ** (1.0 / q)
    # Each side's share of the total is its q-th power; so written, a part is never negative.
    host_scale, device_scale = (host / total) ** (q - 1.0), (on_device / total) ** (q - 1.0)
    return StepTime(
        total, host * host_scale, compute * device_scale, traffic * device_scale, update * device_scale
    )


def _host_seconds(ask: Demand, constants: StepConstants) -> Quantity:
    calls = (
        ask.conv_calls * constants.conv_launch
        + ask.matmul_calls * constants.matmul_launch
        + ask.attention_calls * constants.attention_launch
        + ask.recurrent_calls * constants.recurrent_launch
        + ask.other_calls * constants.other_launch
        + ask.small_calls * constants.small_launch
    )
    casting = constants.half_launch * either(ask.training, 1.0, constants.inference_half_launch)
    slower = either(ask.training, 1.0, constants.inference_launch) * either(ask.half, casting, 1.0)
    once = constants.step_launch * either(ask.training, 1.0, constants.inference_step_launch)
    return once + calls * slower


def _compute_seconds(ask: Demand, device: Device, constants: StepConstants) -> Quantity:
    conv_rate = (
        device.conv_peak
        * either(ask.half, constants.half_conv_utilization, constants.conv_utilization)
        * conv_width_factor(ask.conv_weight_bytes, constants.conv_width_gain)
    )
    matmul_rate = device.matmul_peak * either(
        ask.half, constants.half_matmul_utilization, constants.matmul_utilization
    )
    kernels = ask.conv_calls + ask.matmul_calls + ask.attention_calls + ask.other_calls
    return (
        ask.conv_flop / conv_rate
        + ask.matmul_flop / matmul_rate
        + ask.grouped_flop / (constants.grouped_utilization * device.full_peak)
        + kernels * constants.kernel_floor
    )


def conv_width_factor(weight_bytes: Quantity, gain: Quantity) -> Quantity:
    """Rate of convolutions with so many bytes of weights each, relative to those of the usual width."""
    weights = np.clip(weight_bytes, *_MEASURED_CONV_WEIGHTS)
    return np.asarray(gain) ** np.log2(weights / _USUAL_CONV_WEIGHTS)


def _traffic_seconds(ask: Demand, device: Device, constants: StepConstants) -> Quantity:
    backward = constants.backward_traffic * either(ask.half, constants.half_backward_traffic, 1.0)
    relative = (
        (ask.forward_conv_bytes + backward * ask.backward_conv_bytes) / constants.conv_bandwidth
        + (ask.forward_matmul_bytes + backward * ask.backward_matmul_bytes) / constants.matmul_bandwidth
        + (ask.forward_light_bytes + backward * ask.backward_light_bytes) / constants.light_bandwidth
        + ask.copied_bytes / constants.matmul_bandwidth
        + ask.recurrent_bytes / constants.recurrent_bandwidth
    )
    return relative / device.bandwidth * either(ask.half, constants.half_traffic, 1.0)


def either(flag: Quantity, yes: Quantity, no: Quantity) -> Quantity:
    """`yes` where the flag is one; plain numbers stay plain, which is faster."""
    return np.asarray(flag) * yes + (1.0 - np.asarray(flag)) * no
