"""Which kind of work an operator of PyTorch does, by its name."""

from typing import Any

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
"""Operators that a device runs as one although PyTorch can take them apart, step by step."""


def kind_of(operator: Any) -> str:
    """One of the kinds of a graph's nodes."""
    name = operator.overloadpacket.__name__
    if name in _KIND:
        return _KIND[name]
    return next((kind for part, kind in _CONTAINS if part in name), "elementwise")
