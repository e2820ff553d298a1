"""The same training steps on the whole model in one process: what a run's losses must equal."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from trimtab.partition.plan import Plan, Recipe
from trimtab.partition.run.clock import now
from trimtab.partition.run.dropout import WithoutDropout
from trimtab.partition.run.optimizers import optimizer_of
from trimtab.partition.run.samples import LossFunction, Samples, on_device


@dataclass(frozen=True, slots=True)
class Reference:
    """Losses per step; weights after them; buffers of each replica; seconds of one replica's micro-batch.

    `forward` and `backward` are medians over the pieces that the first replica computes, warm-up left out.
    """

    losses: tuple[float, ...]
    weights: dict[str, Tensor]
    buffers: tuple[dict[str, Tensor], ...]
    forward: float
    backward: float


def train_whole(
    model: nn.Module,
    call: Callable[[Sequence[Tensor]], tuple[tuple[Any, ...], dict[str, Any]]],
    samples: Samples,
    loss: LossFunction,
    plan: Plan,
    recipe: Recipe,
    steps: int,
    device: torch.device,
) -> Reference:
    """Train the whole model on the plan's micro-batches, replica by replica, gradients added up.

    `call` turns the inputs into the model's arguments. Every replica has buffers of its own, as in a run.
    """
    model.to(device)
    optimizer = optimizer_of([p for p in model.parameters() if p.requires_grad], recipe.optimizer)
    buffers = tuple(
        {name: value.clone() for name, value in model.named_buffers()} for _ in range(plan.replicas)
    )
    losses: list[float] = []
    seconds: list[tuple[float, float]] = []
    for number in range(steps):
        inputs, targets = on_device(samples.step(number, plan.batch), device)
        optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for microbatch in range(plan.microbatches):
            for replica in range(plan.replicas):
                arguments, named = call(samples.inputs_of(inputs, plan, replica, microbatch))
                wanted = samples.targets_of(targets, plan, replica, microbatch)
                began = now(device)
                with WithoutDropout():
                    outputs = functional_call(model, buffers[replica], arguments, named)
                part = loss(outputs, wanted) * (plan.shares[replica] / plan.batch)
                halfway = now(device)
                torch.autograd.backward(part)
                if replica == 0:
                    seconds.append((halfway - began, now(device) - halfway))
                total += float(part.detach())
        optimizer.step()
        losses.append(total)
    timed = torch.tensor(seconds[1:] or seconds).median(dim=0).values
    return Reference(
        losses=tuple(losses),
        weights={
            name: value.detach().cpu() for name, value in model.named_parameters(remove_duplicate=False)
        },
        buffers=tuple({name: value.cpu() for name, value in row.items()} for row in buffers),
        forward=float(timed[0]),
        backward=float(timed[1]),
    )
