"""What goes into and comes out of the model in one step, and which dimension of it is the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .tensors import tensors_in, weight_of


class Call:
    """The sizes of one call of a root module."""

    def __init__(self, root: int, inputs: list[torch.Tensor]) -> None:
        self.root = root
        self.inputs = [tuple(t.shape) for t in inputs if t.dim()]
        self.input_bytes = sum(weight_of(t) for t in inputs)
        self.outputs: list[tuple[int, ...]] = []
        self.output_bytes = 0

    def returned(self, outputs: list[torch.Tensor]) -> None:
        """Note what came out. The largest output goes first: a loss that rides along is not the answer."""
        ordered = sorted(outputs, key=weight_of, reverse=True)
        self.outputs = [tuple(t.shape) for t in ordered]
        self.output_bytes = sum(weight_of(t) for t in ordered)


class CallWatch:
    """Watches the calls of the root modules until `stop`; calls without gradients are evaluation."""

    def __init__(self, roots: list[torch.nn.Module], on_first: Callable[[], None]) -> None:
        self.calls: list[Call] = []
        self._on_first: Callable[[], None] | None = on_first
        self._open: dict[int, Call] = {}
        self._roots = roots
        self._handles = []
        for root in roots:
            self._handles.append(root.register_forward_pre_hook(self._before, with_kwargs=True))
            self._handles.append(root.register_forward_hook(self._after))

    def stop(self) -> None:
        """Take the hooks off again."""
        for handle in self._handles:
            handle.remove()

    def _before(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        if not torch.is_grad_enabled():
            return
        self._open[id(module)] = Call(id(module), list(tensors_in((args, kwargs))))
        if self._on_first is not None:
            self._on_first()
            self._on_first = None

    def _after(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        call = self._open.pop(id(module), None)
        if call is not None:
            call.returned(list(tensors_in(output)))
            self.calls.append(call)


def batch_dimension(call: Call, roots: list[torch.nn.Module], loader_batch: int | None) -> int:
    """Which dimension of the first input counts samples."""
    shape = call.inputs[0]
    if loader_batch in shape:
        return shape.index(loader_batch)
    # Recurrent and attention layers of PyTorch take the sequence first unless told otherwise.
    sequence_first = any(getattr(m, "batch_first", True) is False for root in roots for m in root.modules())
    return 1 if sequence_first and len(shape) > 1 else 0


def describe_calls(
    calls: list[Call], roots: list[torch.nn.Module], loader_batch: int | None, loader_batches: int
) -> dict[str, Any]:
    """Samples in the step, and shapes and bytes of one sample.

    One model called several times accumulates gradients, so its calls add up; with several models (a
    generator and its critic) the same samples pass through more than one call, so the loader's word counts.
    """
    with_inputs = [call for call in calls if call.inputs]
    if not with_inputs:
        return {"batch_size": (loader_batch or 0) * max(1, loader_batches)}
    first = with_inputs[0]
    dimension = batch_dimension(first, roots, loader_batch)
    sizes: dict[int, int] = {}
    for call in with_inputs:
        shape = call.inputs[0]
        sizes[call.root] = sizes.get(call.root, 0) + shape[min(dimension, len(shape) - 1)]
    batch = min(sizes.values())
    if len(sizes) > 1 and loader_batch:
        batch = loader_batch * max(1, loader_batches)
    own = [call for call in with_inputs if call.root == first.root]
    return {
        "batch_size": batch,
        "micro_batches": len(own),
        "input_shape": _without(first.inputs[0], dimension),
        "output_shape": _without(first.outputs[0], dimension) if first.outputs else [],
        "input_bytes": sum(call.input_bytes for call in own),
        "output_bytes": sum(call.output_bytes for call in own),
    }


def _without(shape: tuple[int, ...], dimension: int) -> list[int]:
    return [size for index, size in enumerate(shape) if index != dimension]
