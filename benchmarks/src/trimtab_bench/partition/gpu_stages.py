"""Stages on a GPU: what was measured of each alone on an H200, beside what is predicted of it.

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
_MODELS = "trimtab_bench.partition.models"
_DEVICE = "h200"


@dataclass(frozen=True, slots=True)
class StagedModel:
    """A model in so many stages of equal work, with so many samples of a micro-batch."""

    target: str
    stages: int
    samples: int
    precision: str


_STAGED = (
    StagedModel(f"{_MODELS}:decoder(layers=12, width=768, length=1024, words=50257)", 3, 8, "bf16"),
    StagedModel(f"{_MODELS}:decoder(layers=24, width=1024, length=1024, words=50257)", 4, 4, "bf16"),
    StagedModel(f"{_MODELS}:decoder(layers=24, width=1024, length=1024, words=50257)", 4, 4, "tf32"),
    StagedModel(f"{_MODELS}:decoder(layers=48, width=1600, length=1024, words=50257)", 6, 2, "bf16"),
    StagedModel(f"{_MODELS}:encoder(layers=24, width=1024, length=512, words=30522)", 4, 16, "bf16"),
    StagedModel(f"{_MODELS}:vgg16", 3, 32, "tf32"),
    StagedModel(f"{_MODELS}:resnet101", 4, 32, "tf32"),
    StagedModel(f"{_MODELS}:resnet101", 4, 32, "bf16"),
    StagedModel(f"{_MODELS}:inception", 3, 32, "tf32"),
    StagedModel(f"{_MODELS}:unet", 3, 16, "tf32"),
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
    for staged in _STAGED:
        graph = load_graph(staged.target)
        plan = plan_of(staged, graph)
        times = time_stages(staged.target, graph, plan, Recipe(plan.batch, staged.precision))
        yield asdict(staged) | {"times": [asdict(each) for each in times]}


def stage_errors(path: Path = BUNDLED) -> dict[str, Any]:
    """By model: by which share predicted time and memory are off, stage by stage; and over all of them."""
    by_model: dict[str, dict[str, list[float]]] = {}
    for told in json.loads(path.read_text(encoding="utf-8")):
        times = told.pop("times")
        staged = StagedModel(**told)
        name = f"{staged.target.partition(':')[2]}, {staged.samples} samples, {staged.precision}"
        by_model[name] = _errors(staged, times)
    seconds = [abs(error) for each in by_model.values() for error in each["seconds"]]
    memory = [abs(error) for each in by_model.values() for error in each["memory"]]
    return {
        "models": by_model,
        "median_seconds": median(seconds),
        "worst_seconds": max(seconds),
        "median_memory": median(memory),
        "worst_memory": max(memory),
    }


def _errors(staged: StagedModel, times: list[dict[str, float]]) -> dict[str, list[float]]:
    graph = load_graph(staged.target)
    plan = plan_of(staged, graph)
    recipe = Recipe(plan.batch, staged.precision)
    forecast = evaluate(graph, devices_of(f"{_DEVICE}:{staged.stages}"), recipe, plan)
    predicted = zip(forecast.stage_forward, forecast.stage_backward, strict=True)
    return {
        "seconds": [
            (ahead + back) / (each["forward"] + each["backward"]) - 1.0
            for (ahead, back), each in zip(predicted, times, strict=True)
        ],
        "memory": [use.memory / each["memory"] - 1.0 for use, each in zip(forecast.uses, times, strict=True)],
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(list(measured()), indent=1), encoding="utf-8")
