"""How long a model's single operations take, forward and backward apart: for whoever cuts a model up."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.catalog import find_accelerator
from trimtab.predict.calibrated import calibration, reference
from trimtab.predict.constants import rates
from trimtab.predict.cpu import CpuConstants, cpu_step_time
from trimtab.predict.demand import TRAINING_FLOP_PER_FORWARD_FLOP, Demand, is_half
from trimtab.predict.step_time import call_seconds, kernel_seconds, once_seconds

Array = NDArray[np.float64]

# Truth over estimate on a CPU that was not measured.
_CPU_ERROR = (0.5, 2.0)


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
class _Pass:
    """FLOP, kernels and bytes for one of the forward pass.

    Backward, a product has a gradient for each of its two factors; others read what came in and what comes
    back, and write one.
    """

    flop: float = 1.0
    product_kernels: float = 1.0
    product_bytes: float = 1.0
    light_bytes: float = 1.0


_FORWARD = _Pass()
_BACKWARD = _Pass(TRAINING_FLOP_PER_FORWARD_FLOP - 1.0, 2.0, 2.0, 1.5)


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


def operation_times(
    asked: Operations, hardware: Hardware, precision: str, training: bool = True
) -> OperationTimes:
    """Seconds of every operation; in inference, `backward` and `update` are zero."""
    ahead, back = (_demand(asked, precision, training, way) for way in (_FORWARD, _BACKWARD))
    on = _on_cores if hardware.cores else _on_accelerator
    times = on(ahead, back, hardware, precision)
    if training:
        return times
    return OperationTimes(times.forward, np.zeros(len(asked.calls)), times.once, 0.0, times.low, times.high)


def _on_cores(ahead: Demand, back: Demand, hardware: Hardware, precision: str) -> OperationTimes:
    forward, backward = (np.asarray(cpu_step_time(ask, hardware.cores).total) for ask in (ahead, back))
    constants = CpuConstants()
    update = 1.0 / (constants.update_bandwidth * hardware.cores**constants.scaling)
    return OperationTimes(forward, backward, 0.0, update, *_CPU_ERROR)


def _on_accelerator(ahead: Demand, back: Demand, hardware: Hardware, precision: str) -> OperationTimes:
    """The host launches ahead of the device: what joins them (see `step_time`) is shared out over all."""
    known = calibration(find_accelerator(hardware.kind) or reference())
    device = rates(hardware.peak, hardware.memory_bandwidth, precision)
    host = [np.asarray(call_seconds(ask, known.step)) for ask in (ahead, back)]
    busy = [np.asarray(kernel_seconds(ask, device, known.step)) for ask in (ahead, back)]
    q, training = known.step.sharpness, float(np.max(ahead.training))
    passes = 2 if training else 1
    launched, ran = (sum(float(np.sum(each)) for each in side[:passes]) for side in (host, busy))
    joined = (launched**q + ran**q) ** (1.0 / q) / max(launched + ran, 1e-30)
    forward, backward = (np.asarray((host[i] + busy[i]) * joined) for i in range(2))
    update = 1.0 / (float(np.mean(known.step.update_bandwidth)) * hardware.memory_bandwidth)
    once = float(np.max(once_seconds(ahead, known.step)))
    return OperationTimes(forward, backward, once, update, *known.time_error)


def _demand(asked: Operations, precision: str, training: bool, way: _Pass) -> Demand:
    """What the operations ask for, one row each."""
    kinds, none, backward = asked.kinds, np.zeros(len(asked.calls)), way is _BACKWARD

    def those(column: Array, *names: str) -> Array:
        return np.where(np.isin(kinds, names), column, 0.0)

    moved = (asked.traffic + asked.weight_bytes) * way.product_bytes
    light = those(asked.traffic * way.light_bytes, "norm", "pool", "softmax", "elementwise")
    conv, products = those(moved, "conv"), those(moved, "matmul", "attention")
    return Demand(
        conv_calls=those(asked.calls * way.product_kernels, "conv"),
        matmul_calls=those(asked.calls * way.product_kernels, "matmul"),
        attention_calls=those(asked.calls, "attention"),
        recurrent_calls=those(asked.calls, "rnn"),
        other_calls=those(asked.calls, "norm", "pool", "softmax", "embedding"),
        small_calls=those(asked.calls, "view", "copy", "elementwise"),
        conv_weight_bytes=those(asked.weight_bytes, "conv"),
        conv_flop=those(asked.flop * way.flop, "conv"),
        matmul_flop=those(asked.flop * way.flop, *(set(kinds.tolist()) - {"conv"})),
        grouped_flop=none,
        forward_conv_bytes=none if backward else conv,
        backward_conv_bytes=conv if backward else none,
        forward_matmul_bytes=none if backward else products,
        backward_matmul_bytes=products if backward else none,
        forward_light_bytes=none if backward else light,
        backward_light_bytes=light if backward else none,
        copied_bytes=those(asked.traffic, "copy", "embedding"),
        recurrent_bytes=those(moved, "rnn"),
        updated_bytes=none,
        training=float(training),
        half=float(is_half(precision)),
    )
