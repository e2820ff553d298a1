"""Trains one process's stage of the pipeline, step by step."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from trimtab.partition.plan import Optimizer, Plan, Recipe
from trimtab.partition.run.ranks import Groups, RankPlace
from trimtab.partition.run.samples import LossFunction, Outputs, Samples, on_device
from trimtab.partition.run.stage_module import StageModule, TensorParts, attribute, plain_tensors_are_equal


def now(device: torch.device) -> float:
    """Seconds on this machine's clock, once the device has finished its queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


class PeakMemory:
    """Growth of a process's peak memory in bytes since construction: of a GPU, or resident."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            return
        _CLEAR.write_text("5")
        self._before = _kilobytes("VmRSS")

    def grown(self) -> float:
        """Bytes at the peak minus those at the start."""
        if self._device.type == "cuda":
            return float(torch.cuda.max_memory_allocated(self._device))
        return max(0.0, (_kilobytes("VmHWM") - self._before) * 1024.0)


def _kilobytes(field: str) -> float:
    line = next(row for row in _STATUS.read_text().splitlines() if row.startswith(field + ":"))
    return float(line.split()[1])


RATE = 1e-3
"""Default learning rate."""
ADAM_EPSILON = 1e-6
"""Keeps Adam from turning rounding errors of gradients into full steps."""

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


def add_up(parameters: Sequence[nn.Parameter], group: Any) -> None:
    """Replace each gradient by its sum over the group, all of them in one message."""
    gradients = [_gradient(parameter) for parameter in parameters]
    if not gradients:
        return
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    dist.all_reduce(flat, group=group)
    for gradient, total in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
        gradient.copy_(total.view_as(gradient))


def _gradient(parameter: nn.Parameter) -> Tensor:
    """This process's part of a weight's gradient; zeros if the weight has none."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    gradient = parameter.grad
    return gradient.to_local() if hasattr(gradient, "to_local") else gradient


Loss = Callable[[tuple[Tensor, ...], int], Tensor]
"""The loss of a micro-batch, given the last stage's outputs and the micro-batch's number."""


@dataclass(slots=True)
class StepTimes:
    """Start and end of each step on this process's clock, and its seconds of computation."""

    began: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)
    forward: list[float] = field(default_factory=list)
    backward: list[float] = field(default_factory=list)


class TimedStage(PipelineStage):
    """A pipeline stage that adds up the seconds of its forward and backward passes."""

    forward_seconds = 0.0
    backward_seconds = 0.0

    def forward_one_chunk(self, *arguments: Any, **named: Any) -> Any:

        began = now(self.device)
        output = super().forward_one_chunk(*arguments, **named)
        self.forward_seconds += now(self.device) - began
        return output

    def backward_one_chunk(self, *arguments: Any, **named: Any) -> Any:

        began = now(self.device)
        super().backward_one_chunk(*arguments, **named)
        self.backward_seconds += now(self.device) - began


class Trainer:
    """A stage with its optimizer; takes steps together with the other processes of the plan."""

    def __init__(
        self,
        stage: StageModule,
        state: Mapping[str, Tensor],
        plan: Plan,
        recipe: Recipe,
        place: RankPlace,
        groups: Groups,
        device: torch.device,
        rate: float = RATE,
    ) -> None:
        self.stage, self.plan, self.place, self.groups, self.device = stage, plan, place, groups, device
        self.times = StepTimes()
        stage.load(state, device, TensorParts(groups.parts, device) if plan.tensor > 1 else None)
        stage.recompute = plan.recompute
        if plan.sharding == "full" and plan.replicas > 1:
            shard(stage, groups.replicas, device)
        self.optimizer = optimizer_of(
            [p for p in stage.parameters() if p.requires_grad],
            recipe.optimizer,
            groups.replicas if plan.sharding == "optimizer" and plan.replicas > 1 else None,
            rate,
        )
        self._timed = TimedStage(
            stage,
            place.stage,
            len(plan.stages),
            device,
            input_args=tuple(t.example(stage.number_format) for t in stage.facts.received),
            output_args=tuple(t.example(stage.number_format) for t in stage.facts.handed_on),
            group=groups.pipeline,
        )
        self._timed.stage_index_to_group_rank = groups.stages
        self._loss: Loss | None = None
        few = plan.microbatches < len(plan.stages)  # then torch has only GPipe
        schedule: Any = ScheduleGPipe if plan.schedule == "gpipe" or few else Schedule1F1B
        self._schedule = schedule(
            self._timed, plan.microbatches, loss_fn=self._weighted_loss, scale_grads=False
        )

    def step(self, inputs: dict[str, Tensor], loss: Loss) -> float:
        """Train on the step's samples; returns this process's part of the loss (zero before the last stage).

        `inputs` are those that the stage loads, for all micro-batches of its replica in order.
        """
        self._loss = loss
        losses: list[Tensor] = []
        self.optimizer.zero_grad(set_to_none=True)
        self._timed.forward_seconds = self._timed.backward_seconds = 0.0
        dist.barrier()
        self.times.began.append(now(self.device))
        numbers = torch.arange(self.plan.microbatches)
        with plain_tensors_are_equal(self.stage.parts):
            self._schedule.step(target=numbers, losses=losses, return_outputs=False, **inputs)
        if self.plan.replicas > 1 and self.plan.sharding != "full":
            add_up([p for p in self.stage.parameters() if p.requires_grad], self.groups.replicas)
        for group, names in self.groups.ties:
            add_up([getattr(self.stage, attribute(name)) for name in names], group)
        self.optimizer.step()
        self.times.ended.append(now(self.device))
        self.times.forward.append(self._timed.forward_seconds)
        self.times.backward.append(self._timed.backward_seconds)
        return float(sum(part.detach() for part in losses)) if losses else 0.0

    def _weighted_loss(self, outputs: tuple[Tensor, ...], number: Tensor) -> Tensor:
        """A micro-batch's part of the step's loss."""
        assert self._loss is not None
        return self._loss(outputs, int(number)) * (self.plan.shares[self.place.replica] / self.plan.batch)


def train_step(
    trainer: Trainer, samples: Samples, loss: LossFunction, outputs: Outputs, number: int
) -> float:
    """Train one step; returns this process's part of the loss."""
    plan, replica, facts = trainer.plan, trainer.place.replica, trainer.stage.facts
    inputs, targets = on_device(samples.step(number, plan.batch), trainer.device)
    mine = samples.replica_inputs(inputs, plan, replica)
    trainer.stage.constants = {i: mine[i] for i in facts.constants}

    def microbatch_loss(handed_on: tuple[Tensor, ...], microbatch: int) -> Tensor:
        return loss(outputs.rebuilt(handed_on), samples.targets_of(targets, plan, replica, microbatch))

    return trainer.step({f"input_{i}": mine[i] for i in facts.loaded}, microbatch_loss)


def shard(stage: StageModule, group: Any, device: torch.device) -> None:
    """Keep only this replica's part of each weight, gradient and optimizer state (FSDP)."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    sharded = fully_shard(stage, mesh=DeviceMesh.from_group(group, device.type))
    sharded.set_gradient_divide_factor(1.0)
    sharded.set_force_sum_reduction_for_comms(True)
