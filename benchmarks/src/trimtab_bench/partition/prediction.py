"""Training steps in local processes, measured and predicted."""

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
class StagedRun:
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
    StagedRun("chain", 0.5, 8, 64),
    StagedRun("chain", 0.3, 4, 128, "gpipe"),
    StagedRun("decoder", 0.5, 8, 4),
    StagedRun("decoder", 0.5, 2, 16),
    StagedRun("decoder", 0.3, 4, 8, "gpipe"),
    StagedRun("decoder", 0.5, 4, 8, recompute=True),
    StagedRun("decoder", 1.0, 1, 16),
    StagedRun("encoder", 0.5, 8, 4),
    StagedRun("encoder", 0.7, 4, 8),
    StagedRun("skips", 0.5, 8, 2),
    StagedRun("skips", 0.3, 4, 4, "gpipe"),
    StagedRun("convolutions", 0.5, 8, 4),
    StagedRun("convolutions", 0.7, 4, 8),
)
_QUICK = (_RUNS[2],)


def runs(quick: bool) -> dict[str, Callable[[], dict[str, float]]]:
    """All runs by name; none on a single core, where stages would wait for each other."""
    if len(os.sched_getaffinity(0)) < 2:
        return {}
    return {run.name: partial(run_figures, run) for run in (_QUICK if quick else _RUNS)}


def run_figures(run: StagedRun) -> dict[str, float]:
    """Predicted and measured seconds of a step, and the relative error of the prediction."""
    target = f"{_MODULE}:{run.model}"
    graph = load_graph(target)
    plan = _plan(run, graph)
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


def _plan(run: StagedRun, graph: Graph) -> Plan:
    """Two stages with that share of all work before the cut, or two replicas."""
    everything = tuple(range(len(graph)))
    if run.share == 1.0:
        half = run.samples // 2
        return Plan((Stage(everything, ((0,), (1,))),), (half, half), run.microbatches)
    done = np.cumsum(graph.flop) / graph.flop.sum()
    cut = int(np.searchsorted(done, run.share)) + 1
    stages = (Stage(everything[:cut], ((0,),)), Stage(everything[cut:], ((1,),)))
    schedule: Any = run.schedule
    return Plan(stages, (run.samples,), run.microbatches, schedule, recompute=run.recompute)


def summary(runs: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """All runs, and the median and worst absolute errors of predictions; None where nothing ran."""
    errors = [abs(run["error"]) for run in runs.values()]
    return {
        "runs": dict(runs),
        "median": median(errors) if errors else None,
        "worst": max(errors, default=None),
        "within_25pct": sum(error <= 0.25 for error in errors) / len(errors) if errors else None,
    }
