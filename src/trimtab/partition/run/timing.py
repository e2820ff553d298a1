"""Seconds and bytes of each stage of a plan alone, on this machine's GPU or CPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

from trimtab.partition.graph import Graph
from trimtab.partition.plan import Plan, Recipe
from trimtab.partition.run.clock import now
from trimtab.partition.run.memory import PeakMemory
from trimtab.partition.run.optimizers import optimizer_of
from trimtab.partition.run.prepared import prepare
from trimtab.partition.run.samples import Samples, on_device
from trimtab.partition.run.stage_module import StageModule, TensorFacts

_FORMATS = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, slots=True)
class StageTime:
    """Median seconds of one micro-batch of the first replica, and bytes at the peak of a step of one."""

    forward: float
    backward: float
    update: float
    memory: float


def time_stages(
    target: str, graph: Graph, plan: Plan, recipe: Recipe, rounds: int = 10, device: str = ""
) -> tuple[StageTime, ...]:
    """Time every stage by itself, on made-up tensors, on a GPU where there is one (or on `device`).

    The memory is that of weights, gradients, optimizer state and one micro-batch in flight.
    """
    chosen = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    prepared = prepare(target, graph.names, plan, 0, chosen.type, dropout=True)
    samples = Samples(prepared.inputs, 0)
    share = plan.shares[0]
    inputs, _ = on_device(samples.step(0, share), chosen)
    times = []
    with _products(recipe.precision):
        for stage in prepared.stages[share]:
            peak = PeakMemory(chosen)
            stage.load(prepared.state, chosen)
            stage.recompute = plan.recompute
            stage.number_format = _FORMATS.get(recipe.precision)
            stage.constants = {i: inputs[i] for i in stage.facts.constants}
            loaded = {f"input_{i}": inputs[i] for i in stage.facts.loaded}
            times.append(_timed(stage, loaded, recipe, rounds, chosen, peak))
            stage.to("meta")
    return tuple(times)


@contextmanager
def _products(precision: str) -> Iterator[None]:
    """Products of fp32 numbers in tf32 where that is asked for, and as before afterwards."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _timed(
    stage: StageModule,
    loaded: dict[str, Tensor],
    recipe: Recipe,
    rounds: int,
    device: torch.device,
    peak: PeakMemory,
) -> StageTime:
    received = [_made_up(facts, stage, device) for facts in stage.facts.received]
    trained = [weight for weight in stage.parameters() if weight.requires_grad]
    optimizer = optimizer_of(trained, recipe.optimizer)
    found: list[tuple[float, float, float]] = []
    for _ in range(rounds + 2):
        optimizer.zero_grad(set_to_none=True)
        for tensor in received:
            tensor.grad = None
        marks = [now(device)]
        with torch.set_grad_enabled(recipe.training):
            handed_on = stage(*received, **loaded)
        marks.append(now(device))
        if recipe.training:
            ends = [value for value in handed_on if value.requires_grad]
            torch.autograd.backward(ends, [torch.ones_like(value) for value in ends])
        marks.append(now(device))
        if recipe.training:
            optimizer.step()
        marks.append(now(device))
        found.append((marks[1] - marks[0], marks[2] - marks[1], marks[3] - marks[2]))
    forward, backward, update = (median(column) for column in zip(*found[2:], strict=True))
    if not recipe.training:
        backward = update = 0.0
    return StageTime(forward, backward, update, peak.grown())


def _made_up(facts: TensorFacts, stage: StageModule, device: torch.device) -> Tensor:
    """A tensor like one that arrives: small random numbers, or zeros where it holds whole ones."""
    if not facts.dtype.is_floating_point:
        return torch.zeros(facts.shape, dtype=facts.dtype, device=device)
    dtype = stage.number_format or facts.dtype
    return torch.randn(facts.shape, dtype=dtype, device=device).requires_grad_(facts.trained)
