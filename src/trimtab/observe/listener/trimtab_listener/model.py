"""The modules an optimizer trains: their sizes and layers, and the shapes of their calls in one step."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

_WRAPPED_IN = ("module", "_orig_mod")  # DistributedDataParallel, DataParallel; torch.compile


def tensors_in(value: Any, depth: int = 4) -> Iterator[torch.Tensor]:
    """Every tensor in a value: in lists, dicts and, as models return them, objects with mapped fields."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth and isinstance(value, Mapping):
        for inner in value.values():
            yield from tensors_in(inner, depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for inner in value:
            yield from tensors_in(inner, depth - 1)


def weight_of(tensor: torch.Tensor) -> int:
    """Bytes, every floating-point number taken as four whatever its format in this run."""
    size = 4 if tensor.is_floating_point() else tensor.element_size()
    return tensor.numel() * size


def storage_of(tensor: torch.Tensor) -> int:
    """An identity that a tensor and its views share, also without memory; 0 for tensors without storage."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except Exception:
        return 0


def find_roots(parameters: Iterable[torch.Tensor]) -> list[torch.nn.Module]:
    """The outermost modules that own some of the parameters, as the script would call them."""
    ids = {id(parameter) for parameter in parameters}
    owners = []
    for thing in gc.get_objects():
        # type(), not isinstance: a proxy's __class__ may run arbitrary code.
        if issubclass(type(thing), torch.nn.Module) and _owns(thing, ids):
            owners.append(thing)
    inner = {id(child) for owner in owners for child in owner.modules() if child is not owner}
    return [owner for owner in owners if id(owner) not in inner]


def _owns(module: Any, parameters: set[int]) -> bool:
    try:
        return any(id(parameter) in parameters for parameter in module.parameters())
    except Exception:
        return False  # half-built or dismantled


def unwrapped(module: torch.nn.Module) -> torch.nn.Module:
    """The user's own module inside a wrapper of PyTorch's."""
    while True:
        kind = type(module).__name__
        if kind not in ("DistributedDataParallel", "DataParallel", "OptimizedModule"):
            return module
        module = next(m for name in _WRAPPED_IN if (m := module._modules.get(name)) is not None)


def describe_modules(roots: list[torch.nn.Module]) -> dict[str, Any]:
    """Sizes and layers of all roots together."""
    modules = [unwrapped(root) for root in roots]
    parameters = {id(p): p for module in modules for p in module.parameters()}.values()
    buffers = {id(b): b for module in modules for b in module.buffers()}.values()
    return {
        "names": [type(module).__name__ for module in modules],
        "parameters": sum(p.numel() for p in parameters),
        "trained_parameters": sum(p.numel() for p in parameters if p.requires_grad),
        "parameter_bytes": sum(weight_of(p) for p in parameters),
        "buffer_bytes": sum(weight_of(b) for b in buffers),
        "modules": len({id(m) for module in modules for m in module.modules()}),
        "layers": [layer for module in modules for layer in _leaves(module, len(modules) > 1)],
    }


def _leaves(module: torch.nn.Module, several: bool) -> list[list[Any]]:
    prefix = f"{type(module).__name__}." if several else ""
    return [
        [prefix + name, type(leaf).__name__, sum(p.numel() for p in leaf.parameters(recurse=False))]
        for name, leaf in module.named_modules()
        if next(leaf.children(), None) is None
    ]


def describe_optimizers(optimizers: list[Any]) -> dict[str, Any]:
    """Class names, bytes of their state, and the first learning rate."""
    state = {id(t): t for o in optimizers for s in o.state.values() for t in tensors_in(s)}.values()
    return {
        "optimizer": " + ".join(dict.fromkeys(type(o).__name__ for o in optimizers)),
        "optimizer_state_bytes": sum(weight_of(t) for t in state),
        "learning_rate": float(optimizers[0].param_groups[0].get("lr") or 0.0) if optimizers else 0.0,
    }


class ModuleCall:
    """The sizes of one call of a root module."""

    def __init__(self, root: int, inputs: list[torch.Tensor]) -> None:
        self.root = root
        self.inputs = [tuple(t.shape) for t in inputs if t.dim()]
        self.input_bytes = sum(weight_of(t) for t in inputs)
        self.outputs: list[tuple[int, ...]] = []
        self.output_bytes = 0

    def returned(self, outputs: list[torch.Tensor]) -> None:
        """Note the outputs, the largest first: a loss beside it is not the answer."""
        ordered = sorted(outputs, key=weight_of, reverse=True)
        self.outputs = [tuple(t.shape) for t in ordered]
        self.output_bytes = sum(weight_of(t) for t in ordered)


class CallWatch:
    """Watches calls of `nn.Module` from outside any module, until `stop`, for the model that trains.

    A call counts if it computes gradients, if the module is in training mode, and if it owns one of the
    parameters that `parameters` returns; `on_call` runs before it.
    """

    def __init__(
        self, parameters: Callable[[], Iterable[torch.Tensor]], on_call: Callable[[Any], None]
    ) -> None:
        self.calls: list[ModuleCall] = []
        self._parameters = parameters
        self._on_call = on_call
        self._trains: dict[int, bool] = {}
        self._inside = False
        self._thread = threading.get_ident()
        self._original: Any = torch.nn.Module.__call__
        original, watch = self._original, self

        def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            if watch._inside or not torch.is_grad_enabled() or threading.get_ident() != watch._thread:
                return original(self, *args, **kwargs)
            return watch._outermost(self, args, kwargs)

        self._installed = __call__
        torch.nn.Module.__call__ = __call__  # type: ignore[method-assign]

    def stop(self) -> None:
        """Restore `nn.Module`."""
        if torch.nn.Module.__call__ is self._installed:
            torch.nn.Module.__call__ = self._original  # type: ignore[method-assign]
        self._inside = True  # in case someone else has wrapped it in the meantime

    def _outermost(self, module: Any, args: Any, kwargs: Any) -> Any:
        call = None
        with contextlib.suppress(Exception):
            if module.training and self._is_trained(module):
                self._on_call(module)
                call = ModuleCall(id(module), list(tensors_in((args, kwargs))))
        self._inside = True
        try:
            output = self._original(module, *args, **kwargs)
        finally:
            self._inside = False
        if call is not None:
            with contextlib.suppress(Exception):
                call.returned(list(tensors_in(output)))
                self.calls.append(call)
        return output

    def _is_trained(self, module: Any) -> bool:
        known = self._trains.get(id(module))
        if known is None:
            known = _owns(module, {id(parameter) for parameter in self._parameters()})
            self._trains[id(module)] = known
        return known


def batch_dimension(call: ModuleCall, roots: list[torch.nn.Module], loader_batch: int | None) -> int:
    """The dimension of the first input that counts samples."""
    shape = call.inputs[0]
    if loader_batch in shape:
        return shape.index(loader_batch)
    # Recurrent and attention layers of PyTorch take the sequence first unless told otherwise.
    sequence_first = any(getattr(m, "batch_first", True) is False for root in roots for m in root.modules())
    return 1 if sequence_first and len(shape) > 1 else 0


def describe_calls(
    calls: list[ModuleCall], roots: list[torch.nn.Module], loader_batch: int | None, loader_batches: int
) -> dict[str, Any]:
    """Samples in the step, and shapes and bytes of one sample.

    One model called several times accumulates gradients, so its calls add up; with several models (a
    generator and its critic) samples pass through more than one call, so the loader's batch size counts. It
    also counts if the first dimension is no batch of the loader's: a batch of graphs has their nodes there.
    """
    whole = {id(root) for root in roots}
    with_inputs = [call for call in calls if call.inputs and call.root in whole]
    with_inputs = with_inputs or [call for call in calls if call.inputs]  # parts of the model, called alone
    if not with_inputs:
        return {"batch_size": (loader_batch or 0) * max(1, loader_batches)}
    first = with_inputs[0]
    dimension = batch_dimension(first, roots, loader_batch)
    sizes: dict[int, int] = {}  # samples by module
    for call in with_inputs:
        shape = call.inputs[0]
        sizes[call.root] = sizes.get(call.root, 0) + shape[min(dimension, len(shape) - 1)]
    batch = min(sizes.values())
    length = first.inputs[0][min(dimension, len(first.inputs[0]) - 1)]
    if loader_batch and (len(sizes) > 1 or length > loader_batch):
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
