"""Trains with a plan in local processes, and compares losses and weights with the undivided model's."""

import os
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from trimtab.core import BadInputError, TrimtabError, format_bytes
from trimtab.partition.graph import Graph
from trimtab.partition.plan import STATE_NUMBERS, Plan, Recipe
from trimtab.partition.run.prepared import PreparedModel, WithoutDropout, prepare
from trimtab.partition.run.processes import cause, meeting_folder, run_processes, worker
from trimtab.partition.run.rank_process import RankJob, RankResult, result_file, stage_file
from trimtab.partition.run.ranks import RankPlace, places
from trimtab.partition.run.samples import LossFunction, Samples, on_device
from trimtab.partition.run.training import now, optimizer_of

PROCESS = 400e6
"""Bytes of a process that has loaded PyTorch."""
TOLERANCE = 1e-5
"""Largest difference of a loss from the whole model's, relative to the larger of 1 and the loss."""
WEIGHT_TOLERANCE = 1e-4
"""Largest difference of any weight from the whole model's after the run."""


@dataclass(frozen=True, slots=True)
class RankReport:
    """One process: median seconds of a micro-batch's forward and backward pass, growth of memory in bytes."""

    place: RankPlace
    forward: float
    backward: float
    memory: float


@dataclass(frozen=True, slots=True)
class RunReport:
    """Losses of a run and of the whole model, their differences, and measurements.

    `seconds` is the median of the steps after the first; `steps` holds all of them. `whole_forward` and
    `whole_backward` are seconds of the whole model for the first replica's share of a micro-batch, in one
    process with as many threads. `weights` is the largest difference of any weight or buffer after the run.
    """

    losses: tuple[float, ...]
    whole_losses: tuple[float, ...]
    difference: float
    weights: float
    seconds: float
    steps: tuple[float, ...]
    ranks: tuple[RankReport, ...]
    whole_forward: float
    whole_backward: float
    threads: int
    pinned: bool
    notes: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Whether losses and weights equal the whole model's within the tolerances."""
        return self.difference <= TOLERANCE and self.weights <= WEIGHT_TOLERANCE


@dataclass(frozen=True, slots=True)
class Reference:
    """The whole model's losses per step, final weights, final buffers of each replica, and times.

    `forward` and `backward` are median seconds of the first replica's micro-batches after the first.
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
    """Train the whole model on the plan's micro-batches, replica by replica, with gradients added up.

    `call` turns the inputs into the model's arguments. Every replica has its own buffers, as in a run.
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
                expected = samples.targets_of(targets, plan, replica, microbatch)
                began = now(device)
                with WithoutDropout():
                    outputs = functional_call(model, buffers[replica], arguments, named)
                part = loss(outputs, expected) * (plan.shares[replica] / plan.batch)
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


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Length and seed of a run; `threads` of each process, 0 for an equal share of the cores."""

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
    """Train the model that `target` builds for a few steps as planned, and undivided for comparison.

    One local process stands for each device; they communicate over gloo on loopback, or over NCCL where
    there is a GPU for each. Arithmetic is fp32 and dropout is off, so that both can be compared. Refuses a
    run whose weights and processes alone exceed this machine's free memory.
    """
    import psutil

    chosen = settings or RunSettings()
    if not recipe.training:
        raise BadInputError("--run trains; for inference export the plan as a device map instead")
    ranks = places(plan)
    free = float(psutil.virtual_memory().available)
    # Each weight with its gradient and optimizer state in fp32: once undivided, and once per replica.
    numbers = graph.total_parameters * (2 + STATE_NUMBERS[recipe.optimizer])
    needed = 4.0 * numbers * (1 + plan.replicas) + PROCESS * len(ranks)
    if needed > free:
        raise BadInputError(
            f"running {graph.name} in {len(ranks)} processes here takes at least {format_bytes(needed)}, "
            f"but {format_bytes(free)} are free; export the plan with --torchrun and run it where it fits"
        )
    cores = sorted(os.sched_getaffinity(0))
    threads = chosen.threads or max(1, len(cores) // len(ranks))
    on_gpu = torch.cuda.is_available() and torch.cuda.device_count() >= len(ranks)
    prepared = prepare(target, graph.names, plan, chosen.seed, "cuda" if on_gpu else "cpu", dropout=False)
    pinned = not on_gpu and len(ranks) * threads <= len(cores)
    job = RankJob(
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
        (folder / "job.pickle").write_bytes(pickle.dumps(job))
        for share, stages in prepared.stages.items():
            for stage in stages:
                stage_file(folder, stage.facts.number, share).write_bytes(pickle.dumps(stage))
        torch.save({name: value.detach() for name, value in prepared.state.items()}, folder / "state.pt")
        whole = _whole(job, prepared)
        run_processes(
            len(ranks),
            lambda rank: worker("rank", folder, rank),
            folder,
            chosen.timeout,
            threads,
            lambda rank: f"stage {ranks[rank].stage} of replica {ranks[rank].replica} (rank {rank})",
        )
        # The ranks are child processes of this one, and their folder is private to it.
        files = [result_file(folder, rank) for rank in range(len(ranks))]
        results = [torch.load(file, weights_only=False) for file in files]  # nosec B614 # see above
    return _report(job, whole, results, pinned)


def _whole(job: RankJob, prepared: PreparedModel) -> Reference:
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


def _report(job: RankJob, whole: Reference, results: Sequence[RankResult], pinned: bool) -> RunReport:
    microbatches = job.plan.microbatches
    losses = tuple(sum(result.losses[n] for result in results) / job.plan.tensor for n in range(job.steps))
    steps = tuple(
        max(r.times.ended[n] for r in results) - min(r.times.began[n] for r in results)
        for n in range(job.steps)
    )
    return RunReport(
        losses=losses,
        whole_losses=whole.losses,
        difference=max(abs(a - b) / max(1.0, abs(b)) for a, b in zip(losses, whole.losses, strict=True)),
        weights=max(_state_difference(result, whole) for result in results),
        seconds=median(steps[1:] or steps),
        steps=steps,
        ranks=tuple(
            RankReport(
                result.place,
                median(result.times.forward[1:] or result.times.forward) / microbatches,
                median(result.times.backward[1:] or result.times.backward) / microbatches,
                result.peak,
            )
            for result in results
        ),
        whole_forward=whole.forward,
        whole_backward=whole.backward,
        threads=job.threads,
        pinned=pinned,
        notes=_notes(job, pinned),
    )


def _state_difference(result: RankResult, whole: Reference) -> float:
    """Largest difference of a process's weights and buffers from the whole model's."""
    expected = {**whole.weights, **whole.buffers[result.place.replica]}
    differences = [
        float((value.double() - expected[name].double()).abs().max())
        for name, value in result.state.items()
        if name in expected and value.numel()
    ]
    return max(differences, default=0.0)


def _notes(job: RankJob, pinned: bool) -> tuple[str, ...]:
    notes = ["arithmetic is fp32 and dropout is off, so that the losses can be compared"]
    if job.recipe.precision != "fp32":
        notes.append(f"the plan's {job.recipe.precision} is not used here")
    if job.plan.schedule == "1f1b" and job.plan.microbatches < len(job.plan.stages):
        notes.append("with fewer micro-batches than stages, torch runs 1f1b as gpipe")
    if job.device == "cpu" and not pinned:
        notes.append("there are more processes than cores, so times include waiting for a core")
    return tuple(notes)
