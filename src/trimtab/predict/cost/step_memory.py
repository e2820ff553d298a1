"""How much device memory one step needs at its worst moment.

    training  = base + weights + optimizer state
                + max(gradients, activations kept + results alive + gradients of the output)
    inference = base + weights + results alive

Gradients are freed before the forward pass, and activations go as gradients come, so only the larger counts.
"""

from dataclasses import dataclass

import numpy as np

from trimtab.core import Model
from trimtab.predict.cost.constants import MemoryConstants
from trimtab.predict.cost.demand import Quantity, is_half

# During training most of the forward pass's results are among the activations kept; the rest are alive too.
_ALIVE_IN_TRAINING = 0.3
# When the backward pass begins, all is still kept, and the loss adds the gradients of the log-probabilities
# and of the output they came from. It matters where the output is as wide as a vocabulary.
_OUTPUT_GRADIENTS = 2.0


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """The memory-relevant facts of one step, in bytes; `conv_share` is the share of convolutions' results.

    `products` is how many matrix products and convolutions a forward pass has, `mean_result` what one writes.
    """

    resident: Quantity
    parameters: Quantity
    saved: Quantity
    output: Quantity
    conv_share: Quantity
    products: Quantity
    mean_result: Quantity
    training: Quantity
    half: Quantity


def memory_need(
    model: Model, batch: Quantity, training: bool = True, precision: str | None = None, left_over: float = 0.0
) -> MemoryNeed:
    """The need of a step at `batch`; `left_over` are bytes that stay allocated from before."""
    state = model.optimizer_state_bytes if training else 0.0
    products = [o for o in model.operators if o.phase == "forward" and o.kind in ("conv", "matmul", "rnn")]
    calls = sum(o.calls for o in products)
    written = sum(o.written_sample_bytes for o in products)
    conv = sum(o.written_sample_bytes for o in products if o.kind == "conv")
    return MemoryNeed(
        resident=model.parameter_bytes + model.buffer_bytes + state + left_over,
        parameters=model.parameter_bytes,
        saved=model.saved_sample_bytes * batch,
        output=model.output_bytes_per_sample * batch,
        conv_share=conv / written if written else 0.0,
        products=calls,
        mean_result=batch * written / calls if calls else 0.0 * batch,
        training=float(training),
        half=float(is_half(precision or model.precision)),
    )


def peak_memory(need: MemoryNeed, constants: MemoryConstants) -> Quantity:
    """Bytes at the worst moment of a step."""
    half, conv = np.asarray(need.half), np.asarray(need.conv_share)
    kept = need.saved * (
        half * (conv * constants.half_conv_saved + (1 - conv) * constants.half_saved)
        + (1 - half) * (conv * constants.conv_saved + (1 - conv) * constants.saved)
    )
    results = np.minimum(constants.alive, need.products) * need.mean_result
    alive = results * (half * constants.half_alive + (1 - half))
    cast = half * constants.cast * need.parameters
    training = np.maximum(
        kept + cast + _ALIVE_IN_TRAINING * results + _OUTPUT_GRADIENTS * need.output,
        constants.gradients * need.parameters,
    )
    return constants.base + need.resident + np.where(np.asarray(need.training) > 0, training, alive + cast)
