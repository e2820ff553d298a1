"""Which kind of work an operator does, by its name.

The kinds, and the borders between them, are those of the measurements that step times are predicted from. Two
borders are less than obvious: an exchange of dimensions counts as a copy, because one nearly always follows,
and cutting a piece out counts as a view in both directions.
"""

from __future__ import annotations

from typing import Any

_EXACT = {
    "conv": (
        "convolution",
        "_convolution",
        "convolution_backward",
        "mkldnn_convolution",
        "cudnn_convolution",
    ),
    "matmul": (
        "mm",
        "addmm",
        "bmm",
        "baddbmm",
        "addbmm",
        "addmv",
        "mv",
        "dot",
        "vdot",
        "_scaled_mm",
        "_int_mm",
    ),
    "copy": ("clone", "copy_", "_to_copy", "cat", "stack", "contiguous", "transpose", "permute"),
    "view": (
        "_unsafe_view",
        "_reshape_alias",
        "_conj",
        "alias",
        "as_strided_",
        "detach",
        "detach_",
        "select_backward",
        "slice_backward",
        "t",
        "unfold",
    ),
    "elementwise": ("lift_fresh", "native_dropout", "native_dropout_backward"),
}
_KIND = {name: kind for kind, names in _EXACT.items() for name in names}
_CONTAINS = (
    ("batch_norm", "norm"),
    ("layer_norm", "norm"),
    ("group_norm", "norm"),
    ("rms_norm", "norm"),
    ("embedding", "embedding"),
    ("index", "embedding"),
    ("gather", "embedding"),
    ("scatter", "embedding"),
    ("attention", "attention"),
    ("softmax", "softmax"),
    ("rnn", "rnn"),
    ("lstm", "rnn"),
    ("gru", "rnn"),
)
_SILENT = ("profiler", "c10d", "_c10d_functional", "prim", "prims")


def kind_of(operator: Any) -> str | None:
    """One of the kinds, or None for what computes nothing: markers, and messages between workers."""
    if operator.namespace in _SILENT:
        return None
    name = operator.overloadpacket.__name__
    if name in _KIND:
        return _KIND[name]
    if getattr(operator, "is_view", False):
        return "view"
    # Pools come before the indices that some of them return: "max_pool2d_with_indices" is no lookup.
    if "pool" in name:
        return "pool"
    return next((kind for part, kind in _CONTAINS if part in name), "elementwise")
