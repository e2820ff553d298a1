"""One operator call: its kind, its dimensions, its FLOP, and the bytes it reads and writes."""

from __future__ import annotations

import math
from typing import Any

import torch

from .model import tensors_in

_EXACT = {
    "conv": "convolution _convolution convolution_backward convolution_overrideable mkldnn_convolution"
    " cudnn_convolution",
    "matmul": "mm addmm bmm baddbmm addbmm addmv mv dot vdot _scaled_mm _int_mm _grouped_mm",
    "copy": "clone copy_ _to_copy cat stack contiguous transpose permute",
    "view": "_unsafe_view _reshape_alias _conj alias as_strided_ detach detach_ t unfold lift_fresh"
    " select_backward slice_backward empty empty_like empty_strided new_empty new_empty_strided set_"
    " _local_scalar_dense",
    "elementwise": "native_dropout native_dropout_backward",
    "reduction": "sum mean amax amin max min argmax argmin var var_mean std std_mean prod any all cumsum"
    " cumprod logsumexp norm linalg_vector_norm _foreach_norm topk sort nll_loss_forward nll_loss_backward"
    " nll_loss2d_forward nll_loss2d_backward mse_loss",
}
_CONTAINED = {
    "pool": "pool",  # before gather: max_pool2d_with_indices is no lookup
    "norm": "batch_norm layer_norm group_norm rms_norm",
    "scatter": "scatter index_add index_put index_copy index_reduce index_fill embedding_dense_backward",
    "embedding": "embedding",
    "gather": "gather index",
    "attention": "attention",
    "softmax": "softmax",
    "rnn": "rnn lstm gru",
}
_KIND = {name: kind for kind, names in _EXACT.items() for name in names.split()}
_CONTAINS = [(part, kind) for kind, parts in _CONTAINED.items() for part in parts.split()]
_SILENT = ("profiler", "c10d", "_c10d_functional", "prim", "prims")
_LOOKUPS = ("embedding", "gather")
# What the backward pass of attention costs: five products where the forward pass has two.
_ATTENTION_BACKWARD = 2.5


def kind_of(operator: Any) -> str | None:
    """The operator's kind; None for operators that compute nothing: markers, messages between workers."""
    if operator.namespace in _SILENT:
        return None
    name = operator.overloadpacket.__name__
    if name in _KIND:
        return _KIND[name]
    if getattr(operator, "is_view", False):
        return "view"
    return next((kind for part, kind in _CONTAINS if part in name), "elementwise")


def coarse_kind(kind: str) -> str:
    """The kind under which `Operators` sums up calls."""
    return {"reduction": "elementwise", "gather": "embedding", "scatter": "embedding"}.get(kind, kind)


def name_of(operator: Any) -> str:
    """The operator's name, with its namespace unless that is PyTorch's own."""
    name = str(operator.overloadpacket.__name__)
    return name if operator.namespace == "aten" else f"{operator.namespace}.{name}"


def dtype_of(tensors: list[torch.Tensor]) -> str:
    """Number format of the first floating-point tensor, else of the first one."""
    for tensor in tensors:
        if tensor.is_floating_point():
            return str(tensor.dtype).replace("torch.", "")
    return str(tensors[0].dtype).replace("torch.", "") if tensors else ""


def bytes_of(tensor: torch.Tensor) -> int:
    """Bytes of a tensor in its number format; a dimension that repeats one element counts once."""
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride()):  # noqa: B905 (Python 3.8)
        if stride or not size:
            count *= size
    return int(count) * tensor.element_size()


