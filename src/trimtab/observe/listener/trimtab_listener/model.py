"""Which modules an optimizer trains, and the facts about them that need no run."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Any

import torch

from .tensors import tensors_in, weight_of

_WRAPPED_IN = ("module", "_orig_mod")  # DistributedDataParallel, DataParallel; torch.compile


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
