"""Constants of the cost model, read from the catalog's calibration, and peak rates of a device.

The constants are fitted once on a measured device and stated relative to its peak rates, so that they carry
over to devices that were not measured: launches cost the same time of the host's CPU, arithmetic and memory
traffic reach the same share of the peak. `trimtab calibrate` fits them and writes the calibration.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, TypeVar

import numpy as np

from trimtab.catalog import Accelerator, accelerator, accelerators, measured_constants
from trimtab.core import BadInputError
from trimtab.predict.cost.demand import Quantity, is_half


def fitted(start: float, low: float, high: float) -> Any:
    """A constant that is fitted: where the search starts, and the range that physics allows."""
    return field(default=start, metadata={"start": start, "low": low, "high": high})


@dataclass(frozen=True, slots=True)
class StepConstants:
    """Constants of the step-time formula. Times in seconds; rates as a share of the device's peak."""

    # Host time of a step beside its operators, and of one call of a kind, forward or backward.
    step_launch: Quantity = fitted(1e-4, 1e-5, 1e-3)
    conv_launch: Quantity = fitted(90e-6, 20e-6, 250e-6)
    matmul_launch: Quantity = fitted(50e-6, 10e-6, 200e-6)
    attention_launch: Quantity = fitted(90e-6, 20e-6, 300e-6)
    recurrent_launch: Quantity = fitted(400e-6, 50e-6, 2000e-6)  # a layer: it launches kernels per time step
    other_launch: Quantity = fitted(50e-6, 10e-6, 200e-6)  # norms, pools, softmaxes, embeddings
    small_launch: Quantity = fitted(
        10e-6, 0.5e-6, 40e-6
    )  # per view or copy, with the small kernels around it
    # Factors on the host time of a call, and of a step beside its operators.
    backward_launch: Quantity = fitted(1.0, 0.2, 2.0)  # backward over forward: no Python in between
    inference_launch: Quantity = fitted(0.55, 0.2, 1.2)  # without over with autograd
    inference_step_launch: Quantity = fitted(1.0, 0.1, 10.0)  # of a step beside its operators, likewise
    half_launch: Quantity = fitted(1.25, 1.0, 2.0)  # 16-bit autocast: casts are launched too
    inference_half_launch: Quantity = fitted(1.0, 0.6, 2.0)  # `half_launch` without over with autograd
    # Share of the calls' host time in training that falls into the two passes, once per micro-batch; the rest
    # (optimizer, zeroed gradients, the loop) falls once per step.
    pass_launch: Quantity = fitted(0.8, 0.4, 1.0)
    # Share of the tensor cores' peak that a kind of operation reaches.
    conv_utilization: Quantity = fitted(0.40, 0.08, 1.0)
    half_conv_utilization: Quantity = fitted(0.40, 0.08, 1.0)
    conv_width_gain: Quantity = fitted(1.0, 0.7, 2.0)  # per doubling of a convolution's weights
    matmul_utilization: Quantity = fitted(0.46, 0.08, 1.0)
    half_matmul_utilization: Quantity = fitted(0.50, 0.08, 1.0)
    attention_utilization: Quantity = fitted(0.40, 0.04, 2.0)  # where it is known apart from other products
    half_attention_utilization: Quantity = fitted(0.40, 0.04, 2.0)
    grouped_utilization: Quantity = fitted(0.30, 0.04, 4.0)  # of the marker of grouped convolutions
    # Unfused fp32 traffic relative to the memory's bandwidth.
    conv_bandwidth: Quantity = fitted(0.42, 0.1, 4.0)  # convolutions, and the norms beside them
    matmul_bandwidth: Quantity = fitted(0.63, 0.2, 6.0)
    light_bandwidth: Quantity = fitted(1.04, 0.2, 6.0)  # above one where caches save traffic the trace counts
    recurrent_bandwidth: Quantity = fitted(0.10, 0.02, 0.8)
    update_bandwidth: Quantity = fitted(0.125, 0.02, 0.8)  # parameters through gradients, momentum and update
    backward_traffic: Quantity = fitted(1.5, 0.7, 4.0)  # how much slower a byte is in the backward pass
    half_traffic: Quantity = fitted(0.8, 0.4, 1.2)  # traffic under 16-bit autocast relative to fp32
    half_backward_traffic: Quantity = fitted(1.0, 0.4, 2.5)  # `backward_traffic` likewise
    kernel_floor: Quantity = fitted(4e-6, 0.3e-6, 20e-6)  # the least time a kernel occupies the device
    sharpness: Quantity = fitted(3.0, 2.5, 8.0)  # exponent of the norm that joins host and device


