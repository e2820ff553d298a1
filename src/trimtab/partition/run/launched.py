"""Training with a plan in processes that torchrun has started, one per device, on one machine or many."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from trimtab.core import BadInputError
from trimtab.partition.plan_file import PlanDocument, read_plan
from trimtab.partition.run.prepared import prepare
from trimtab.partition.run.ranks import RankPlace, by_machine, make_groups, places
from trimtab.partition.run.samples import Samples
from trimtab.partition.run.stage_module import TensorParts
from trimtab.partition.run.training import RATE, Trainer, train_step

_FORMATS = {"fp32": None, "tf32": None, "bf16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Training:
    """How to train: the builder, so many steps from a seed, at a rate, and where weights are kept."""

    target: str
    steps: int
    seed: int = 0
    rate: float = RATE
    save: Path | None = None


def train_launched(plan_file: Path, training: Training, say: Callable[[str], None] = print) -> list[float]:
    """Train as this process's part of the plan; the losses of all steps, which rank 0 also says.

    Each process builds the whole model from the same seed, and keeps its own stage of it. Weights are saved
    as `stage-N.pt` in the folder given, by the names that they have in the whole model.
    """
    document = read_plan(plan_file.read_text(), str(plan_file))
    if document.recipe.precision not in _FORMATS:
        raise BadInputError(
            f"{document.recipe.precision} cannot be trained with here; plan with {', '.join(_FORMATS)}"
        )
    device = _own_device()
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        return _train(document, training, device, say)
    finally:
        dist.destroy_process_group()


def _own_device() -> torch.device:
    """The GPU of this process's number on its machine where there is one, else the CPU."""
    local = int(os.environ["LOCAL_RANK"])
    if torch.cuda.device_count() < int(os.environ["LOCAL_WORLD_SIZE"]):
        return torch.device("cpu")
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


def _train(
    document: PlanDocument, training: Training, device: torch.device, say: Callable[[str], None]
) -> list[float]:
    plan, recipe = document.plan, document.recipe
    ranks = places(plan, by_machine(plan, document.devices))
    if dist.get_world_size() != len(ranks):
        raise BadInputError(
            f"the plan is for {len(ranks)} processes, but torchrun started {dist.get_world_size()}"
        )
    place = ranks[dist.get_rank()]
    if recipe.precision == "tf32":
        torch.set_float32_matmul_precision("high")
    prepared = prepare(training.target, document.operations, plan, training.seed, device.type, dropout=True)
    groups = make_groups(plan, ranks, place, prepared.ties)
    stage = prepared.stages[plan.shares[place.replica]][place.stage]
    stage.number_format = _FORMATS[recipe.precision]
    parts = TensorParts(groups.parts, device) if plan.tensor > 1 else None
    stage.load(prepared.state, device, parts)
    inputs, outputs, functions = prepared.inputs, prepared.outputs, prepared.functions
    del prepared
    trainer = Trainer(stage, plan, recipe, place, groups, device, training.rate)
    samples = Samples(inputs, training.seed, functions.batch)
    losses = []
    for number in range(training.steps):
        own = train_step(trainer, samples, functions.loss, outputs, number)
        losses.append(_total(own, plan.tensor, device))
        if place.rank == 0:
            say(f"step {number}: loss {losses[-1]:.6f}")
    if training.save is not None:
        _save(trainer, place, training.save)
    return losses


def _total(own: float, copies: int, device: torch.device) -> float:
    """The loss of a step from the parts of all processes, each of which `copies` of them have."""
    total = torch.tensor([own], device=device)
    dist.all_reduce(total)
    return float(total) / copies


def _save(trainer: Trainer, place: RankPlace, folder: Path) -> None:
    state = trainer.stage.whole_state()
    if place.replica == 0 and place.part == 0:
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(state, folder / f"stage-{place.stage}.pt")
