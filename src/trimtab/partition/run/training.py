"""One process's share of training: its stage in the pipeline, step after step."""

import time
from collections.abc import Callable, Sequence
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
from trimtab.partition.run.stage_module import StageModule, attribute, plain_tensors_are_equal


def now(device: torch.device) -> float:
    """Seconds on this machine's clock, once the device has finished its queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


class PeakMemory:
    """Bytes that a process's memory grew at its peak since this was made: of a GPU, or resident."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            return
        _CLEAR.write_text("5")
        self._before = _kilobytes("VmRSS")

    def grown(self) -> float:
        """Bytes at the peak so far, more than at the start."""
        if self._device.type == "cuda":
            return float(torch.cuda.max_memory_allocated(self._device))
        return max(0.0, (_kilobytes("VmHWM") - self._before) * 1024.0)


def _kilobytes(field: str) -> float:
    line = next(row for row in _STATUS.read_text().splitlines() if row.startswith(field + ":"))
    return float(line.split()[1])


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


Loss = Callable[[tuple[Tensor, ...], int], Tensor]
"""The loss of a micro-batch: what the last stage returned, and the micro-batch's number."""


@dataclass(slots=True)
class StepTimes:
    """When each step began and ended on this process's clock, and the seconds in which it computed."""

    began: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)
    forward: list[float] = field(default_factory=list)
    backward: list[float] = field(default_factory=list)


class TimedStage(PipelineStage):
    """A stage of the pipeline that adds up the seconds of its own forward and backward passes."""

    forward_seconds = 0.0
    backward_seconds = 0.0

    def forward_one_chunk(self, *arguments: Any, **named: Any) -> Any:
        """As the stage does, timed."""
        began = now(self.device)
        output = super().forward_one_chunk(*arguments, **named)
        self.forward_seconds += now(self.device) - began
        return output

    def backward_one_chunk(self, *arguments: Any, **named: Any) -> Any:
        """As the stage does, timed."""
        began = now(self.device)
        super().backward_one_chunk(*arguments, **named)
        self.backward_seconds += now(self.device) - began


class Trainer:
    """A stage with its optimizer, ready to take steps together with the other processes of the plan."""

    def __init__(
        self,
        stage: StageModule,
        plan: Plan,
        recipe: Recipe,
        place: RankPlace,
        groups: Groups,
        device: torch.device,
        rate: float = RATE,
    ) -> None:
        self.stage, self.plan, self.place, self.groups, self.device = stage, plan, place, groups, device
        self.times = StepTimes()
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
        self._schedule = self._made_schedule()

    def step(self, inputs: dict[str, Tensor], loss: Loss) -> float:
        """Train on the step's samples; this process's part of the loss, zero but in the last stage.

        `inputs` are those that the stage loads, for all micro-batches of its replica one after the other.
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
        self._synchronise()
        self.optimizer.step()
        self.times.ended.append(now(self.device))
        self.times.forward.append(self._timed.forward_seconds)
        self.times.backward.append(self._timed.backward_seconds)
        return float(sum(part.detach() for part in losses)) if losses else 0.0

    def _made_schedule(self) -> Any:
        """GPipe or 1F1B; with fewer micro-batches than stages torch has only GPipe."""
        few = self.plan.microbatches < len(self.plan.stages)
        kind = ScheduleGPipe if self.plan.schedule == "gpipe" or few else Schedule1F1B
        return kind(self._timed, self.plan.microbatches, loss_fn=self._weighed, scale_grads=False)

    def _weighed(self, outputs: tuple[Tensor, ...], number: Tensor) -> Tensor:
        """A micro-batch's loss as a part of the step's."""
        assert self._loss is not None
        return self._loss(outputs, int(number)) * (self.plan.shares[self.place.replica] / self.plan.batch)

    def _synchronise(self) -> None:
        trained = [p for p in self.stage.parameters() if p.requires_grad]
        if self.plan.replicas > 1 and self.plan.sharding != "full":
            add_up(trained, self.groups.replicas)
        add_up_ties(self.stage, self.groups.ties)


def train_step(
    trainer: Trainer, samples: Samples, loss: LossFunction, outputs: Outputs, number: int
) -> float:
    """One step on its samples; this process's part of the loss."""
    plan, replica, facts = trainer.plan, trainer.place.replica, trainer.stage.facts
    inputs, targets = on_device(samples.step(number, plan.batch), trainer.device)
    mine = samples.replica_inputs(inputs, plan, replica)
    trainer.stage.constants = {i: mine[i] for i in facts.constants}

    def of_microbatch(handed_on: tuple[Tensor, ...], microbatch: int) -> Tensor:
        wanted = samples.targets_of(targets, plan, replica, microbatch)
        return loss(outputs.rebuilt(handed_on), wanted)

    return trainer.step({f"input_{i}": mine[i] for i in facts.loaded}, of_microbatch)


def shard(stage: StageModule, group: Any, device: torch.device) -> None:
    """Keep only this replica's part of each weight, gradient and optimizer state (FSDP)."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    sharded = fully_shard(stage, mesh=DeviceMesh.from_group(group, device.type))
    sharded.set_gradient_divide_factor(1.0)
    sharded.set_force_sum_reduction_for_comms(True)
