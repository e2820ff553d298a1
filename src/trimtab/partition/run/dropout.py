"""Training without dropout, so that two ways of computing the same can be compared."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

_DROPS = (
    nn.functional.dropout,
    nn.functional.dropout1d,
    nn.functional.dropout2d,
    nn.functional.dropout3d,
    nn.functional.alpha_dropout,
    nn.functional.feature_alpha_dropout,
    torch.dropout,
)


class WithoutDropout(TorchFunctionMode):
    """Nothing is dropped: functions that drop keep everything."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """The function as called, with a chance of zero where it drops."""
        named = dict(kwargs or {})
        if func in _DROPS:
            return args[0] if args else named["input"]
        if func is nn.functional.scaled_dot_product_attention:
            args = (*args[:4], 0.0, *args[5:]) if len(args) > 4 else args
            if "dropout_p" in named:
                named["dropout_p"] = 0.0
        return func(*args, **named)


def stop_dropout(model: nn.Module) -> None:
    """Set the chance of dropping to zero in every layer that has one."""
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        elif isinstance(module, nn.MultiheadAttention | nn.RNNBase):
            module.dropout = 0.0
