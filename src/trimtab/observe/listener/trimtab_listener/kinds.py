"""Which kind of work an operator does, by its name. The kinds are those of Trimtab's operator facts."""

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
    "norm": (
        "native_batch_norm",
        "_native_batch_norm_legit",
        "_native_batch_norm_legit_no_training",
        "_batch_norm_with_update",
        "cudnn_batch_norm",
        "cudnn_batch_norm_backward",
        "native_batch_norm_backward",
        "batch_norm_backward",
        "native_layer_norm",
        "native_layer_norm_backward",
        "native_group_norm",
        "native_group_norm_backward",
        "_fused_rms_norm",
        "_fused_rms_norm_backward",
    ),
    "softmax": (
        "_softmax",
        "_softmax_backward_data",
        "_log_softmax",
        "_log_softmax_backward_data",
        "_safe_softmax",
    ),
    "copy": ("clone", "copy_", "_to_copy", "cat", "stack", "contiguous", "constant_pad_nd", "roll", "index"),
    "view": ("_unsafe_view", "_reshape_alias", "lift_fresh", "alias", "detach", "_conj", "unfold"),
}
_KIND = {name: kind for kind, names in _EXACT.items() for name in names}
_CONTAINS = (
    ("embedding", "embedding"),
    ("attention", "attention"),
    ("pool", "pool"),
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
    kind = _KIND.get(name)
    if kind is not None:
        return kind
    if getattr(operator, "is_view", False):
        return "view"
    for part, found in _CONTAINS:
        if part in name:
            return found
    return "elementwise"
