"""What one step of a model asks of the device it runs on: calls, arithmetic and memory traffic.

Everything here is a fact about the model and the batch, none about the hardware. All fields are numbers or
arrays of one common shape, so that thousands of cases are estimated in one go.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from trimtab.core import Model, Operators

Quantity = float | NDArray[np.float64]

# A weight's gradient and its input's gradient each cost what the forward product costs.
TRAINING_FLOP_PER_FORWARD_FLOP = 3.0


@dataclass(frozen=True, slots=True)
class Demand:
    """One step: operator calls, FLOP, and bytes read and written in fp32 without fusion.

    `forward_…` and `backward_…` bytes are apart because backward kernels reach a lower share of the
    bandwidth. `small_calls` are views and copies: small kernels of all kinds come along with them, and
    tracers agree on them, which they do not on elementwise calls. `grouped_flop` marks grouped
    convolutions, see `demand_of`. `conv_weight_bytes` are those of a mean convolution, not of all.
    `training` and `half` (16-bit matrix products) are 0 or 1.
    """

    conv_calls: Quantity
    matmul_calls: Quantity
    attention_calls: Quantity
    recurrent_calls: Quantity
    other_calls: Quantity
    small_calls: Quantity
    conv_weight_bytes: Quantity
    conv_flop: Quantity
    matmul_flop: Quantity
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
    """The demand of one step of `model` at `batch` samples per device.

    PyTorch's FLOP counter charges the weight gradient of a grouped convolution as if it were dense, so a
    step with more than three times the forward FLOP has grouped convolutions. Their true arithmetic is
    small but their kernels are slow, and the excess turned out to be a fair measure of by how much: it is
    kept apart as `grouped_flop` and charged at a rate of its own.
    """
    operators = [o for o in model.operators if training or o.phase == "forward"]
    conv_flop, matmul_flop, grouped_flop = _flop(model, operators, batch, training)
    return Demand(
        conv_calls=_calls(operators, "conv"),
        matmul_calls=_calls(operators, "matmul"),
        attention_calls=_calls(operators, "attention"),
        recurrent_calls=_calls(operators, "rnn"),
        other_calls=_calls(operators, "norm", "pool", "softmax", "embedding"),
        small_calls=_calls(operators, "view", "copy"),
        conv_weight_bytes=_conv_weight_bytes(operators),
        conv_flop=conv_flop,
        matmul_flop=matmul_flop,
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


def stack(demands: Iterable[Demand]) -> Demand:
    """Many demands as one of arrays."""
    rows = list(demands)
    return Demand(
        **{
            f.name: np.concatenate([np.atleast_1d(np.asarray(getattr(d, f.name), float)) for d in rows])
            for f in fields(Demand)
        }
    )


def _calls(operators: list[Operators], *kinds: str) -> float:
    return sum(o.calls for o in operators if o.kind in kinds)


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


def _flop(
    model: Model, operators: list[Operators], batch: Quantity, training: bool
) -> tuple[Quantity, Quantity, Quantity]:
    """FLOP of convolutions, of other products, and the excess that marks grouped convolutions."""
    forward = model.forward_flop_per_sample
    total = min(TRAINING_FLOP_PER_FORWARD_FLOP * forward, model.step_flop_per_sample) if training else forward
    excess = model.step_flop_per_sample - TRAINING_FLOP_PER_FORWARD_FLOP * forward if training else 0.0
    share = _conv_share(operators, batch)
    return total * batch * share, total * batch * (1.0 - share), max(0.0, excess) * batch


def _conv_share(operators: list[Operators], batch: Quantity) -> Quantity:
    """Share of the products' traffic that is convolutions': FLOP are only known in total."""
    phases = ("forward", "backward")
    conv = sum(_bytes(operators, batch, p, "conv") for p in phases)
    products = conv + sum(_bytes(operators, batch, p, "matmul", "attention", "rnn") for p in phases)
    return conv / np.maximum(products, 1.0)
