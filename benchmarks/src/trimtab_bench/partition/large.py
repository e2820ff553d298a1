"""Large models on many devices, by the search and by every rival, and how long the search takes."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import exp, log
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, NamedTuple

from trimtab.core import TrimtabError
from trimtab.partition import (
    RIVALS,
    Graph,
    Plan,
    PlanForecast,
    Recipe,
    SearchSettings,
    devices_of,
    reached_by,
    solve,
)
from trimtab_bench.partition.small import random_graph

EQUAL, TWO_TIER, UNEQUAL = "equal", "two-tier", "unequal"


class DeviceSet(NamedTuple):
    """Devices by kind and count, the network between machines, and how unequal they are."""

    text: str
    network: str
    kind: str


class LargeCase(NamedTuple):
    """A model, its training recipe, and its devices."""

    model: str
    recipe: Recipe
    on: DeviceSet

    @property
    def name(self) -> str:
        """Such as `gpt2_xl on a100-40:2,t4:4`."""
        return f"{self.model} on {self.on.text}"


_FEW = (
    DeviceSet("a100-80:8", "100Gbit", EQUAL),
    DeviceSet("a100-40:2,t4:4", "25Gbit", TWO_TIER),
    DeviceSet("a100-40:4,v100:4", "100Gbit", TWO_TIER),
    DeviceSet("h100:1,a10g:1,t4:1,k80:2", "25Gbit", UNEQUAL),
)
_MANY = (
    DeviceSet("h100:128/8", "400Gbit", EQUAL),
    DeviceSet("h100:64/8,a100-80:64/8", "200Gbit", TWO_TIER),
    DeviceSet("h200:16/8,h100:32/8,a100-80:64/8,a100-40:32/8", "100Gbit", UNEQUAL),
)
_MOST = (
    DeviceSet("h200:192/8", "400Gbit", EQUAL),
    DeviceSet("b200:64/8,h200:128/8", "400Gbit", TWO_TIER),
    DeviceSet("b200:64/8,h200:64/8,h100:64/8,a100-80:64/8", "200Gbit", UNEQUAL),
)

_SETS: dict[str, tuple[DeviceSet, ...]] = {"gpt3_175b": _MANY, "trillion": _MOST}
_RECIPES = {
    "vgg16": Recipe(256),
    "resnet101": Recipe(256),
    "inception": Recipe(256),
    "unet": Recipe(64),
    "gpt2_small": Recipe(128, "fp16"),
    "gpt2_medium": Recipe(128, "fp16"),
    "gpt2_large": Recipe(128, "fp16"),
    "gpt2_xl": Recipe(128, "fp16"),
    "bert_large": Recipe(256, "fp16"),
    "moe": Recipe(64, "fp16"),
    "gpt3_175b": Recipe(1024, "bf16"),
    "trillion": Recipe(1024, "bf16"),
}
_QUICK = ("vgg16", "gpt2_small")


def cases(quick: bool = False) -> Iterator[LargeCase]:
    """Every model on its sets of devices."""
    for model in _QUICK if quick else _RECIPES:
        for on in _SETS.get(model, _FEW):
            if not quick or on.kind != EQUAL:
                yield LargeCase(model, _RECIPES[model], on)


@lru_cache(maxsize=2)
def graph_of(model: str) -> Graph:
    """The graph of a model, captured without its memory."""
    import torch

    from trimtab.partition import capture_model
    from trimtab_bench.partition.models import MODELS

    with torch.device("meta"):
        module, inputs = MODELS[model]()
    return capture_model(module, inputs, model).graph


HYBRID, PIPELINE = "trimtab", "trimtab-pipeline"
OURS = {HYBRID: SearchSettings(), PIPELINE: SearchSettings(pipeline_only=True)}
"""The full search, and pipelines alone, which is all that rivals can do."""
METHODS = (*OURS, *RIVALS)
ACCELERATE = ("accelerate-balanced", "accelerate-sequential")
_SAME = 0.01  # throughputs that differ by less are the same


def large_figures(case: LargeCase, method: str) -> dict[str, Any]:
    """Figures of one method for a case; throughput 0 where none of its proposals fits."""
    graph, devices = graph_of(case.model), devices_of(case.on.text, case.on.network)
    start = perf_counter()
    if method in OURS:
        solution = solve(graph, devices, case.recipe, OURS[method])
        took = perf_counter() - start
        return _figures(solution.plan, solution.forecast) | {"took": took}
    proposals = list(RIVALS[method](graph, devices, case.recipe))
    took = perf_counter() - start
    reached = reached_by(proposals, graph, devices, case.recipe)
    figures = _figures(reached.plan, reached.forecast) | {"took": took, "proposals": len(proposals)}
    return figures | ({"mean_throughput": mean(reached.throughputs)} if proposals else {})


def _figures(plan: Plan | None, forecast: PlanForecast | None) -> dict[str, Any]:
    if plan is None or forecast is None or not forecast.fits:
        return {"throughput": 0.0, "fits": False}
    return {
        "throughput": forecast.throughput,
        "fits": True,
        "step_seconds": forecast.seconds,
        "idle_gib": forecast.idle / 2**30,
        "devices": len(forecast.uses),
        "stages": len(plan.stages),
        "replicas": plan.replicas,
        "tensor": plan.tensor,
        "microbatches": plan.microbatches,
        "schedule": plan.schedule,
        "sharding": plan.sharding,
        "recompute": plan.recompute,
    }


Figures = Mapping[str, Mapping[str, Any]]
"""By case and method."""


def over_accelerate(large: Figures, kinds: Mapping[str, str], method: str) -> dict[str, float]:
    """Ours over the better of Accelerate's two on unequal devices, and where neither plan fits."""
    unequal = [by for case, by in large.items() if kinds[case] != EQUAL]
    theirs = [max(by[name]["throughput"] for name in ACCELERATE) for by in unequal]
    own = [by[method]["throughput"] for by in unequal]
    ratios = [mine / other for mine, other in zip(own, theirs, strict=True) if mine > 0.0 < other]
    return {
        "geomean": exp(mean(log(ratio) for ratio in ratios)) if ratios else float("nan"),
        "least": min(ratios, default=float("nan")),
        "cases": len(unequal),
        "accelerate_does_not_fit": theirs.count(0.0),
        "ours_does_not_fit": own.count(0.0),
    }


