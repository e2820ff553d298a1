"""Seconds of a step from its traced operator calls: laws that devices share, and four factors of each.

A matrix product or convolution with `m·n` results of depth `k` keeps the device's units busy for

    2 · m · (n + column_overhead) · (k + depth_overhead) / (share · peak)

because few columns and short depths leave units idle; a result too small for all multiprocessors adds
`wave_overhead`. Multiplied out, that is a sum of five totals over all calls of a category (`PRODUCT_TOTALS`),
so a step is described by totals that are linear in the batch. Arithmetic and memory
traffic of a category overlap (`overlap`, the exponent of a norm), categories follow one another, and the
host that launches calls runs ahead of the device (`sharpness`), as in `step_time`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trimtab.catalog import Accelerator
from trimtab.core import Model, OperatorCall
from trimtab.predict.cost.step_time import StepTime
from trimtab.predict.tables import Array, Flags

PRODUCTS = ("pointwise", "winograd", "window", "grouped", "matmul", "batched")
"""Categories of products: convolutions 1x1, 3x3 of stride 1, and others; grouped ones; matrix products alone
and in batches."""
PRODUCT_TOTALS = ("flop", "results", "operands", "rows", "depth")
"""Totals of a category: FLOP, FLOP/k, FLOP/n, FLOP/(k·n), and the sum of k over calls."""
MOVED = (
    "conv",
    "grouped",
    "matmul",
    "batched",
    "batch_norm",
    "layer_norm",
    "pool",
    "softmax",
    "elementwise",
    "copy",
    "lookup",
)
"""Kinds of calls whose bytes are added up."""
CALLED = ("conv", "grouped", "matmul", "batched", "norm", "light", "copy", "view")
"""Kinds of calls that are counted."""
PHASES = ("forward", "backward")
TRACED_COLUMNS = (
    *(f"{phase}_{product}_{total}" for phase in PHASES for product in PRODUCTS for total in PRODUCT_TOTALS),
    *(f"{phase}_{kind}_bytes" for phase in PHASES for kind in MOVED),
    *(f"{phase}_{kind}_calls" for phase in PHASES for kind in CALLED),
)
_INDEX = {name: position for position, name in enumerate(TRACED_COLUMNS)}

_FP32 = 4.0
_TENSORS_OF_A_LAYER = 2  # weights and biases
_BYTES = {"float64": 8.0, "float16": 2.0, "bfloat16": 2.0, "half": 2.0}
_STRIDES_ONLY = ("transpose", "permute")  # a trace lists them as copies, but they move nothing
_MOVED_AS = {
    "embedding": "lookup",
    "gather": "lookup",
    "scatter": "lookup",
    "reduction": "elementwise",
    "attention": "batched",
    "rnn": "matmul",
}


@dataclass(frozen=True, slots=True, eq=False)
class TracedDemand:
    """Totals of a training step and of a forward pass alone: at batch b they are `fixed + b · sample`.

    Columns are `TRACED_COLUMNS`; `parameters` and `tensors` are those that an optimizer updates.
    """

    fixed: Array
    sample: Array
    parameters: float
    tensors: float

    def at(self, batch: Array, training: bool) -> Array:
        """Totals by (step, column)."""
        totals = self.fixed + np.asarray(batch, dtype=float)[..., None] * self.sample
        if not training:
            totals = totals * _FORWARD
        return np.asarray(totals)


def shared_totals(totals: Array, devices: Array) -> Array:
    """Totals of one of `devices` that share every product: a part of the work, but all of the calls."""
    return np.where(_IS_CALLS, totals, totals / devices[:, None])


_IS_CALLS = np.array([name.endswith("_calls") for name in TRACED_COLUMNS])


def traced_total(totals: Array, name: str) -> Array:
    """One total of every step."""
    return np.asarray(totals[:, _INDEX[name]])


_FORWARD = np.array([float(name.startswith("forward")) for name in TRACED_COLUMNS])


def traced_demand(model: Model) -> TracedDemand:
    """Totals of the calls of a model's traced step."""
    fixed, sample = np.zeros(len(TRACED_COLUMNS)), np.zeros(len(TRACED_COLUMNS))
    batch = float(max(1, model.traced_batch))
    for call in model.calls:
        if call.phase in PHASES:
            _add_call(call, batch, fixed, sample)
    passes = max(1, model.micro_batches)
    # Calls and weights come once per micro-batch; a step here is one pass over its samples.
    tensors = _TENSORS_OF_A_LAYER * sum(1 for layer in model.layers if layer.parameters)
    trained = model.trained_parameters or model.parameters
    return TracedDemand(fixed / passes, sample, float(trained), float(tensors or model.modules))