@dataclass(frozen=True, slots=True)
class MemoryConstants:
    """Constants of the peak-memory formula. Bytes; the rest are ratios."""

    base: Quantity = fitted(70e6, 10e6, 300e6)  # workspaces of the libraries
    gradients: Quantity = fitted(1.05, 0.8, 1.5)  # with the last bucket's copies, relative to the parameters
    # Activations kept, relative to the traced ones, where matrix products or convolutions dominate.
    saved: Quantity = fitted(1.0, 0.5, 1.6)
    conv_saved: Quantity = fitted(1.0, 0.5, 1.6)
    half_saved: Quantity = fitted(0.75, 0.3, 1.4)
    half_conv_saved: Quantity = fitted(0.52, 0.3, 1.2)
    alive: Quantity = fitted(15.0, 3.0, 40.0)  # results at once in a forward pass, of the mean product's size
    half_alive: Quantity = fitted(0.55, 0.3, 1.0)
    cast: Quantity = fitted(0.3, 0.01, 1.0)  # 16-bit copies of the weights, relative to the parameters


@dataclass(frozen=True, slots=True)
class CpuConstants:
    """Rates of one virtual core of a current server: FLOP/s, bytes/s, seconds; and how cores share the work.

    By Amdahl's law n cores take (1 - p) + p/n of one core's time for work with the parallel share p.
    """

    conv_rate: float = fitted(100e9, 10e9, 1e12)
    matmul_rate: float = fitted(100e9, 10e9, 1e12)
    bandwidth: float = fitted(5e9, 0.5e9, 50e9)  # unfused fp32 traffic of all operators
    update_bandwidth: float = fitted(2e9, 0.2e9, 20e9)
    dispatch: float = fitted(10e-6, 1e-6, 100e-6)  # seconds of one operator call; not shared by the cores
    # Parallel shares of arithmetic and of memory traffic: measured on 1 to 16 cores, not fitted.
    compute_parallel: float = 0.93
    traffic_parallel: float = 0.8


ErrorRange = tuple[float, float]
"""(5 %, 95 %) quantiles of truth over estimate."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Constants of an accelerator and their errors on held-out models (`operation_error`: on their parts)."""

    step: StepConstants
    memory: MemoryConstants
    time_error: ErrorRange
    memory_error: ErrorRange
    operation_error: ErrorRange
    measured: bool = True


@dataclass(frozen=True, slots=True)
class CpuCalibration:
    """Constants of a CPU and the errors of its estimates."""

    constants: CpuConstants
    corrected_error: ErrorRange  # of a step corrected by a local run on a CPU
    uncorrected_error: ErrorRange
    operation_error: ErrorRange
    memory_error: float  # factor on the host memory observed in a local run
    doubling_error: float  # log of the factor by which an interval grows per doubling of the measured cores
    thread_weight: float  # of a speed-up measured at several thread counts, against the formula's
    core_peak: float  # FLOP/s that no virtual core exceeds
    core_bandwidth: float  # bytes/s likewise, of its share of the memory channels


@cache
def reference() -> Accelerator:
    """The measured accelerator whose constants the others borrow."""
    return next(a for a in accelerators() if a.constants)


@cache
def _calibration_of(name: str) -> Calibration:
    target = accelerator(name)
    if target.constants:
        return parse_calibration(target.constants, target.name)
    carried = _calibration_of(reference().name)
    factor = float(measured_constants("carried over")["error"])
    (low, high), (operation_low, operation_high) = carried.time_error, carried.operation_error
    return replace(
        carried,
        time_error=(low / factor, high * factor),
        operation_error=(operation_low / factor, operation_high * factor),
        measured=False,
    )


def calibration(target: Accelerator) -> Calibration:
    """The accelerator's own constants, or the reference's with wider error ranges."""
    return _calibration_of(target.name)


