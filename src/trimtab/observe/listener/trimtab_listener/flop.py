"""Arithmetic per operator: PyTorch's own formulas, and two it lacks. 2 FLOP per multiply-add."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import flop_counter

_forward: Any = flop_counter.sdpa_flop_count
_backward: Any = flop_counter.sdpa_backward_flop_count


def _attention(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> int:
    return int(_forward(query.shape, key.shape, value.shape))


def _attention_backward(gradient: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> int:
    return int(_backward(gradient.shape, query.shape, key.shape, value.shape))


# The CPU's fused attention is left out of PyTorch's own registry, but the work moves to any device.
_LACKING = {
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
}
_FORMULAS = dict(flop_counter.flop_registry)
for _name, _formula in _LACKING.items():
    if hasattr(torch.ops.aten, _name):
        _FORMULAS.setdefault(getattr(torch.ops.aten, _name), _formula)


def flop_of(operator: Any, args: Any, kwargs: Any, result: Any) -> int:
    """FLOP of one call; 0 for what is neither a matrix product nor a convolution."""
    formula = _FORMULAS.get(operator.overloadpacket)
    return 0 if formula is None else int(formula(*args, **kwargs, out_val=result))