def _rivals_where(large: Figures, method: str, test: Callable[[Any, Any], bool]) -> list[str]:
    """Cases and rivals for which a test of the rival's figures and ours holds."""
    pairs = [(case, by, rival) for case, by in large.items() for rival in RIVALS]
    return [f"{case}: {rival}" for case, by, rival in pairs if test(by[rival], by[method])]


def beaten(large: Figures, method: str) -> list[str]:
    """Cases and rivals with a higher throughput than ours."""
    return _rivals_where(large, method, lambda rival, own: rival["throughput"] > own["throughput"])


def idler(large: Figures, method: str) -> list[str]:
    """Cases and rivals with the same throughput as ours and less idle memory."""
    return _rivals_where(
        large,
        method,
        lambda rival, own: (
            rival["fits"]
            and own["fits"]
            and abs(rival["throughput"] / own["throughput"] - 1.0) <= _SAME
            and own["idle_gib"] > rival["idle_gib"] * (1.0 + _SAME)
        ),
    )


def fits(large: Figures, methods: Sequence[str]) -> dict[str, int]:
    """Number of cases in which each method finds a plan that fits."""
    return {name: sum(by[name]["fits"] for by in large.values()) for name in methods}


NODES = 10_000
FLEET = "h100:16/8,a100-80:16/8,v100-32:16/8,t4:16/4"
"""64 devices of four kinds."""
_NETWORK = "100Gbit"
_FAMILY = "ordered"
_MAIN = "from trimtab.cli import main; main()"
_BUILDER = "from trimtab_bench.partition.models import MODELS\n\nbuild = MODELS[{model!r}]\n"
_OPTIONS = ("--network", "400Gbit", "--batch", "1024", "--json")


def solving_seconds(nodes: int, seed: int, fleet: str = FLEET) -> dict[str, float]:
    """Seconds to a plan for a random graph of so many nodes."""
    graph, devices = random_graph(_FAMILY, nodes, seed), devices_of(fleet, _NETWORK)
    start = perf_counter()
    solution = solve(graph, devices, Recipe(64))
    took = perf_counter() - start
    fits, stages = float(solution.forecast.fits), float(len(solution.plan.stages))
    return {"seconds": took, "fits": fits, "stages": stages}


def command_figures(model: str, devices: str = "h100:128/8") -> dict[str, float]:
    """Seconds and peak memory of `trimtab partition` in a fresh process, from Python code to a plan."""
    with TemporaryDirectory() as folder:
        source = Path(folder) / "model.py"
        source.write_text(_BUILDER.format(model=model), encoding="utf-8")
        command = [sys.executable, "-c", _MAIN, "partition", f"{source}:build"]
        command += ["--devices", devices, *_OPTIONS]
        start = perf_counter()
        with open(Path(folder) / "output", "w+b") as output:
            own_store = os.environ | {"TRIMTAB_HOME": folder, "TRIMTAB_STORE": f"sqlite:///{folder}/store.db"}
            child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=own_store)
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            took = perf_counter() - start
            output.seek(0)
            printed = output.read().decode(errors="replace").strip()
    if child.returncode != 0:
        raise TrimtabError(f"trimtab partition of {model} failed: {printed[-300:]}")
    return {"seconds": took, "peak_gib": usage.ru_maxrss * 1024 / 2**30}
