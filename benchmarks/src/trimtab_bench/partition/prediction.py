"""Steps that really run, in local processes, beside what was predicted of them."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from statistics import median
from typing import Any

import numpy as np

from trimtab.partition import (
    Graph,
    MeasuredLink,
    Plan,
    Recipe,
    RunSettings,
    Stage,
    load_graph,
    measure_link,
    predicted_here,
    run_plan,
)

_MODULE = "trimtab_bench.partition.models"
_STEPS = 6


@dataclass(frozen=True, slots=True)
class LocalRun:
    """A model in two stages, the first with a `share` of the work; in two replicas where that is all."""

    model: str
    share: float
    microbatches: int
    samples: int
    schedule: str = "1f1b"
    recompute: bool = False

    @property
    def name(self) -> str:
        """Such as `decoder 50 % + 50 %, 8 × 4, 1f1b`."""
        cut = "2 replicas" if self.share == 1.0 else f"{self.share:.0%} + {1 - self.share:.0%}"
        more = ", recomputed" if self.recompute else ""
        return f"{self.model} {cut}, {self.microbatches} × {self.samples}, {self.schedule}{more}"


_RUNS = (
    LocalRun("chain", 0.5, 8, 64),
    LocalRun("chain", 0.3, 4, 128, "gpipe"),
    LocalRun("decoder", 0.5, 8, 4),
    LocalRun("decoder", 0.5, 2, 16),
    LocalRun("decoder", 0.3, 4, 8, "gpipe"),
    LocalRun("decoder", 0.5, 4, 8, recompute=True),
    LocalRun("decoder", 1.0, 1, 16),
    LocalRun("encoder", 0.5, 8, 4),
    LocalRun("encoder", 0.7, 4, 8),
    LocalRun("skips", 0.5, 8, 2),
    LocalRun("skips", 0.3, 4, 4, "gpipe"),
    LocalRun("convolutions", 0.5, 8, 4),
    LocalRun("convolutions", 0.7, 4, 8),
)
_QUICK = (_RUNS[2],)


def runs(quick: bool) -> dict[str, Callable[[], dict[str, float]]]:
    """All runs by name; none on a single core, where stages would wait for each other."""
    if len(os.sched_getaffinity(0)) < 2:
        return {}
    return {each.name: partial(run_figures, each) for each in (_QUICK if quick else _RUNS)}


def run_figures(told: LocalRun) -> dict[str, float]:
    """Predicted and measured seconds of a step, and by which share the prediction is off."""
    target = f"{_MODULE}:{told.model}"
    graph = load_graph(target)
    plan = _plan(told, graph)
    recipe = Recipe(plan.batch)
    report = run_plan(target, graph, plan, recipe, RunSettings(steps=_STEPS))
    predicted = predicted_here(graph, plan, recipe, report, _link())
    return {
        "predicted": predicted,
        "measured": report.seconds,
        "error": predicted / report.seconds - 1.0,
        "loss_difference": report.difference,
    }


@lru_cache(maxsize=1)
def _link() -> MeasuredLink:
    """Link between local processes, measured once."""
    return measure_link()


def _plan(told: LocalRun, graph: Graph) -> Plan:
    """Two stages with that share of all work before the cut, or all of it twice."""
    everything = tuple(range(len(graph)))
    if told.share == 1.0:
        half = told.samples // 2
        return Plan((Stage(everything, ((0,), (1,))),), (half, half), told.microbatches)
    done = np.cumsum(graph.flop) / graph.flop.sum()
    cut = int(np.searchsorted(done, told.share)) + 1
    stages = (Stage(everything[:cut], ((0,),)), Stage(everything[cut:], ((1,),)))
    return Plan(
        stages,
        (told.samples,),
        told.microbatches,
        told.schedule,  # type: ignore[arg-type]
        recompute=told.recompute,
    )


def summary(found: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """All runs, and the median and the worst of how far predictions were off; None where nothing ran."""
    errors = [abs(each["error"]) for each in found.values()]
    return {
        "runs": dict(found),
        "median": median(errors) if errors else None,
        "worst": max(errors, default=None),
        "within_25pct": sum(error <= 0.25 for error in errors) / len(errors) if errors else None,
    }
