"""The optimizers that a recipe can name, whole or with their state spread over replicas."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from trimtab.partition.plan import Optimizer

RATE = 1e-3
"""Learning rate where none is given."""
ADAM_EPSILON = 1e-6
"""Keeps Adam from turning gradients that are only rounding errors into whole steps."""

_KINDS: dict[Optimizer, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {}),
    "momentum": (torch.optim.SGD, {"momentum": 0.9}),
    "adam": (torch.optim.Adam, {"eps": ADAM_EPSILON}),
}


def optimizer_of(
    parameters: Sequence[nn.Parameter],
    name: Optimizer,
    spread_over: Any | None = None,
    rate: float = RATE,
) -> torch.optim.Optimizer:
    """The recipe's optimizer; with a group of processes, each keeps a part of its state (ZeRO 1)."""
    kind, special = _KINDS[name]
    settings = {**special, "lr": rate}
    if not parameters:
        return kind([nn.Parameter(torch.zeros(1))], **settings)
    if spread_over is None:
        return kind(parameters, **settings)
    from torch.distributed.optim import ZeroRedundancyOptimizer

    return ZeroRedundancyOptimizer(parameters, kind, process_group=spread_over, **settings)
