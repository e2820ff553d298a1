"""The modules an optimizer trains: their sizes and layers, and the shapes of their calls in one step."""

from __future__ import annotations

import gc
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
    """The address that a tensor and its views share; 0 for tensors without storage."""
    try:
        return tensor.untyped_storage().data_ptr()
    except Exception:
        return 0


def find_roots(parameters: Iterable[torch.Tensor]) -> list[torch.nn.Module]:
    """The outermost modules that own some of the parameters, as the script would call them."""
    wanted = {id(parameter) for parameter in parameters}
    owners = []
    for thing in gc.get_objects():
        # type(), not isinstance: a proxy's __class__ may run anybody's code.
        if issubclass(type(thing), torch.nn.Module) and _owns(thing, wanted):
            owners.append(thing)
    inner = {id(child) for owner in owners for child in owner.modules() if child is not owner}
    return [owner for owner in owners if id(owner) not in inner]


def _owns(module: Any, wanted: set[int]) -> bool:
    try:
        return any(id(parameter) in wanted for parameter in module.parameters())
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
    """Class names, and the bytes of what they remember between steps."""
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
        """Note what came out. The largest output goes first: a loss that rides along is not the answer."""
        ordered = sorted(outputs, key=weight_of, reverse=True)
        self.outputs = [tuple(t.shape) for t in ordered]
        self.output_bytes = sum(weight_of(t) for t in ordered)


class CallWatch:
    """Watches the calls of the root modules until `stop`; calls without gradients are evaluation."""

    def __init__(self, roots: list[torch.nn.Module], on_first: Callable[[], None]) -> None:
        self.calls: list[ModuleCall] = []
        self._on_first: Callable[[], None] | None = on_first
        self._open: dict[int, ModuleCall] = {}
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
        self._open[id(module)] = ModuleCall(id(module), list(tensors_in((args, kwargs))))
        if self._on_first is not None:
            self._on_first()
            self._on_first = None

    def _after(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        call = self._open.pop(id(module), None)
        if call is not None:
            call.returned(list(tensors_in(output)))
            self.calls.append(call)


def batch_dimension(call: ModuleCall, roots: list[torch.nn.Module], loader_batch: int | None) -> int:
    """Which dimension of the first input counts samples."""
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
