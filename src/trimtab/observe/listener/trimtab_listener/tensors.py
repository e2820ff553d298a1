"""Finding tensors in nested arguments and weighing them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch


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