def _add_call(call: OperatorCall, batch: float, fixed: Array, sample: Array) -> None:
    phase = call.phase

    def add(name: str, amount: float, grows: bool) -> None:
        position = _INDEX[f"{phase}_{name}"]
        if grows:
            sample[position] += call.calls * amount / batch
        else:
            fixed[position] += call.calls * amount

    if call.kind == "view" or call.operator in _STRIDES_ONLY:
        add("view_calls", 1.0, False)
        return
    grouped = call.kind == "conv" and call.sizes.get("groups", 1) > 1
    kind = "grouped" if grouped else _MOVED_AS.get(call.kind, call.kind)
    if call.kind == "matmul" and call.sizes.get("batch", 1) > 1:
        kind = "batched"
    if call.kind == "norm":
        kind = "batch_norm" if "batch_norm" in call.operator else "layer_norm"
    counted = "norm" if call.kind == "norm" else kind if kind in CALLED else "light"
    add(f"{counted}_calls", 1.0, False)
    # Bytes as if in fp32: the laws know what autocast saves of them.
    wide = _FP32 / _BYTES.get(call.dtype, _FP32)
    moved = call.read_bytes + call.written_bytes
    add(f"{kind}_bytes", min(call.fixed_bytes, moved) * wide, False)
    add(f"{kind}_bytes", max(0.0, moved - call.fixed_bytes) * wide, True)
    if call.flop <= 0:
        return
    category, columns, depth, grows = _shape(call)
    flop = call.flop
    add(f"{category}_flop", flop, bool(call.scales))
    add(f"{category}_results", flop / depth, bool(call.scales) and grows != "k")
    add(f"{category}_operands", flop / columns, bool(call.scales))
    add(f"{category}_rows", flop / (depth * columns), bool(call.scales) and grows != "k")
    add(f"{category}_depth", depth, grows == "k")


def _shape(call: OperatorCall) -> tuple[str, float, float, str]:
    """Category of a product, its columns n and depth k, and the dimension that grows with the batch."""
    sizes = call.sizes
    if call.kind == "conv":
        groups, window = max(1, sizes.get("groups", 1)), max(1, sizes.get("kernel", 1))
        columns = max(1.0, sizes.get("out_channels", 1) / groups)
        depth = max(1.0, sizes.get("in_channels", 1) / groups * window)
        if groups > 1:
            return "grouped", columns, depth, "m"
        small = window == 9 and sizes.get("stride", 1) == 1
        return ("pointwise" if window == 1 else "winograd" if small else "window"), columns, depth, "m"
    if call.kind == "attention":
        return "batched", max(1.0, sizes.get("keys", 1)), max(1.0, sizes.get("width", 1)), "m"
    if call.kind == "rnn":
        hidden = float(max(1, sizes.get("hidden", 1)))
        return "matmul", hidden * max(1, sizes.get("gates", 1)), hidden, "m"
    columns, depth = float(max(1, sizes.get("n", 1))), float(max(1, sizes.get("k", 1)))
    if call.scales == "n":
        columns = float(max(1, sizes.get("m", 1)))
    category = "batched" if sizes.get("batch", 1) > 1 else "matmul"
    return category, columns, depth, "k" if call.scales == "k" else "m"


def law(start: float, spread: float) -> Any:
    """A constant shared by all devices.

    Where its fit starts, and how far (log ratio) it may well be from there.
    """
    return field(default=start, metadata={"start": start, "spread": spread})


