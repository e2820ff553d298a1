"""Demand of a step or of single operations: calls, arithmetic and memory traffic, by kind of operation.

Everything here is a fact about the model and the batch, none about the hardware. All fields are numbers or
arrays of one common shape, so that thousands of steps, or all operations of a model, are estimated at once.
A step comes from the trace of a run (`demand_of`), single operations from a captured graph
(`demand_of_operations`); both are charged by the same formula with the same constants (`step_time`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from trimtab.core import Model, Operators

Array = NDArray[np.float64]
Quantity = float | NDArray[np.float64]

# A weight's gradient and its input's gradient each cost what the forward product costs.
TRAINING_FLOP_PER_FORWARD_FLOP = 3.0

_PRODUCTS = ("conv", "matmul", "attention", "rnn")
_OTHERS = ("norm", "pool", "softmax", "embedding")

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
    conv_flop, matmul_flop, grouped_flop = _flop(model, batch, training)
    calls = {
        f"{phase}_{name}_calls": _calls(operators, phase, *kinds)
        for phase in ("forward", "backward")
        for name, kinds in (
            ("conv", ("conv",)),
            ("matmul", ("matmul",)),
            ("attention", ("attention",)),
            ("recurrent", ("rnn",)),
            ("other", _OTHERS),
            ("small", ("view", "copy")),
        )
    }
    return Demand(
        **calls,
        conv_weight_bytes=_conv_weight_bytes(operators),
        conv_flop=conv_flop,
        matmul_flop=matmul_flop,
        attention_flop=0.0 * matmul_flop,
        grouped_flop=grouped_flop,
        forward_conv_bytes=_bytes(operators, batch, "forward", "conv"),
        backward_conv_bytes=_bytes(operators, batch, "backward", "conv"),
        forward_matmul_bytes=_bytes(operators, batch, "forward", "matmul", "attention"),
        backward_matmul_bytes=_bytes(operators, batch, "backward", "matmul", "attention"),
        forward_light_bytes=_light_bytes(operators, batch, "forward"),
        backward_light_bytes=_light_bytes(operators, batch, "backward"),
        copied_bytes=_bytes(operators, batch, "forward", "copy", "embedding")
        + _bytes(operators, batch, "backward", "copy", "embedding"),
        recurrent_bytes=_bytes(operators, batch, "forward", "rnn")
        + _bytes(operators, batch, "backward", "rnn"),
        updated_bytes=model.parameter_bytes if training else 0.0,
        training=float(training),
        half=float(is_half(precision or model.precision)),
    )


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
    nothing = np.zeros(len(o.kinds))

    def chosen(column: Array, *kinds: str) -> Array:
        return np.where(np.isin(o.kinds, kinds), column, 0.0)

    calls = o.calls * _by_kind(o.kinds, _BACKWARD_CALLS, 1.0) if backward else o.calls
    small = o.calls * _by_kind(o.kinds, {kind: each[backward] for kind, each in _SMALL_CALLS.items()}, 0.0)
    flop = o.flop * (TRAINING_FLOP_PER_FORWARD_FLOP - 1.0) if backward else o.flop
    products = np.isin(o.kinds, _PRODUCTS)
    moved = o.traffic + np.where(products, o.weight_bytes, 0.0)
    if backward:
        moved = moved * _by_kind(o.kinds, _BACKWARD_BYTES, 1.0)
    written = _ELEMENTWISE_BYTES * o.traffic * (_BACKWARD_ELEMENTWISE_BYTES if backward else 1.0)
    light = chosen(moved, "norm", "pool", "softmax") + chosen(written, "elementwise")
    amounts = {
        f"{phase}_conv_calls": chosen(calls, "conv"),
        f"{phase}_matmul_calls": chosen(calls, "matmul"),
        f"{phase}_attention_calls": chosen(calls, "attention"),
        f"{phase}_recurrent_calls": chosen(calls, "rnn"),
        f"{phase}_other_calls": chosen(calls, *_OTHERS),
        f"{phase}_small_calls": small,
        f"{phase}_conv_bytes": chosen(moved, "conv"),
        f"{phase}_matmul_bytes": chosen(moved, "matmul", "attention"),
        f"{phase}_light_bytes": light,
        "conv_weight_bytes": chosen(o.weight_bytes / np.maximum(o.calls, 1.0), "conv"),
        "conv_flop": chosen(flop, "conv"),
        "matmul_flop": chosen(flop, "matmul", "rnn"),
        "attention_flop": chosen(flop, "attention"),
        "copied_bytes": chosen(o.traffic, "copy", "embedding"),
        "recurrent_bytes": chosen(moved, "rnn"),
    }
    unused = {f.name: nothing for f in fields(Demand) if f.name not in amounts}
    return Demand(
        **{**unused, **amounts, "training": nothing + training, "half": nothing + is_half(precision)}
    )


def stack(demands: Iterable[Demand]) -> Demand:
    """Many demands as one of arrays."""
    rows = list(demands)
    return Demand(
        **{
            f.name: np.concatenate([np.atleast_1d(np.asarray(getattr(d, f.name), float)) for d in rows])
            for f in fields(Demand)
        }
    )


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


def _by_kind(kinds: NDArray[np.str_], values: Mapping[str, float], otherwise: float) -> Array:
    return np.array([values.get(kind, otherwise) for kind in kinds.tolist()])


def _calls(operators: list[Operators], phase: str, *kinds: str) -> float:
    return sum(o.calls for o in operators if o.kind in kinds and o.phase == phase)


def _conv_weight_bytes(operators: list[Operators]) -> float:
    """Weights of a mean convolution: what it moves whatever the batch."""
    forward = [o for o in operators if o.kind == "conv" and o.phase == "forward"]
    return sum(o.fixed_bytes for o in forward) / max(1.0, sum(o.calls for o in forward))


def _bytes(operators: list[Operators], batch: Quantity, phase: str, *kinds: str) -> Quantity:
    chosen = [o for o in operators if o.kind in kinds and o.phase == phase]
    return sum(o.fixed_bytes for o in chosen) + batch * sum(o.sample_bytes for o in chosen)


def _light_bytes(operators: list[Operators], batch: Quantity, phase: str) -> Quantity:
    """Operators that only stream: norms, pools, softmaxes, and elementwise ones by the bytes they write.

    What an unfused elementwise operator reads was mostly just written and still in cache, and its fixed part
    is the optimizer's, which `updated_bytes` stands for.
    """
    streamed = _bytes(operators, batch, phase, "norm", "pool", "softmax")
    written = sum(o.written_sample_bytes for o in operators if o.kind == "elementwise" and o.phase == phase)
    return streamed + 2.0 * written * batch


def _flop(model: Model, batch: Quantity, training: bool) -> tuple[Quantity, Quantity, Quantity]:
    """FLOP of convolutions, of other products, and the excess that marks grouped convolutions."""
    forward = model.forward_flop_per_sample
    total = min(TRAINING_FLOP_PER_FORWARD_FLOP * forward, model.step_flop_per_sample) if training else forward
    excess = model.step_flop_per_sample - TRAINING_FLOP_PER_FORWARD_FLOP * forward if training else 0.0
    share = _conv_share(model)
    return total * batch * share, total * batch * (1.0 - share), max(0.0, excess) * batch


def _conv_share(model: Model) -> float:
    """Share of the products' traffic per sample that is convolutions': FLOP are only known in total."""
    conv = sum(o.sample_bytes for o in model.operators if o.kind == "conv")
    return conv / max(1.0, sum(o.sample_bytes for o in model.operators if o.kind in _PRODUCTS))
