"""Models and inputs without the memory of their numbers."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch._subclasses import FakeTensorMode


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
