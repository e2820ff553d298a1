"""Trains with a plan on local processes, and proves that it computes what the whole model does."""

import os
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch

from trimtab.core import BadInputError, TrimtabError
from trimtab.partition.graph import Graph
from trimtab.partition.plan import Plan, Recipe
from trimtab.partition.run.folders import meeting_folder
from trimtab.partition.run.job import Job, Result, result_file, stage_file
from trimtab.partition.run.prepared import Prepared, prepare
from trimtab.partition.run.processes import run_processes, worker
from trimtab.partition.run.ranks import places
from trimtab.partition.run.reference import Reference, train_whole
from trimtab.partition.run.report import RankReport, RunReport, largest_difference
from trimtab.partition.run.room import check_room
from trimtab.partition.run.samples import Samples
from trimtab.partition.run.worker import cause


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How long and from which seed to run; `threads` of each process, 0 for what the cores allow."""

    steps: int = 5
    seed: int = 0
    timeout: float = 600.0
    threads: int = 0

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise BadInputError(f"a run of {self.steps} steps trains nothing; give at least 1")


def run_plan(
    target: str, graph: Graph, plan: Plan, recipe: Recipe, settings: RunSettings | None = None
) -> RunReport:
    """Train the model that `target` builds for a few steps as planned, and the whole of it alongside.

    The plan's nodes are those of `graph`. One local process stands for each device; they meet over gloo on
    loopback, or over NCCL where there is a GPU for each. Arithmetic is fp32 and nothing is dropped, so that
    both ways can be compared.
    """
    chosen = settings or RunSettings()
    if not recipe.training:
        raise BadInputError("--run trains; for inference export the plan as a device map instead")
    ranks = places(plan)
    check_room(graph, plan, recipe)
    cores = sorted(os.sched_getaffinity(0))
    threads = chosen.threads or max(1, len(cores) // len(ranks))
    on_gpu = torch.cuda.is_available() and torch.cuda.device_count() >= len(ranks)
    prepared = prepare(target, graph.names, plan, chosen.seed, "cuda" if on_gpu else "cpu", dropout=False)
    pinned = not on_gpu and len(ranks) * threads <= len(cores)
    job = Job(
        target=target,
        plan=plan,
        recipe=recipe,
        ties=prepared.ties,
        inputs=prepared.inputs,
        outputs=prepared.outputs,
        steps=chosen.steps,
        seed=chosen.seed,
        device="cuda" if on_gpu else "cpu",
        threads=threads,
        cores=tuple(tuple(cores[r * threads : (r + 1) * threads]) for r in range(len(ranks)))
        if pinned
        else (),
        timeout=chosen.timeout,
    )
    with meeting_folder() as folder:
        _lay_out(job, prepared, folder)
        whole = _whole(job, prepared)
        run_processes(
            len(ranks),
            lambda rank: worker("rank", folder, rank),
            folder,
            chosen.timeout,
            threads,
            lambda rank: f"stage {ranks[rank].stage} of replica {ranks[rank].replica} (rank {rank})",
        )
        # The ranks are processes of ours, and so is their folder.
        files = [result_file(folder, rank) for rank in range(len(ranks))]
        results = [torch.load(file, weights_only=False) for file in files]  # nosec B614 # see above
    return _report(job, whole, results, pinned)


def _lay_out(job: Job, prepared: Prepared, folder: Path) -> None:
    """Leave for the processes what they need: the job, their stages, the model's state."""
    (folder / "job.pickle").write_bytes(pickle.dumps(job))
    for share, stages in prepared.stages.items():
        for stage in stages:
            stage_file(folder, stage.facts.number, share).write_bytes(pickle.dumps(stage))
    torch.save({name: value.detach() for name, value in prepared.state.items()}, folder / "state.pt")


def _whole(job: Job, prepared: Prepared) -> Reference:
    samples = Samples(job.inputs, job.seed, prepared.functions.batch)
    before = torch.get_num_threads()
    torch.set_num_threads(job.threads)
    device = torch.device(job.device)
    try:
        with torch.backends.cudnn.flags(allow_tf32=False):
            return train_whole(
                prepared.model,
                prepared.call,
                samples,
                prepared.functions.loss,
                job.plan,
                job.recipe,
                job.steps,
                device,
            )
    except TrimtabError:
        raise
    except Exception as error:  # the user's model, batch() and loss() may raise anything
        raise BadInputError(f"a training step of {job.target} raises {cause(error)}") from error
    finally:
        torch.set_num_threads(before)


def _report(job: Job, whole: Reference, results: Sequence[Result], pinned: bool) -> RunReport:
    losses = tuple(sum(result.losses[n] for result in results) / job.plan.tensor for n in range(job.steps))
    steps = tuple(
        max(r.times.ended[n] for r in results) - min(r.times.began[n] for r in results)
        for n in range(job.steps)
    )
    return RunReport(
        losses=losses,
        whole_losses=whole.losses,
        difference=largest_difference(losses, whole.losses),
        weights=max(_state_difference(result, whole) for result in results),
        seconds=median(steps[1:] or steps),
        steps=steps,
        ranks=tuple(_rank_report(result, job.plan.microbatches) for result in results),
        whole_forward=whole.forward,
        whole_backward=whole.backward,
        threads=job.threads,
        pinned=pinned,
        notes=_notes(job, pinned),
    )


def _rank_report(result: Result, microbatches: int) -> RankReport:
    times = result.times
    return RankReport(
        result.place,
        median(times.forward[1:] or times.forward) / microbatches,
        median(times.backward[1:] or times.backward) / microbatches,
        result.peak,
    )


def _state_difference(result: Result, whole: Reference) -> float:
    """How far a process's weights and buffers are from the whole model's."""
    expected = {**whole.weights, **whole.buffers[result.place.replica]}
    differences = [
        float((value.double() - expected[name].double()).abs().max())
        for name, value in result.state.items()
        if name in expected and value.numel()
    ]
    return max(differences, default=0.0)


def _notes(job: Job, pinned: bool) -> tuple[str, ...]:
    notes = ["arithmetic is fp32 and dropout is off, so that the losses can be compared"]
    if job.recipe.precision != "fp32":
        notes.append(f"the plan's {job.recipe.precision} is not used here")
    if job.plan.schedule == "1f1b" and job.plan.microbatches < len(job.plan.stages):
        notes.append("with fewer micro-batches than stages, torch runs 1f1b as gpipe")
    if job.device == "cpu" and not pinned:
        notes.append("there are more processes than cores: times include waiting for one another")
    return tuple(notes)
