"""Measures stages and the link between processes on this machine, and predicts a step from them."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, quantiles

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from trimtab.partition.devices import devices_of
from trimtab.partition.forecast import evaluate
from trimtab.partition.graph import Graph
from trimtab.partition.node_times import CostAssumptions
from trimtab.partition.plan import Plan, Recipe, Stage
from trimtab.partition.run.prepared import prepare
from trimtab.partition.run.processes import meeting_folder, run_processes, worker
from trimtab.partition.run.running import RunReport
from trimtab.partition.run.samples import Samples, on_device
from trimtab.partition.run.stage_module import StageModule
from trimtab.partition.run.training import PeakMemory, now, optimizer_of
from trimtab.predict import ScaleOutAssumptions

_FORMATS = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, slots=True)
class StageTime:
    """Median seconds of one micro-batch of the first replica, and peak bytes of a step of one micro-batch."""

    forward: float
    backward: float
    update: float
    memory: float


def time_stages(
    target: str, graph: Graph, plan: Plan, recipe: Recipe, rounds: int = 10, device: str = ""
) -> tuple[StageTime, ...]:
    """Time every stage by itself on random tensors, on `device` or on a GPU if there is one.

    The memory is that of weights, gradients, optimizer state and one micro-batch in flight.
    """
    chosen = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    prepared = prepare(target, graph.names, plan, 0, chosen.type, dropout=True)
    samples = Samples(prepared.inputs, 0)
    share = plan.shares[0]
    inputs, _ = on_device(samples.step(0, share), chosen)
    times = []
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if recipe.precision == "tf32" else before)
    try:
        for stage in prepared.stages[share]:
            peak = PeakMemory(chosen)
            stage.load(prepared.state, chosen)
            stage.recompute = plan.recompute
            stage.number_format = _FORMATS.get(recipe.precision)
            stage.constants = {i: inputs[i] for i in stage.facts.constants}
            loaded = {f"input_{i}": inputs[i] for i in stage.facts.loaded}
            times.append(_timed(stage, loaded, recipe, rounds, chosen, peak))
            stage.to("meta")
    finally:
        torch.set_float32_matmul_precision(before)
    return tuple(times)


def _timed(
    stage: StageModule,
    loaded: dict[str, Tensor],
    recipe: Recipe,
    rounds: int,
    device: torch.device,
    peak: PeakMemory,
) -> StageTime:
    received = []
    for facts in stage.facts.received:
        if facts.dtype.is_floating_point:
            dtype = stage.number_format or facts.dtype
            tensor = torch.randn(facts.shape, dtype=dtype, device=device).requires_grad_(facts.trained)
        else:
            tensor = torch.zeros(facts.shape, dtype=facts.dtype, device=device)
        received.append(tensor)
    trained = [weight for weight in stage.parameters() if weight.requires_grad]
    optimizer = optimizer_of(trained, recipe.optimizer)
    seconds: list[tuple[float, float, float]] = []
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
        seconds.append((marks[1] - marks[0], marks[2] - marks[1], marks[3] - marks[2]))
    forward, backward, update = (median(column) for column in zip(*seconds[2:], strict=True))
    if not recipe.training:
        backward = update = 0.0
    return StageTime(forward, backward, update, peak.grown())


SIZES = tuple(4096 * 4**power for power in range(7))
"""Bytes of the messages: 4 KiB to 16 MiB."""
_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class MeasuredLink:
    """`bandwidth` in B/s and `latency` in seconds; measured `seconds` of a message by size, one way."""

    bandwidth: float
    latency: float
    seconds: dict[int, float]


def measure_link(timeout: float = 120.0) -> MeasuredLink:
    """Exchange messages of many sizes between two processes over gloo on loopback.

    The lower quartile of each size counts, because other load on the machine only adds time.
    """
    with meeting_folder() as folder:
        run_processes(
            2,
            lambda rank: worker("link", folder, rank),
            folder,
            timeout,
            1,
            lambda rank: f"end {rank} of the link",
        )
        lines = (folder / "seconds.txt").read_text().split()
    return fitted(dict(zip(SIZES, map(float, lines), strict=True)))


def fitted(seconds: dict[int, float]) -> MeasuredLink:
    """The least-squares fit of size / bandwidth + latency to the times, by relative error."""

    sizes, times = np.array(list(seconds), dtype=float), np.array(list(seconds.values()))
    columns = np.stack([sizes / times, 1.0 / times], axis=1)
    per_byte, latency = np.linalg.lstsq(columns, np.ones(len(sizes)), rcond=None)[0]
    largest = max(seconds)
    slope = per_byte if per_byte > 0 else seconds[largest] / largest
    return MeasuredLink(float(1.0 / slope), float(min(max(latency, 0.0), min(seconds.values()))), seconds)


def run_end(folder: Path, rank: int) -> None:
    """One end of the link: rank 0 sends first and writes the times to a file."""

    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    try:
        lines = []
        for size in SIZES:
            message = torch.zeros(size, dtype=torch.uint8)
            times = []
            for _ in range(_ROUNDS):
                began = time.perf_counter()
                for sender in (0, 1):
                    if rank == sender:
                        dist.send(message, 1 - rank)
                    else:
                        dist.recv(message, 1 - rank)
                times.append((time.perf_counter() - began) / 2)
            lines.append(f"{quantiles(times, n=4)[0]}\n")
        if rank == 0:
            (folder / "seconds.txt").write_text("".join(lines))
        dist.barrier()
    finally:
        dist.destroy_process_group()


def predicted_here(graph: Graph, plan: Plan, recipe: Recipe, ran: RunReport, link: MeasuredLink) -> float:
    """Predicted seconds of a step of local processes, from the undivided model's passes and the link's speed.

    Nothing else of the run counts. Arithmetic is fp32, as in a run.
    """
    count = 1 + max(device for device, _, _ in plan.devices())
    apart = ~np.eye(count, dtype=bool)
    devices = replace(
        devices_of(f"cpu:{count}x{ran.threads}"),
        bandwidth=np.where(apart, link.bandwidth, np.inf),
        latency=np.where(apart, link.latency, 0.0),
    )
    whole = Plan((Stage(tuple(range(len(graph))), ((0,),)),), plan.shares[:1], 1)
    alone = evaluate(graph, devices, Recipe(whole.batch), whole)
    ahead = ran.whole_forward / alone.stage_forward[0]
    back = ran.whole_backward / alone.stage_backward[0]
    links = ScaleOutAssumptions(link_efficiency=1.0)  # the measured bandwidth includes it
    assume = CostAssumptions(correction=(("cpu", ahead, back),), links=links, overlapped=False)
    return evaluate(graph, devices, replace(recipe, precision="fp32"), plan, assume).seconds
