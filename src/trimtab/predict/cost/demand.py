"""Demand of a step or of single operations: calls, arithmetic and memory traffic, by kind of operation.

Everything here is a fact about the model and the batch, none about the hardware. All fields are numbers or
arrays of one common shape, so that thousands of steps, or all operations of a model, are estimated at once.
A step comes from the trace of a run (`demand_of`), single operations from a captured graph
(`demand_of_operations`); both are charged by the same formula with the same constants (`step_time`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from trimtab.core import Model, Operators
from trimtab.predict.tables import Array

Quantity = float | NDArray[np.float64]

# A weight's gradient and its input's gradient each cost what the forward product costs.
TRAINING_FLOP_PER_FORWARD_FLOP = 3.0

_PRODUCTS = ("conv", "matmul", "attention", "rnn")
# Kinds of operators whose calls are counted together.
_CALLED = {
    "conv": ("conv",),
    "matmul": ("matmul",),
    "attention": ("attention",),
    "recurrent": ("rnn",),
    "other": ("norm", "pool", "softmax", "embedding"),
    "small": ("view", "copy"),
}

# What PyTorch's trace of a step counts for one operation of a captured forward pass, as the median over the
# 28 bundled models (`ops.csv`): calls in the backward pass, views and copies that come along in the forward
# and in the backward pass, and bytes in the backward pass for one byte in the forward pass.
_BACKWARD_CALLS = {"matmul": 2.0}
_SMALL_CALLS = {
    "conv": (0.2, 5.6),
    "matmul": (1.5, 10.7),
    "attention": (25.0, 26.0),
    "softmax": (25.0, 13.0),
    "norm": (0.0, 3.0),
}
_BACKWARD_BYTES = {"conv": 1.5, "matmul": 2.0, "attention": 2.0, "norm": 1.5, "pool": 1.5, "softmax": 1.5}
_BACKWARD_ELEMENTWISE_BYTES = 1.8
# A captured elementwise operation counts two reads and a write, a trace twice what is written.
_ELEMENTWISE_BYTES = 2.0 / 3.0


@dataclass(frozen=True, slots=True)
class Demand:
    """Operator calls, FLOP, and bytes read and written in fp32 without fusion.

    `forward_…` and `backward_…` are apart because the host launches backward calls faster, and backward
    kernels reach a lower share of the bandwidth. `…_small_calls` are views and copies: small kernels of all
    kinds come along with them, and tracers agree on them, which they do not on elementwise calls.
    `matmul_flop` includes attention where a trace does not separate it. `grouped_flop` marks grouped
    convolutions, see `demand_of`. `conv_weight_bytes` are those of a mean convolution, not of all. `training`
    and `half` (16-bit matrix products) are 0 or 1.
    """

    forward_conv_calls: Quantity
    forward_matmul_calls: Quantity
    forward_attention_calls: Quantity
    forward_recurrent_calls: Quantity
    forward_other_calls: Quantity
    forward_small_calls: Quantity
    backward_conv_calls: Quantity
    backward_matmul_calls: Quantity
    backward_attention_calls: Quantity
    backward_recurrent_calls: Quantity
    backward_other_calls: Quantity
    backward_small_calls: Quantity
    conv_weight_bytes: Quantity
    conv_flop: Quantity
    matmul_flop: Quantity
    attention_flop: Quantity
    grouped_flop: Quantity
    forward_conv_bytes: Quantity
    backward_conv_bytes: Quantity
    forward_matmul_bytes: Quantity
    backward_matmul_bytes: Quantity
    forward_light_bytes: Quantity
    backward_light_bytes: Quantity
    copied_bytes: Quantity
    recurrent_bytes: Quantity
    updated_bytes: Quantity
    training: Quantity
    half: Quantity


def is_half(precision: str) -> bool:
    """Whether matrix products run on 16-bit numbers."""
    return precision in ("bf16", "fp16")


def demand_of(model: Model, batch: Quantity, training: bool = True, precision: str | None = None) -> Demand:
    """The demand of one step of `model` at `batch` samples per device, from the trace of a run.

    PyTorch's FLOP counter charges the weight gradient of a grouped convolution as if it were dense, so a
    step with more than three times the forward FLOP has grouped convolutions. Their true arithmetic is
    small but their kernels are slow, and the excess turned out to be a fair measure of by how much: it is
    kept apart as `grouped_flop` and charged at a rate of its own.
    """
    operators = [o for o in model.operators if training or o.phase == "forward"]

    def chosen(phase: str, *kinds: str) -> list[Operators]:
        return [o for o in operators if o.kind in kinds and o.phase == phase]

    def moved(phase: str, *kinds: str) -> Quantity:
        of_kind = chosen(phase, *kinds)
        return sum(o.fixed_bytes for o in of_kind) + batch * sum(o.sample_bytes for o in of_kind)

    amounts: dict[str, Quantity] = {}
    for phase in ("forward", "backward"):
        for name, kinds in _CALLED.items():
            amounts[f"{phase}_{name}_calls"] = sum(o.calls for o in chosen(phase, *kinds))
        amounts[f"{phase}_conv_bytes"] = moved(phase, "conv")
        amounts[f"{phase}_matmul_bytes"] = moved(phase, "matmul", "attention")
        # Operators that only stream: elementwise ones by the bytes they write. What an unfused one reads was
        # mostly just written and still in cache, and its fixed part is the optimizer's (`updated_bytes`).
        written = sum(o.written_sample_bytes for o in chosen(phase, "elementwise"))
        amounts[f"{phase}_light_bytes"] = moved(phase, "norm", "pool", "softmax") + 2.0 * written * batch
    convolutions = chosen("forward", "conv")
    # FLOP are only known in total: those of convolutions by their share of the products' traffic per sample.
    conv_bytes, product_bytes = (
        sum(o.sample_bytes for o in model.operators if o.kind in kinds) for kinds in (("conv",), _PRODUCTS)
    )
    conv_share = conv_bytes / max(1.0, product_bytes)
    forward = model.forward_flop_per_sample
    dense = TRAINING_FLOP_PER_FORWARD_FLOP * forward
    flop = (min(dense, model.step_flop_per_sample) if training else forward) * batch
    return Demand(
        **amounts,
        # Weights of a mean convolution are the bytes it moves at any batch size.
        conv_weight_bytes=sum(o.fixed_bytes for o in convolutions)
        / max(1.0, sum(o.calls for o in convolutions)),
        conv_flop=flop * conv_share,
        matmul_flop=flop * (1.0 - conv_share),
        attention_flop=0.0 * flop,
        grouped_flop=(max(0.0, model.step_flop_per_sample - dense) if training else 0.0) * batch,
        copied_bytes=moved("forward", "copy", "embedding") + moved("backward", "copy", "embedding"),
        recurrent_bytes=moved("forward", "rnn") + moved("backward", "rnn"),
        updated_bytes=model.parameter_bytes if training else 0.0,
        training=float(training),
        half=float(is_half(precision or model.precision)),
    )


def divided(demand: Demand, devices: Quantity) -> Demand:
    """The demand of one of `devices` that share every product: a part of the work, but all of the calls."""
    work = [f.name for f in fields(Demand) if f.name.endswith(("_flop", "_bytes"))]
    parts = {name: getattr(demand, name) / devices for name in work if name != "conv_weight_bytes"}
    return replace(demand, **parts)


@dataclass(frozen=True, slots=True)
class Operations:
    """Operations of one captured forward pass as columns.

    `kinds` are those of `core.Operators`, `input` or `output`; `calls` count kernels, `flop` arithmetic,
    `traffic` bytes read and written in fp32 without weights, `weight_bytes` trained weights in fp32.
    """

    kinds: NDArray[np.str_]
    calls: Array
    flop: Array
    traffic: Array
    weight_bytes: Array


def demand_of_operations(
    operations: Operations, backward: bool, training: bool = True, precision: str = "fp32"
) -> Demand:
    """The demand of every operation in one pass, as a trace of that pass would count it."""
    o, phase = operations, "backward" if backward else "forward"

    def chosen(column: Array, *kinds: str) -> Array:
        return np.where(np.isin(o.kinds, kinds), column, 0.0)

    def by_kind(values: Mapping[str, float], otherwise: float) -> Array:
        return np.array([values.get(kind, otherwise) for kind in o.kinds.tolist()])

    calls = o.calls * by_kind(_BACKWARD_CALLS, 1.0) if backward else o.calls
    flop = o.flop * (TRAINING_FLOP_PER_FORWARD_FLOP - 1.0) if backward else o.flop
    moved = o.traffic + np.where(np.isin(o.kinds, _PRODUCTS), o.weight_bytes, 0.0)
    if backward:
        moved = moved * by_kind(_BACKWARD_BYTES, 1.0)
    written = _ELEMENTWISE_BYTES * o.traffic * (_BACKWARD_ELEMENTWISE_BYTES if backward else 1.0)
    amounts = {f.name: np.zeros(len(o.kinds)) for f in fields(Demand)} | {
        **{f"{phase}_{name}_calls": chosen(calls, *kinds) for name, kinds in _CALLED.items()},
        f"{phase}_small_calls": o.calls
        * by_kind({k: both[backward] for k, both in _SMALL_CALLS.items()}, 0.0),
        f"{phase}_conv_bytes": chosen(moved, "conv"),
        f"{phase}_matmul_bytes": chosen(moved, "matmul", "attention"),
        f"{phase}_light_bytes": chosen(moved, "norm", "pool", "softmax") + chosen(written, "elementwise"),
        "conv_weight_bytes": chosen(o.weight_bytes / np.maximum(o.calls, 1.0), "conv"),
        "conv_flop": chosen(flop, "conv"),
        "matmul_flop": chosen(flop, "matmul", "rnn"),
        "attention_flop": chosen(flop, "attention"),
        "copied_bytes": chosen(o.traffic, "copy", "embedding"),
        "recurrent_bytes": chosen(moved, "rnn"),
    }
    amounts["training"], amounts["half"] = (
        amounts["training"] + flag for flag in (training, is_half(precision))
    )
    return Demand(**amounts)


def stack(demands: Iterable[Demand]) -> Demand:
    """Many demands as one of arrays."""
    rows = [
        {f.name: np.atleast_1d(np.asarray(getattr(d, f.name), float)) for f in fields(d)} for d in demands
    ]
    return Demand(**{f.name: np.concatenate([row[f.name] for row in rows]) for f in fields(Demand)})


def summed(demand: Demand, group: NDArray[np.intp] | None = None) -> Demand:
    """Operations added up to the demand of a step, or with `group` to one of each group.

    The mean convolution's weights are weighted by calls, as a trace has them.
    """
    which = np.zeros(len(np.atleast_1d(demand.conv_flop)), dtype=np.intp) if group is None else group
    count = int(which.max(initial=0)) + 1

    def total(column: Quantity) -> Array:
        return np.bincount(which, np.broadcast_to(column, which.shape), count).astype(float)

    sums = {f.name: total(getattr(demand, f.name)) for f in fields(Demand)}
    rows = np.maximum(np.bincount(which, minlength=count), 1)
    calls = demand.forward_conv_calls + demand.backward_conv_calls
    sums["conv_weight_bytes"] = total(demand.conv_weight_bytes * calls) / np.maximum(total(calls), 1e-30)
    sums |= {name: sums[name] / rows for name in ("training", "half")}
    return Demand(**sums)
