"""What one process of a local run does."""

import os
import pickle
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from trimtab.partition.capture import builder_source
from trimtab.partition.run.groups import make_groups
from trimtab.partition.run.job import Job, Result, result_file, stage_file
from trimtab.partition.run.memory import PeakMemory
from trimtab.partition.run.ranks import Place, places
from trimtab.partition.run.samples import Samples
from trimtab.partition.run.stage_module import StageModule
from trimtab.partition.run.tensor_parts import TensorParts
from trimtab.partition.run.training import Trainer, train_step
from trimtab.partition.run.user_file import user_functions


def run_rank(folder: Path, rank: int) -> None:
    """Run one rank of the job that lies in a folder."""
    job: Job = pickle.loads((folder / "job.pickle").read_bytes())  # nosec B301 # ours, in a folder of ours
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


def _train(job: Job, folder: Path, place: Place, device: torch.device) -> Result:
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
    result = Result(place, trainer.times, 0.0)
    for number in range(job.steps):
        result.losses.append(train_step(trainer, samples, functions.loss, job.outputs, number))
    result.peak = peak.grown()
    result.state = stage.whole_state()
    return result