@dataclass(frozen=True, slots=True)
class Laws:
    """Constants shared by all devices. Times in seconds, rates as a share of the device's peak."""

    # Share of the matrix units' peak, and of the vector units', that large products reach.
    pointwise: float = law(0.55, 0.5)
    winograd: float = law(0.6, 0.5)
    window: float = law(0.45, 0.5)
    matmul: float = law(0.7, 0.5)
    batched: float = law(0.35, 0.5)
    vector_pointwise: float = law(0.8, 0.5)
    vector_winograd: float = law(1.2, 0.5)  # above one: Winograd's algorithm saves multiplications
    vector_window: float = law(0.7, 0.5)
    vector_matmul: float = law(0.85, 0.5)
    vector_batched: float = law(0.6, 0.5)
    grouped: float = law(0.12, 0.5)
    grouped_channels_last: float = law(1.3, 0.5)
    vector_half: float = law(0.6, 0.5)  # share of the 16-bit vector rate, where there are no matrix units
    amd_conv: float = law(0.6, 0.5)
    amd_matmul: float = law(0.6, 0.5)
    depth_overhead: float = law(80.0, 1.0)
    column_overhead: float = law(30.0, 1.0)
    wave_overhead: float = law(0.3, 1.0)
    vector_depth_overhead: float = law(20.0, 1.0)
    vector_column_overhead: float = law(15.0, 1.0)
    vector_wave_overhead: float = law(0.2, 1.0)
    backward_conv: float = law(0.85, 0.4)
    backward_grouped: float = law(0.85, 0.4)
    backward_matmul: float = law(0.85, 0.4)
    # Share of the memory's bandwidth that a kind of call gets for the bytes that a trace counts.
    conv_bandwidth: float = law(0.9, 0.4)
    grouped_bandwidth: float = law(0.5, 0.4)
    matmul_bandwidth: float = law(0.8, 0.4)
    batched_bandwidth: float = law(0.8, 0.4)
    batch_norm_bandwidth: float = law(0.7, 0.4)
    layer_norm_bandwidth: float = law(0.7, 0.4)
    pool_bandwidth: float = law(0.6, 0.4)
    softmax_bandwidth: float = law(0.7, 0.4)
    elementwise_bandwidth: float = law(0.85, 0.4)
    copy_bandwidth: float = law(0.6, 0.4)
    lookup_bandwidth: float = law(0.5, 0.4)
    # Time of a byte in the backward pass relative to the forward pass.
    conv_backward_bytes: float = law(1.3, 0.4)
    grouped_backward_bytes: float = law(1.2, 0.4)
    matmul_backward_bytes: float = law(1.0, 0.4)
    batch_norm_backward_bytes: float = law(1.1, 0.4)
    layer_norm_backward_bytes: float = law(1.2, 0.4)
    pool_backward_bytes: float = law(1.3, 0.4)
    elementwise_backward_bytes: float = law(1.0, 0.4)
    copy_backward_bytes: float = law(1.0, 0.4)
    # Bytes under 16-bit autocast relative to fp32; a model in 16 bits moves half.
    conv_cast: float = law(0.55, 0.25)
    grouped_cast: float = law(0.55, 0.25)
    matmul_cast: float = law(0.6, 0.25)
    batch_norm_cast: float = law(0.5, 0.25)
    layer_norm_cast: float = law(0.9, 0.25)
    pool_cast: float = law(0.55, 0.25)
    softmax_cast: float = law(0.9, 0.25)
    elementwise_cast: float = law(0.7, 0.25)
    copy_cast: float = law(0.8, 0.25)
    channels_first_conv: float = law(1.6, 0.4)  # 16-bit convolutions transpose what is not channels-last
    channels_last_norm: float = law(0.9, 0.3)
    fused_softmax: float = law(0.3, 0.7)  # bytes of attention that fused kernels still move
    fused_batched: float = law(0.6, 0.5)
    cache_gain: float = law(2.0, 0.5)  # bandwidth of calls that find their operands in the second-level cache
    kernel_floor: float = law(3e-6, 0.7)
    amd_kernel_floor: float = law(6e-6, 0.7)
    # Host seconds of a call.
    conv_launch: float = law(22e-6, 0.6)
    matmul_launch: float = law(15e-6, 0.6)
    norm_launch: float = law(15e-6, 0.6)
    light_launch: float = law(10e-6, 0.6)
    view_launch: float = law(1.5e-6, 0.6)
    backward_launch: float = law(0.8, 0.4)
    inference_launch: float = law(0.6, 0.4)
    cast_launch: float = law(1.3, 0.3)
    step_launch: float = law(3e-4, 1.0)
    tensor_launch: float = law(3e-6, 0.8)  # of the optimizer, per tensor it updates
    old_launch: float = law(1.0, 0.3)  # PyTorch before 1.2 relative to later versions
    amd_launch: float = law(1.3, 0.4)
    update_bandwidth: float = law(0.25, 0.5)  # parameters through gradients, momentum and update
    host_link: float = law(6e9, 0.7)  # bytes/s of input that a step copies from the host
    overlap: float = law(1.5, 0.3)
    sharpness: float = law(3.0, 0.4)
    # Trends over devices, as factors: per year, per e-fold of FLOP to bandwidth, of watts per FLOP, of size.
    tensor_year: float = law(1.0, 0.1)
    vector_year: float = law(1.0, 0.1)
    bandwidth_year: float = law(1.0, 0.05)
    tensor_intensity: float = law(1.0, 0.2)
    tensor_watts: float = law(1.0, 0.2)
    vector_watts: float = law(1.0, 0.2)
    tensor_size: float = law(1.0, 0.15)
    consumer: float = law(1.45, 0.12)  # GeForce cards relative to what their halved peak rate says


