"""Stages on a GPU: time and memory of each alone on an H200, measured and predicted.

`python -m trimtab_bench.partition.gpu_stages FILE` measures on the GPU at hand.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from trimtab.partition import Graph, Plan, Recipe, Stage, devices_of, evaluate, load_graph, time_stages

BUNDLED = Path(str(files("trimtab_bench") / "data" / "partition-stages" / "h200.json"))
_DEVICE = "h200"


@dataclass(frozen=True, slots=True)
class StagedModel:
    """A model in so many stages of equal work, with so many samples of a micro-batch."""

    target: str
    stages: int
    samples: int
    precision: str


_STAGED = (
    ("decoder(layers=12, width=768, length=1024, words=50257)", 3, 8, "bf16"),
    ("decoder(layers=24, width=1024, length=1024, words=50257)", 4, 4, "bf16"),
    ("decoder(layers=24, width=1024, length=1024, words=50257)", 4, 4, "tf32"),
    ("decoder(layers=48, width=1600, length=1024, words=50257)", 6, 2, "bf16"),
    ("encoder(layers=24, width=1024, length=512, words=30522)", 4, 16, "bf16"),
    ("vgg16", 3, 32, "tf32"),
    ("resnet101", 4, 32, "tf32"),
    ("resnet101", 4, 32, "bf16"),
    ("inception", 3, 32, "tf32"),
    ("unet", 3, 16, "tf32"),
)


def plan_of(staged: StagedModel, graph: Graph) -> Plan:
    """Stages of equal arithmetic, one micro-batch."""
    done = np.cumsum(graph.flop) / graph.flop.sum()
    ends = np.searchsorted(done, np.arange(1, staged.stages) / staged.stages) + 1
    parts = np.split(np.arange(len(graph)), ends)
    stages = tuple(Stage(tuple(part.tolist()), ((number,),)) for number, part in enumerate(parts))
    return Plan(stages, (staged.samples,), 1)


def measured() -> Iterator[dict[str, Any]]:
    """Every stage of every model, on the GPU that is there."""
    for model, stages, samples, precision in _STAGED:
        staged = StagedModel(f"trimtab_bench.partition.models:{model}", stages, samples, precision)
        graph = load_graph(staged.target)
        plan = plan_of(staged, graph)
        times = time_stages(staged.target, graph, plan, Recipe(plan.batch, staged.precision))
        yield asdict(staged) | {"times": [asdict(time) for time in times]}


def stage_errors(path: Path = BUNDLED) -> dict[str, Any]:
    """Relative errors of predicted time and memory, stage by stage and by model; and over all of them."""
    by_model: dict[str, dict[str, list[float]]] = {}
    for row in json.loads(path.read_text(encoding="utf-8")):
        times = row.pop("times")
        staged = StagedModel(**row)
        name = f"{staged.target.partition(':')[2]}, {staged.samples} samples, {staged.precision}"
        graph = load_graph(staged.target)
        plan = plan_of(staged, graph)
        recipe = Recipe(plan.batch, staged.precision)
        forecast = evaluate(graph, devices_of(f"{_DEVICE}:{staged.stages}"), recipe, plan)
        predicted = zip(forecast.stage_forward, forecast.stage_backward, forecast.uses, times, strict=True)
        pairs = [
            ((ahead + back) / (time["forward"] + time["backward"]) - 1.0, use.memory / time["memory"] - 1.0)
            for ahead, back, use, time in predicted
        ]
        by_model[name] = {"seconds": [pair[0] for pair in pairs], "memory": [pair[1] for pair in pairs]}
    figures: dict[str, Any] = {"models": by_model}
    for quantity in ("seconds", "memory"):
        errors = [abs(error) for model in by_model.values() for error in model[quantity]]
        figures |= {f"median_{quantity}": median(errors), f"worst_{quantity}": max(errors)}
    return figures


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(list(measured()), indent=1), encoding="utf-8")
