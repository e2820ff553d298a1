"""Peak of the device memory that one step needs.

    training  = base + weights + optimizer state
                + max(gradients, activations kept + results alive + gradients of the output)
    inference = base + weights + results alive

Gradients are freed before the forward pass, and activations go as gradients come, so only the larger counts.
"""

from dataclasses import dataclass, replace

import numpy as np

from trimtab.core import Model
from trimtab.predict.cost.constants import MemoryConstants
from trimtab.predict.cost.demand import Quantity, is_half
from trimtab.predict.cost.scale_out import FULL, Layouts, blocks_of
from trimtab.predict.tables import Array

# During training most of the forward pass's results are among the activations kept; the rest are alive too.
_ALIVE_IN_TRAINING = 0.3
# When the backward pass begins, all is still kept, and the loss adds the gradients of the log-probabilities
# and of the output they came from. It matters where the output is as wide as a vocabulary.
_OUTPUT_GRADIENTS = 2.0


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Facts of one step that its memory depends on, in bytes."""

    resident: Quantity
    parameters: Quantity
    saved: Quantity
    output: Quantity
    conv_share: Quantity  # of the products' results
    products: Quantity  # matrix products and convolutions in a forward pass
    mean_result: Quantity  # bytes that one of them writes
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


# Weights of so many blocks are gathered at once where replicas share them out: one in use, one prefetched.
_GATHERED_BLOCKS = 2.0
_EIGHT_BIT_STATE = 0.25  # of the optimizer's state in fp32


def spread_memory(
    model: Model,
    layouts: Layouts,
    batch: Array,
    replicas: Array,
    precision: str,
    constants: MemoryConstants,
) -> Array:
    """Bytes of one device at the worst moment of a training step, with the model spread by `layouts`.

    The formulas are those of a single device, with what it keeps: its part of the model, shared out over
    replicas as far as the sharding says; activations of the micro-batches in flight, or with checkpointing
    only the inputs of its blocks and all of the block that is computed again.
    """
    blocks, half = blocks_of(model), is_half(precision)
    count = blocks.count if blocks else max(1.0, float(model.modules))
    kept = [np.where(layouts.sharding >= level, 1.0 / replicas, 1.0) for level in (FULL, 2, 1)]
    weights, gradients, state = (share / layouts.parts for share in kept)
    state = state * np.where(layouts.eight_bit, _EIGHT_BIT_STATE, 1.0) * layouts.trained_share
    samples = batch / layouts.microbatches
    in_flight = np.minimum(layouts.pipeline, layouts.microbatches)
    saved = model.saved_sample_bytes * samples
    inputs = (blocks.boundary if blocks else model.saved_sample_bytes / count) * count * samples
    held = np.where(
        layouts.recompute,
        in_flight * inputs / layouts.pipeline + saved / count / layouts.tensor,
        in_flight * saved / layouts.parts,
    )
    per_block = model.parameter_bytes / count / layouts.tensor * (0.5 if half else 1.0)
    gathered = np.where(layouts.sharding == FULL, np.minimum(_GATHERED_BLOCKS, count) * per_block, 0.0)
    trained = model.parameter_bytes * gradients * layouts.trained_share
    need = memory_need(model, samples, True, precision)
    need = replace(
        need,
        resident=(model.parameter_bytes * weights + model.buffer_bytes / layouts.parts)
        + model.optimizer_state_bytes * state
        + gathered
        # Gradients that add up over micro-batches stay through all passes.
        + np.where(layouts.microbatches > 1, constants.gradients * trained, 0.0),
        parameters=trained,
        saved=held,
        output=need.output / layouts.tensor,
    )
    return np.asarray(peak_memory(need, constants))
