"""One process of training with a plan: a rank of a local run, or a process that torchrun started."""

import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from trimtab.core import BadInputError
from trimtab.partition.capture.builder import builder_source
from trimtab.partition.plan import Plan, Recipe
from trimtab.partition.plan_file import PlanDocument, read_plan
from trimtab.partition.run.prepared import prepare
from trimtab.partition.run.ranks import RankPlace, Ties, by_machine, make_groups, places
from trimtab.partition.run.samples import InputFacts, Outputs, Samples, user_functions
from trimtab.partition.run.stage_module import StageModule
from trimtab.partition.run.training import RATE, PeakMemory, StepTimes, Trainer, train_step


@dataclass(frozen=True, slots=True)
class RankJob:
    """Input of every process of a run; rank r is pinned to `cores[r]`, if there are any."""

    target: str
    plan: Plan
    recipe: Recipe
    ties: Ties
    inputs: tuple[InputFacts, ...]
    outputs: Outputs
    steps: int
    seed: int
    device: str
    threads: int
    cores: tuple[tuple[int, ...], ...]
    timeout: float


@dataclass(slots=True)
class RankResult:
    """A process's part of every step's loss, times, peak memory, final weights."""

    place: RankPlace
    times: StepTimes
    peak: float
    losses: list[float] = field(default_factory=list)
    state: dict[str, Tensor] = field(default_factory=dict)


def stage_file(folder: Path, stage: int, share: int) -> Path:

    return folder / f"stage-{stage}-{share}.pickle"


def result_file(folder: Path, rank: int) -> Path:

    return folder / f"result-{rank}.pt"


def run_rank(folder: Path, rank: int) -> None:
    """Run one rank of the job in a folder."""
    job: RankJob = pickle.loads((folder / "job.pickle").read_bytes())  # nosec B301 # a private folder
    if job.cores:
        os.sched_setaffinity(0, job.cores[rank])
    torch.set_num_threads(job.threads)
    device = torch.device("cuda", rank) if job.device == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.backends.cudnn.allow_tf32 = False
    place = places(job.plan)[rank]
    dist.init_process_group(
        "nccl" if job.device == "cuda" else "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=len(places(job.plan)),
        timeout=timedelta(seconds=job.timeout),
    )
    try:
        torch.save(_train(job, folder, place, device), result_file(folder, rank))
        dist.barrier()
    finally:
        dist.destroy_process_group()


def _train(job: RankJob, folder: Path, place: RankPlace, device: torch.device) -> RankResult:
    functions = user_functions(builder_source(job.target))  # first: the stage may consist of its classes
    groups = make_groups(job.plan, places(job.plan), place, job.ties)
    peak = PeakMemory(device)
    share = job.plan.shares[place.replica]
    file = stage_file(folder, place.stage, share)
    stage: StageModule = pickle.loads(file.read_bytes())  # nosec B301 # a private folder
    state = torch.load(folder / "state.pt", mmap=True, weights_only=True)
    trainer = Trainer(stage, state, job.plan, job.recipe, place, groups, device)
    samples = Samples(job.inputs, job.seed, functions.batch)
    result = RankResult(place, trainer.times, 0.0)
    for number in range(job.steps):
        result.losses.append(train_step(trainer, samples, functions.loss, job.outputs, number))
    result.peak = peak.grown()
    result.state = stage.whole_state()
    return result


_FORMATS = {"fp32": None, "tf32": None, "bf16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Training:
    """Builder, number of steps, seed, learning rate, and the folder for the trained weights."""

    target: str
    steps: int
    seed: int = 0
    rate: float = RATE
    save: Path | None = None


def train_launched(plan_file: Path, training: Training, say: Callable[[str], None] = print) -> list[float]:
    """Train this process's part of the plan; returns the losses of all steps, which rank 0 also prints.

    Each process builds the whole model from the same seed, and keeps its own stage of it. Weights are saved
    as `stage-N.pt` in the given folder, by their names in the whole model.
    """
    document = read_plan(plan_file.read_text(), str(plan_file))
    if document.recipe.precision not in _FORMATS:
        raise BadInputError(
            f"{document.recipe.precision} cannot be trained with here; plan with {', '.join(_FORMATS)}"
        )
    device = torch.device("cpu")
    if torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"]):
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        return _train_launched(document, training, device, say)
    finally:
        dist.destroy_process_group()


def _train_launched(
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
    trainer = Trainer(stage, prepared.state, plan, recipe, place, groups, device, training.rate)
    inputs, outputs, functions = prepared.inputs, prepared.outputs, prepared.functions
    del prepared  # frees the other stages
    samples = Samples(inputs, training.seed, functions.batch)
    losses = []
    for number in range(training.steps):
        own = train_step(trainer, samples, functions.loss, outputs, number)
        total = torch.tensor([own], device=device)
        dist.all_reduce(total)
        losses.append(float(total) / plan.tensor)  # every part of a product has the same loss
        if place.rank == 0:
            say(f"step {number}: loss {losses[-1]:.6f}")
    if training.save is not None:
        state = trainer.stage.whole_state()
        if place.replica == 0 and place.part == 0:
            training.save.mkdir(parents=True, exist_ok=True)
            torch.save(state, training.save / f"stage-{place.stage}.pt")
    return losses