class CallFacts:
    """Dimensions, FLOP and traffic of one call. `read` and `written` are pairs of bytes and tensor.

    The tensor is None where the bytes are rows looked up in it: their number depends on the batch.
    `factors` are the two operands of a matrix product.
    """

    def __init__(self, operator: Any, kind: str, args: Any, kwargs: Any, result: Any) -> None:
        self.operands = list(tensors_in((args, kwargs)))
        self.results = list(tensors_in(result))
        self.sizes: dict[str, int] = {}
        self.flop = 0.0
        self.factors: tuple[torch.Tensor, torch.Tensor] | None = None
        name = operator.overloadpacket.__name__
        backward = "backward" in name
        if kind == "matmul":
            self._product(name, args)
        elif kind == "conv" and "convolution" in name and len(args) >= 9:
            self._convolution(args, backward)
        elif kind == "attention" and len(args) >= 3:
            self._attention(name, args, backward)
        elif kind == "rnn":
            self._recurrent(name, args, backward)
        if not self.sizes:
            self._elements(kind, args)
        self.read, self.written = self._traffic(operator, kind, args, kwargs)

    def _product(self, name: str, args: Any) -> None:
        a, b = args[1:3] if name.startswith(("add", "badd")) else args[:2]
        self.factors = (a, b)
        if name == "_grouped_mm":
            # Rows of `a` in groups, each with a matrix of its own; or, for the gradient, columns in groups.
            groups = b.shape[0] if b.dim() == 3 else a.shape[0] if a.dim() == 3 else self.results[0].shape[0]
            m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
            self.flop = 2.0 * m * k * n
            if a.dim() == 3:
                self.flop *= 1 if b.dim() == 2 else groups
            elif b.dim() == 2:
                k //= groups
            else:
                m //= groups
            self.sizes = {"batch": groups, "m": m, "n": n, "k": k}
            return
        batch = a.shape[0] if a.dim() == 3 else 1
        m = a.shape[-2] if a.dim() > 1 else 1
        n = b.shape[-1] if b.dim() > 1 else 1
        self.sizes = {"batch": batch, "m": m, "n": n, "k": a.shape[-1]}
        self.flop = 2.0 * math.prod(self.sizes.values())

    def _convolution(self, args: Any, backward: bool) -> None:
        if backward:
            output, source, weight, _, stride, _, _, transposed, _, groups, mask = args[:11]
        else:
            source, weight, _, stride, _, _, transposed, _, groups = args[:9]
            output, mask = self.results[0], (True, False, False)
        gradients = int(mask[0]) + int(mask[1])
        # Each input of a transposed convolution, each output of another, takes one filter per group.
        self.flop = 2.0 * gradients * (source if transposed else output).numel() * math.prod(weight.shape[1:])
        channels_last = source.dim() == 4 and source.is_contiguous(memory_format=torch.channels_last)
        self.sizes = {
            "batch": source.shape[0],
            "in_channels": source.shape[1],
            "out_channels": output.shape[1],
            "groups": groups,
            "in_pixels": math.prod(source.shape[2:]),
            "out_pixels": math.prod(output.shape[2:]),
            "kernel": math.prod(weight.shape[2:]),
            "stride": math.prod(stride),
            "dimensions": weight.dim() - 2,
            "transposed": int(transposed),
            "channels_last": int(channels_last and not source.is_contiguous()),
        }
        if backward:
            self.sizes["gradients"] = gradients

    def _attention(self, name: str, args: Any, backward: bool) -> None:
        query, key, value = (args[1:4] if backward else args[:3])[:3]
        if not all(isinstance(t, torch.Tensor) and t.dim() == 4 for t in (query, key, value)):
            return
        heads, length = (2, 1) if name.startswith(("_flash", "_efficient")) else (1, 2)
        batch, width, value_width = query.shape[0], query.shape[3], value.shape[3]
        queries, keys = query.shape[length], key.shape[length]
        self.sizes = {
            "batch": batch,
            "heads": query.shape[heads],
            "kv_heads": key.shape[heads],
            "queries": queries,
            "keys": keys,
            "width": width,
            "value_width": value_width,
        }
        self.flop = 2.0 * batch * query.shape[heads] * queries * keys * (width + value_width)
        self.flop *= _ATTENTION_BACKWARD if backward else 1.0

    def _recurrent(self, name: str, args: Any, backward: bool) -> None:
        """Layers that run as one operator; cells and gates alone are elementwise, their products apart."""
        if "rnn" not in name:
            return
        weights = args[1:5] if name.startswith("mkldnn") else args[1]
        matrices = [t for t in tensors_in(weights) if t.dim() == 2]
        source = args[0]
        if not matrices or source.dim() not in (2, 3):
            return
        # The recurrent matrix is gates·hidden × hidden.
        hidden = matrices[1].shape[1]
        sequences = source.shape[1] if source.dim() == 3 else 1
        self.sizes = {
            "batch": sequences,
            "length": source.numel() // max(1, source.shape[-1] * sequences),
            "input": source.shape[-1],
            "hidden": hidden,
            "gates": matrices[1].shape[0] // max(1, hidden),
            "weights": sum(t.numel() for t in matrices),
        }
        positions = source.numel() // max(1, source.shape[-1])
        self.flop = 2.0 * positions * self.sizes["weights"] * (2.0 if backward else 1.0)

    def _elements(self, kind: str, args: Any) -> None:
        tensors = self.operands + self.results
        if kind == "view" or not tensors:
            return
        if kind in (*_LOOKUPS, "scatter"):
            indices = [t for t in self.operands if not t.is_floating_point() and t.dtype != torch.bool]
            others = self.results if kind in _LOOKUPS else self.operands[1:] or self.operands
            self.sizes["rows"] = max((t.numel() for t in indices), default=0)
            self.sizes["elements"] = max((t.numel() for t in others), default=0)
            return
        if args and isinstance(args[0], (list, tuple)) and len(args[0]) > 1:
            self.sizes["tensors"] = len(args[0])
            self.sizes["elements"] = sum(t.numel() for t in tensors_in(args[0]))
            return
        self.sizes["elements"] = max(t.numel() for t in tensors)

    def _traffic(self, operator: Any, kind: str, args: Any, kwargs: Any) -> tuple[list[Any], list[Any]]:
        if kind == "view":
            return [], []
        written = {id(t): t for t in [*_mutated(operator, args, kwargs), *self.results]}.values()
        if kind in _LOOKUPS and self.operands and self.results:
            table, *indices = self.operands
            rows = min(bytes_of(table), bytes_of(self.results[0]))
            return [(rows, None), *_sized(indices)], _sized(written)
        name = operator.overloadpacket.__name__
        if kind == "scatter" and name.endswith("_") and len(self.operands) > 1:
            target, *others = self.operands
            rows = min(bytes_of(target), max(bytes_of(t) for t in others))
            return [(rows, None), *_sized(others)], [(rows, None)]
        fills = name in ("zero_", "fill_", "copy_", "normal_", "uniform_", "bernoulli_")
        return _sized(self.operands[1:] if fills else self.operands), _sized(written)


def _mutated(operator: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """Tensors that the call changes in place; operators on lists return nothing."""
    changed: list[torch.Tensor] = []
    for position, argument in enumerate(operator._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            changed.extend(tensors_in(value))
    return changed


def _sized(tensors: Any) -> list[Any]:
    return [(bytes_of(tensor), tensor) for tensor in tensors if not is_workspace(tensor)]


def is_workspace(tensor: torch.Tensor) -> bool:
    """Whether a tensor is scratch space of a library."""
    return tensor.dtype == torch.uint8 and tensor.dim() == 1