FACTORS = {"tensor": 0.25, "vector": 0.25, "bandwidth": 0.2, "host": 0.5}
"""Factors of a device (log ratios to what the laws say), and how far they may well be from zero."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceColumns:
    """Facts of the device of each step, as columns; rates in FLOP/s and bytes/s."""

    vector: Array
    tensor_tf32: Array
    tensor_half: Array
    vector_half: Array
    bandwidth: Array
    multiprocessors: Array
    cache: Array
    year: Array
    watts: Array
    amd: Array
    consumer: Array


@dataclass(frozen=True, slots=True, eq=False)
class Circumstances:
    """How each step was run, as columns of zeros and ones but for `copied` (bytes) and `version`.

    `half`: products on 16-bit numbers; `cast`: by autocast; `tf32`: fp32 numbers, tf32 matrix products,
    `conv_tf32` likewise of convolutions (PyTorch's default); `updates`: an optimizer's step is included;
    `copied`: bytes of input that come from the host in each step.
    """

    half: Array
    cast: Array
    tf32: Array
    conv_tf32: Array
    training: Array
    channels_last: Array
    updates: Array
    copied: Array
    version: Array


_USUAL_WATTS = 12.0  # watts per TFLOP/s of the vector units
_USUAL_INTENSITY = 150.0  # FLOP per byte
_FUSED_SINCE = 2.0  # PyTorch version with fused attention
_OLD_BEFORE = 1.2
_TILE = 8192.0  # FLOP of a result's tile per unit of depth
_CONSUMER = ("RTX-2", "RTX-3", "RTX-4", "RTX-5", "GTX")


def device_columns(devices: Sequence[Accelerator]) -> DeviceColumns:
    """Facts by device; where a fact is not published, a typical one."""

    def row(device: Accelerator) -> tuple[float, ...]:
        peak, amd = device.peak, device.vendor == "AMD"
        half = peak.get("fp16") or peak.get("bf16") or 0.0
        vector = peak.get("fp32") or half / 8.0
        # Pascal's P100 and Radeon cards compute 16-bit numbers on vector units, at twice the rate.
        plain_half = half <= 2.5 * vector and "tf32" not in peak
        return (
            vector,
            max(peak.get("tf32", 0.0), half / 2.0 if "fp32" not in peak else 0.0),
            0.0 if plain_half else half,
            half if plain_half else 2.0 * vector,
            device.memory_bandwidth,
            float(device.multiprocessors or 100),
            device.cache or 24e6,
            float(device.year),
            device.power or _USUAL_WATTS * vector / 1e12,
            float(amd),
            float(device.name.startswith(_CONSUMER)),
        )

    columns = np.array([row(device) for device in devices], dtype=float).reshape(len(devices), 11)
    return DeviceColumns(*columns.T)


@dataclass(frozen=True, slots=True, eq=False)
class TracedTimes:
    """Seconds of steps: `step` by part; `host` and `device` apart, `by_category` on the latter."""

    step: StepTime
    host: Array
    device: Array
    by_category: Mapping[str, Array]


def traced_time(
    totals: Array,
    parameters: Array,
    tensors: Array,
    device: DeviceColumns,
    run: Circumstances,
    laws: Laws,
    factors: Mapping[str, Array],
) -> TracedTimes:
    """Seconds of steps with these totals (step, column), each on its device."""
    c, d = laws, device

    def total(name: str) -> Array:
        return traced_total(totals, name)

    def trend(constant: float, exponent: Array) -> Array:
        return np.asarray(np.exp(np.log(constant) * exponent))

    years = d.year - 2019.0
    half_tensor = run.half * (d.tensor_half > 0)
    conv_tensor = half_tensor + run.conv_tf32 * (d.tensor_tf32 > 0) > 0
    matmul_tensor = half_tensor + run.tf32 * (d.tensor_tf32 > 0) > 0
    tensor = np.where(run.half > 0, d.tensor_half, d.tensor_tf32)
    watts = np.log(d.watts / np.maximum(d.vector / 1e12, 1.0) / _USUAL_WATTS)
    intensity = np.log(np.maximum(tensor, 1e12) / d.bandwidth / _USUAL_INTENSITY)
    tensor_rate = (
        tensor
        * trend(c.tensor_year, years)
        * trend(c.tensor_intensity, intensity)
        * trend(c.consumer, d.consumer)
        * trend(c.tensor_watts, watts)
        * trend(c.tensor_size, np.log(d.multiprocessors / 80.0))
        * np.exp(factors["tensor"])
    )
    vector_trend = trend(c.vector_year, years) * trend(c.vector_watts, watts) * np.exp(factors["vector"])
    vector = d.vector * vector_trend
    plain = np.where(run.half > 0, np.maximum(d.vector_half * c.vector_half, d.vector) * vector_trend, vector)
    bandwidth = d.bandwidth * np.exp(factors["bandwidth"])
    halved = np.where(run.half > 0, 0.5, 1.0)
    moved_bytes = sum((total(f"{p}_{k}_bytes") for p in PHASES for k in MOVED), start=np.zeros(len(totals)))
    kernels = sum((total(f"{p}_{k}_calls") for p in PHASES for k in CALLED[:-1]), start=np.zeros(len(totals)))
    mean_bytes = halved * moved_bytes / np.maximum(kernels, 1.0)
    cached = 1.0 + (c.cache_gain - 1.0) / (1.0 + mean_bytes / d.cache)
    streaming = bandwidth * trend(c.bandwidth_year, years) * cached

    def arithmetic(phase: str, category: str, has_tensor: Flags, vector_share: Array) -> Array:
        flop, results, operands, rows, depth = (
            total(f"{phase}_{category}_{name}") for name in PRODUCT_TOTALS
        )

        def work(deep: float, wide: float, wave: float) -> Array:
            waves = wave * _TILE * d.multiprocessors * depth
            return np.asarray(flop + deep * results + wide * operands + deep * wide * rows + waves)

        on_tensor = work(c.depth_overhead, c.column_overhead, c.wave_overhead) / (
            getattr(c, category) * np.maximum(tensor_rate, 1.0)
        )
        on_vector = work(c.vector_depth_overhead, c.vector_column_overhead, c.vector_wave_overhead)
        return np.asarray(np.where(has_tensor, on_tensor, on_vector / (vector_share * plain)))

    def traffic(phase: str, kind: str) -> Array:
        cast = getattr(c, f"{kind}_cast", c.matmul_cast)
        size = np.where(run.cast > 0, cast, np.where(run.half > 0, 0.5, 1.0))
        seconds = total(f"{phase}_{kind}_bytes") * size / (getattr(c, f"{kind}_bandwidth") * streaming)
        if phase == "backward":
            seconds = seconds * getattr(c, f"{kind}_backward_bytes", 1.0)
        fused = run.version >= _FUSED_SINCE
        if kind == "conv":
            transposes = conv_tensor & (run.half > 0) & (run.channels_last == 0)
            seconds = seconds * np.where(transposes, c.channels_first_conv, 1.0)
        elif kind == "batch_norm":
            seconds = seconds * np.where(run.channels_last > 0, c.channels_last_norm, 1.0)
        elif kind == "softmax":
            seconds = seconds * np.where(fused, c.fused_softmax, 1.0)
        elif kind == "batched":
            seconds = seconds * np.where(fused, c.fused_batched, 1.0)
        return np.asarray(seconds)

    power = max(1.0, c.overlap)

    def joined(compute: Array, moved: Array) -> Array:
        return np.asarray(((compute + 1e-12) ** power + (moved + 1e-12) ** power) ** (1.0 / power))

    conv_share = np.where(d.amd > 0, c.amd_conv, 1.0)
    matmul_share = np.where(d.amd > 0, c.amd_matmul, 1.0)
    floor = np.where(d.amd > 0, c.amd_kernel_floor, c.kernel_floor)
    parts: dict[str, Array] = {}
    compute_seconds = np.zeros(len(totals))
    host = np.zeros(len(totals))
    for phase in PHASES:
        backward = phase == "backward"
        conv = sum(
            (
                arithmetic(phase, name, conv_tensor, getattr(c, f"vector_{name}") * conv_share)
                for name in ("pointwise", "winograd", "window")
            ),
            start=np.zeros(len(totals)),
        )
        grouped = total(f"{phase}_grouped_flop") / (
            vector * c.grouped * np.where(run.channels_last > 0, c.grouped_channels_last, 1.0)
        )
        matmul = arithmetic(phase, "matmul", matmul_tensor, c.vector_matmul * matmul_share)
        batched = arithmetic(phase, "batched", matmul_tensor, c.vector_batched * matmul_share)
        if backward:
            conv, grouped = conv / c.backward_conv, grouped / c.backward_grouped
            matmul = matmul / c.backward_matmul
        compute_seconds = compute_seconds + conv + grouped + matmul + batched
        for kind, seconds in (("conv", conv), ("grouped", grouped), ("matmul", matmul), ("batched", batched)):
            parts[f"{phase}_{kind}"] = joined(seconds, traffic(phase, kind))
        parts[f"{phase}_norm"] = traffic(phase, "batch_norm") + traffic(phase, "layer_norm")
        parts[f"{phase}_light"] = (
            traffic(phase, "pool") + traffic(phase, "softmax") + traffic(phase, "elementwise")
        )
        parts[f"{phase}_copy"] = traffic(phase, "copy") + traffic(phase, "lookup")
        calls = {kind: total(f"{phase}_{kind}_calls") for kind in CALLED}
        parts[f"{phase}_floor"] = (
            sum((calls[kind] for kind in CALLED if kind != "view"), start=np.zeros(len(totals))) * floor
        )
        launch = (
            c.conv_launch * (calls["conv"] + calls["grouped"])
            + c.matmul_launch * (calls["matmul"] + calls["batched"])
            + c.norm_launch * calls["norm"]
            + c.light_launch * (calls["light"] + calls["copy"])
            + c.view_launch * calls["view"]
        )
        host = host + launch * (c.backward_launch if backward else 1.0)
    host = (
        host
        * np.where(run.training > 0, 1.0, c.inference_launch)
        * np.where(run.cast > 0, c.cast_launch, 1.0)
    )
    host = host + c.step_launch + run.updates * tensors * c.tensor_launch
    host = host * np.exp(factors["host"]) * trend(c.amd_launch, d.amd)
    host = host * np.where(run.version < _OLD_BEFORE, c.old_launch, 1.0)
    update = run.updates * parameters * _FP32 / (c.update_bandwidth * bandwidth)
    copied = run.copied * np.where(run.half > 0, 0.5, 1.0) / c.host_link
    on_device = np.asarray(sum(parts.values(), start=np.zeros(len(totals)))) + update + copied
    q = c.sharpness
    whole = (host**q + on_device**q) ** (1.0 / q)
    host_share, device_share = (host / whole) ** (q - 1.0), (on_device / whole) ** (q - 1.0)
    compute = np.minimum(compute_seconds, on_device - update - copied)
    step = StepTime(
        whole,
        host * host_share,
        compute * device_share,
        (on_device - compute - update) * device_share,
        update * device_share,
    )
    return TracedTimes(step, host, on_device, parts)
