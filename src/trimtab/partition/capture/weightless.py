"""Models and inputs without the memory of their numbers."""

import copy
import resource
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.overrides import TorchFunctionMode

LARGEST_REAL_MODEL = 8 * 2**30
"""Bytes that may be filled with real numbers where a model cannot be built or run without any."""
_FACTORIES = {
    torch.empty,
    torch.empty_strided,
    torch.full,
    torch.ones,
    torch.rand,
    torch.randint,
    torch.randn,
    torch.zeros,
}


class WeightsOnMeta(TorchFunctionMode):
    """What weights are made by takes no memory; ranges and lists of numbers, which builders read, do."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _FACTORIES and kwargs.get("device") is None:
            kwargs = {**kwargs, "device": "meta"}
        return func(*args, **kwargs)


@contextmanager
def limited_memory(size: int = LARGEST_REAL_MODEL) -> Iterator[None]:
    """Let this process take only `size` bytes more: what needs more fails, and the machine goes on."""
    import psutil

    before = resource.getrlimit(resource.RLIMIT_AS)
    wanted = psutil.Process().memory_info().vms + size
    allowed = [limit for limit in before if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([wanted, *allowed]), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def meta_copy(model: nn.Module) -> nn.Module:
    """The same model on the meta device; the original's numbers are not copied."""
    return _copy(model, as_meta)


def fake_copy(model: nn.Module, mode: FakeTensorMode) -> nn.Module:
    """The same model as if it were on the CPU, where code that names no device puts what it makes."""
    return _copy(model, lambda tensor: as_fake(tensor, mode))


def as_meta(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without its numbers, on the meta device."""
    bare = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta")
    return _parameter_like(tensor, bare)


def as_fake(tensor: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    """The tensor without its numbers, as if on the CPU."""
    with mode:
        bare = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu")
    return _parameter_like(tensor, bare)


def moved(value: Any, device: str) -> Any:
    """Nested inputs on a device; what has no values gets random ones (zeros where they count something)."""
    return changed(value, lambda tensor: _moved(tensor, device))


def changed(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Nested inputs with every tensor changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {name: changed(inner, change) for name, inner in value.items()}
    return tuple(changed(inner, change) for inner in value) if isinstance(value, list | tuple) else value


def _moved(tensor: torch.Tensor, device: str) -> torch.Tensor:
    if device == "meta":
        return as_meta(tensor.detach())
    if not tensor.is_meta:
        return tensor.detach().to(device)
    if tensor.is_floating_point():
        return torch.randn(tensor.shape, dtype=tensor.dtype, device=device)
    return torch.zeros(tensor.shape, dtype=tensor.dtype, device=device)


def _parameter_like(tensor: torch.Tensor, bare: torch.Tensor) -> torch.Tensor:
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(bare, requires_grad=tensor.requires_grad)
    return bare


def _copy(model: nn.Module, change: Callable[[torch.Tensor], torch.Tensor]) -> nn.Module:
    tensors = (*model.parameters(), *model.buffers())
    return copy.deepcopy(model, {id(tensor): change(tensor) for tensor in tensors})
