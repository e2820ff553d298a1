"""Operators that the meta device takes apart as no accelerator does, replaced by what those run."""

from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_ATTENTION = (functional.scaled_dot_product_attention, torch.ops.aten.scaled_dot_product_attention.default)
_DROPOUT = (functional.dropout, torch.dropout, torch.ops.aten.dropout.default)


class StandIns(TorchFunctionMode):
    """Fused attention keeps its inputs and its result, not the scores; dropout keeps a mask of bytes."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _ATTENTION:
            return _attention(*args, **kwargs)
        if func in _DROPOUT:
            return _dropout(*args, **kwargs)
        return func(*args, **kwargs)


def _attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    if enable_gqa:
        repeats = query.shape[-3] // key.shape[-3]
        shape = (*key.shape[:-3], key.shape[-3], repeats, *key.shape[-2:])
        key, value = (t.unsqueeze(-3).expand(shape).flatten(-4, -3) for t in (key, value))
    if query.dim() == 3:
        mixed = _attention(query[None], key[None], value[None], attn_mask, dropout_p, is_causal, scale)
        return mixed[0]
    if attn_mask is not None:
        attn_mask = attn_mask.expand(*query.shape[:-1], key.shape[-2])
    fused = torch.ops.aten._scaled_dot_product_efficient_attention.default
    return fused(query, key, value, attn_mask, True, dropout_p, is_causal, scale=scale)[0]


def _dropout(
    input: Any, p: float = 0.5, training: bool = True, inplace: bool = False, train: bool | None = None
) -> Any:
    if not (training if train is None else train) or p == 0.0:
        return input
    return torch.native_dropout(input, p, True)[0]
