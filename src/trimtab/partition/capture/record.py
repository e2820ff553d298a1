"""Records what each part of a model computes, reads, and keeps for the backward pass.

PyTorch's own operators run on the meta device, where tensors have shapes only, and autograd's hooks show the
tensors that it would keep.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

from trimtab.partition.capture.draft import Held, NodeWork

_EXACT = {
    "conv": ("convolution", "_convolution", "mkldnn_convolution", "cudnn_convolution"),
    "matmul": ("mm", "addmm", "bmm", "baddbmm", "addbmm", "addmv", "mv", "dot", "_scaled_mm", "_grouped_mm"),
    "copy": ("clone", "copy_", "_to_copy", "cat", "stack", "contiguous"),
    "elementwise": ("native_dropout",),
}
_KIND = {name: kind for kind, names in _EXACT.items() for name in names}
# Pools come before the indices that some of them return: "max_pool2d_with_indices" is no lookup.
_CONTAINS = (
    ("pool", "pool"),
    ("_norm", "norm"),
    ("embedding", "embedding"),
    ("attention", "attention"),
    ("softmax", "softmax"),
    ("index", "embedding"),
    ("gather", "embedding"),
    ("scatter", "embedding"),
    ("rnn", "rnn"),
    ("lstm", "rnn"),
    ("gru", "rnn"),
)
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
"""Operators that a device runs as one kernel although PyTorch decomposes them into steps."""


def kind_of(operator: Any) -> str:
    """One of the kinds of a graph's nodes."""
    name = operator.overloadpacket.__name__
    if name in _KIND:
        return _KIND[name]
    return next((kind for part, kind in _CONTAINS if part in name), "elementwise")


# PyTorch's registry lacks the CPU's fused attention.
_ATTENTION_FLOP: Any = sdpa_flop_count
_FORMULAS: dict[Any, Any] = {
    **flop_registry,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: lambda query, key, value, *_, **__: (
        _ATTENTION_FLOP(query.shape, key.shape, value.shape)
    ),
}


class OperatorRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Attributes every operator to `part`, the running part of the model, which the caller sets."""

    def __init__(self, held: Mapping[int, Held]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.held = held
        self.part: Any = None
        self.works: dict[Any, NodeWork] = {}
        self.maker: dict[int, Any] = {}
        self._kept: dict[int, float] = {}
        self._alive: list[Any] = []
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._keep, lambda nothing: nothing)

    def __enter__(self) -> "OperatorRecorder":
        self._hooks.__enter__()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._hooks.__exit__(*error)

    def saved(self) -> dict[Any, float]:
        """Bytes kept for the backward pass, without weights, by the part that made each tensor."""
        total: dict[Any, float] = {}
        for key, size in self._kept.items():
            part = self.maker.get(key)
            total[part] = total.get(part, 0.0) + size
        return total

    def made(self, part: Any, value: Any) -> None:
        """Attribute the tensors in `value` to `part`, unless an earlier part made them."""
        for tensor in tensors_in(value):
            key = key_of(tensor)
            if key not in self.held and key not in self.maker:
                self._alive.append(tensor.untyped_storage())  # an address must not be given out twice
                self.maker[key] = part

    def place(self, operands: list[torch.Tensor], results: list[torch.Tensor], mutates: bool) -> Any:
        """The part that an operator is attributed to."""
        return self.part

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        operands, results = list(tensors_in((args, kwargs))), list(tensors_in(result))
        read = {key_of(tensor) for tensor in operands}
        mutates = bool(func._schema.is_mutable)
        part = self.place(operands, results, mutates)
        work = self.works.setdefault(part, NodeWork())
        work.held |= read & self.held.keys()
        self.made(part, result)
        if mutates or not all(key_of(tensor) in read for tensor in results):
            moved = [t for t in (*operands, *results) if key_of(t) not in self.held]
            formula = _FORMULAS.get(func.overloadpacket)
            flop = 0.0 if formula is None else float(formula(*args, **kwargs, out_val=result))
            work.add(kind_of(func), flop, sum(bytes_of(tensor) for tensor in moved))
        return result

    def _keep(self, tensor: torch.Tensor) -> None:
        key = key_of(tensor)
        if key not in self.held:
            self.made(self.part, tensor)
            self._kept[key] = max(self._kept.get(key, 0.0), storage_bytes(tensor))


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor in nested lists, tuples and dictionaries."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from tensors_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from tensors_in(inner)


def key_of(tensor: torch.Tensor) -> int:
    """Identity of the storage that a tensor and its views share."""
    return int(tensor.untyped_storage()._cdata)


def _number(tensor: torch.Tensor) -> int:
    return 4 if tensor.is_floating_point() else tensor.element_size()


def storage_bytes(tensor: torch.Tensor) -> float:
    """Bytes of a tensor's storage; floating-point numbers count as four."""
    return tensor.untyped_storage().nbytes() / tensor.element_size() * _number(tensor)


def bytes_of(tensor: torch.Tensor) -> float:
    """Bytes of a tensor; floating-point numbers count as four, expanded elements once."""
    return min(float(tensor.numel() * _number(tensor)), storage_bytes(tensor))


def held_by(model: torch.nn.Module) -> dict[int, Held]:
    """The weights and buffers of a model by storage key."""
    held: dict[int, Held] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        held.setdefault(key_of(tensor), held_as(tensor))
    return held


def held_as(tensor: torch.Tensor) -> Held:
    """The facts of one weight or buffer."""
    trained = isinstance(tensor, torch.nn.Parameter) and tensor.requires_grad
    return Held(tensor.numel(), float(tensor.numel() * _number(tensor)), trained)


_ATTENTION = (functional.scaled_dot_product_attention, torch.ops.aten.scaled_dot_product_attention.default)
_DROPOUT = (functional.dropout, torch.dropout, torch.ops.aten.dropout.default)


class StandIns(TorchFunctionMode):
    """Replaces attention by its fused form, which keeps no scores, and dropout by one with a byte mask."""

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
