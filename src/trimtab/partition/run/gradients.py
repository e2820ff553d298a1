"""Gradients after a step's backward passes: added up over replicas, and over stages that share weights."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trimtab.partition.run.stage_module import StageModule, attribute


def add_up(parameters: Sequence[nn.Parameter], group: Any) -> None:
    """Replace each gradient by its sum over the group, all of them in one message."""
    gradients = [_gradient(parameter) for parameter in parameters]
    if not gradients:
        return
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    dist.all_reduce(flat, group=group)
    for gradient, total in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
        gradient.copy_(total.view_as(gradient))


def add_up_ties(stage: StageModule, ties: Sequence[tuple[Any, tuple[str, ...]]]) -> None:
    """Add up the gradients of weights that other stages hold too."""
    for group, names in ties:
        add_up([getattr(stage, attribute(name)) for name in names], group)


def _gradient(parameter: nn.Parameter) -> Tensor:
    """A weight's gradient where this process keeps it; zeros where nothing came back for it."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    gradient = parameter.grad
    return gradient.to_local() if hasattr(gradient, "to_local") else gradient