def parse_calibration(data: Mapping[str, Any], where: str) -> Calibration:
    """A calibration from the catalog's entry of a device; a constant it does not name stays at its start.

    Constants that joined later start at one, which leaves the formula as it was for entries made before.
    """
    try:
        return Calibration(
            step=StepConstants(**data["step"]),
            memory=MemoryConstants(**data["memory"]),
            time_error=_range(data["time_error"]),
            memory_error=_range(data["memory_error"]),
            # An entry of a device on which no parts of models were measured has the range of steps.
            operation_error=_range(data.get("operation_error", data["time_error"])),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadInputError(f"the constants of {where} are not this version's: {error}") from None


@cache
def cpu_calibration() -> CpuCalibration:
    """Constants of a CPU from the catalog's calibration."""
    data = measured_constants("CPU")
    try:
        return CpuCalibration(
            constants=CpuConstants(**data["constants"]),
            corrected_error=_range(data["corrected_error"]),
            uncorrected_error=_range(data["uncorrected_error"]),
            operation_error=_range(data["operation_error"]),
            **{
                name: float(data[name])
                for name in (
                    "memory_error",
                    "doubling_error",
                    "thread_weight",
                    "core_peak",
                    "core_bandwidth",
                )
            },
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadInputError(f"the constants of the CPU are not this version's: {error}") from None


@cache
def _few_steps() -> tuple[Sequence[float], Sequence[float]]:
    data = measured_constants("few steps")
    return data["steps"], np.log(data["factor"]).tolist()


def few_steps_factor(steps: int) -> float:
    """Largest factor between the median of so many steps in a row and that of the whole series.

    Seen in step series recorded on a busy machine; one from `ENOUGH_STEPS` on.
    """
    counts, factors = _few_steps()
    if steps >= ENOUGH_STEPS:
        return 1.0
    return float(np.exp(np.interp(steps, counts, factors)))


ENOUGH_STEPS = 10
"""From so many undisturbed steps on, their median is taken as exact: its noise is in the stated errors."""


def _range(values: Sequence[float]) -> ErrorRange:
    low, high = values
    return float(low), float(high)


@dataclass(frozen=True, slots=True)
class PeakRates:
    """Peaks of a device in FLOP/s at the precision used, and its memory's bandwidth in bytes/s."""

    conv_peak: Quantity
    matmul_peak: Quantity
    full_peak: Quantity
    bandwidth: Quantity


# Without tensor cores, cuBLAS and cuDNN sustain about this share of the fp32 peak, relative to what the
# fitted utilization would say: the constants were fitted on tensor cores, which are harder to feed.
_PLAIN_OVER_TENSOR_UTILIZATION = 1.6


def peak_rates(peak: Mapping[str, float], memory_bandwidth: float, precision: str) -> PeakRates:
    """Rates at a precision from peaks by number format, falling back to the next wider format there is.

    PyTorch lets convolutions use tf32 by default and matrix products only when asked (`precision="tf32"`).
    A device with 16-bit products only (TPUs, Gaudi) rounds what it multiplies in any precision.
    """
    plain = peak.get("fp32", 0.0) * _PLAIN_OVER_TENSOR_UTILIZATION
    half = (peak.get(precision) if is_half(precision) else None) or peak.get("fp16") or peak.get("bf16")
    tensor = max(peak.get("tf32", 0.0), plain) or half or 0.0
    if is_half(precision):
        conv = matmul = half or tensor
    else:
        conv, matmul = tensor, tensor if precision == "tf32" else plain or tensor
    return PeakRates(conv_peak=conv, matmul_peak=matmul, full_peak=tensor, bandwidth=memory_bandwidth)


def device_rates(target: Accelerator, precision: str) -> PeakRates:
    return peak_rates(target.peak, target.memory_bandwidth, precision)


T = TypeVar("T", StepConstants, MemoryConstants, PeakRates)


def gather(items: Sequence[T], index: "np.ndarray[Any, np.dtype[np.intp]]") -> T:
    """One item of arrays: for each entry of `index`, that item's values."""
    kind = type(items[0])
    return kind(**{f.name: np.array([getattr(i, f.name) for i in items])[index] for f in fields(kind)})
