"""One process of a local run: its job, its training steps, its result."""

import os
import pickle
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from trimtab.partition.capture.builder import builder_source
from trimtab.partition.plan import Plan, Recipe
from trimtab.partition.run.ranks import RankPlace, Ties, make_groups, places
from trimtab.partition.run.samples import InputFacts, Outputs, Samples, user_functions
from trimtab.partition.run.stage_module import StageModule, TensorParts
from trimtab.partition.run.training import PeakMemory, StepTimes, Trainer, train_step


@dataclass(frozen=True, slots=True)
class RankJob:
    """Input of every process of a run. `cores[rank]` are the cores it is pinned to; empty for none."""

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
    """Report of a process: its part of every step's loss, times, peak memory, weights at the end."""

    place: RankPlace
    times: StepTimes
    peak: float
    losses: list[float] = field(default_factory=list)
    state: dict[str, Tensor] = field(default_factory=dict)


def stage_file(folder: Path, stage: int, share: int) -> Path:
    """Where the parent leaves a stage."""
    return folder / f"stage-{stage}-{share}.pickle"


def result_file(folder: Path, rank: int) -> Path:
    """Where a process leaves its result."""
    return folder / f"result-{rank}.pt"


def run_rank(folder: Path, rank: int) -> None:
    """Run one rank of the job that lies in a folder."""
    job: RankJob = pickle.loads((folder / "job.pickle").read_bytes())  # nosec B301 # ours, in a folder of ours
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
    stage: StageModule = pickle.loads(file.read_bytes())  # nosec B301 # ours, in a folder of ours
    parts = TensorParts(groups.parts, device) if job.plan.tensor > 1 else None
    stage.load(torch.load(folder / "state.pt", mmap=True, weights_only=True), device, parts)
    trainer = Trainer(stage, job.plan, job.recipe, place, groups, device)
    samples = Samples(job.inputs, job.seed, functions.batch)
    result = RankResult(place, trainer.times, 0.0)
    for number in range(job.steps):
        result.losses.append(train_step(trainer, samples, functions.loss, job.outputs, number))
    result.peak = peak.grown()
    result.state = stage.whole_state()
    return result
