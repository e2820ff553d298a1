"""Containers under load, sized by Trimtab, by its rivals or not at all: the same cap, the same requests.

Real containers (runc), three HTTP services, an open-loop client. Every load and seed is a part of its own: an
observed run that all contestants get as history, then one after the other with the same requests. Machines
with many cores run several parts at once, each on cores of its own; finished parts are kept.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import trimtab
from trimtab_bench.harness import BenchOptions, BenchPart, BenchResult, Kept, ResultTable, code_below, finish
from trimtab_bench.resize.bundle import Limit
from trimtab_bench.resize.load import LOADS, ServiceLoad, arrivals
from trimtab_bench.resize.trial import CONTESTANTS, Observed, TrialSetting, contestant, observe

MIB = 2**20
SETTING = TrialSetting(
    services=(
        ServiceLoad("web", 30.0, 0.004, 0.6),
        ServiceLoad("thumbnail", 8.0, 0.015, 0.6),
        ServiceLoad("session", 20.0, 0.004, 0.5, keep=MIB, seconds=2.5),
    ),
    cpus=1.0,
    memory=1024.0 * MIB,
)
_CORES = 4  # that a part has for itself, where there are more
_EARLIER = 1000  # added to a seed: the history's requests are others


def run(options: BenchOptions) -> BenchResult:
    """All loads and seeds; figures are medians over seeds, with their range."""
    seeds = [options.seed] if options.quick else [options.seed + number for number in range(3)]
    # Without --data, the load from a trace is left out.
    loads = ["bursty"] if options.quick else [load for load in LOADS if load != "trace" or options.data]
    names = ("trimtab", "vpa", "static_1.5") if options.quick else CONTESTANTS
    seconds = 3.0 if options.quick else 16.0
    parts = [
        BenchPart((load, str(seed)), partial(_scores, load, seed, seconds, options.data, names))
        for seed in seeds
        for load in loads
    ]
    product = Path(trimtab.__file__).resolve().parent
    code = code_below(Path(__file__).resolve().parent, product / "resize", product / "kernel")
    kept = Kept.of("resize", (options.quick, str(options.data), asdict(SETTING)), code)
    with options.progress(len(parts), "containers under load") as announce, _lanes() as pool:
        scores = finish(parts, kept, announce, pool)
    policies = {
        name: {load: _summary([scores[load, str(seed)][name] for seed in seeds]) for load in loads}
        for name in names
    }
    tables = tuple(_table(load, {name: policies[name][load] for name in names}) for load in loads)
    published = {
        "Escra, against limits of 1.5 times the peak": {"p99.9 latency": "-38 %", "median CPU slack": "-81 %"}
    }
    figures = {"policies": policies, "compared": _compared(policies, loads)}
    return BenchResult("resize", figures, {}, published, options.seed, tables)


@contextmanager
def _lanes() -> Iterator[Executor | None]:
    """Processes on cores of their own, where there are cores for several."""
    cores = sorted(os.sched_getaffinity(0))
    lanes = len(cores) // _CORES
    if lanes < 2:
        yield None
        return
    context = get_context("spawn")
    free = context.Queue()
    for lane in range(lanes):
        free.put(cores[lane * _CORES : (lane + 1) * _CORES])
    with ProcessPoolExecutor(lanes, context, _take_cores, (free,)) as pool:
        yield pool


def _take_cores(free: Any) -> None:
    """Each process of the pool, and its children, stays on its own cores."""
    os.sched_setaffinity(0, free.get())


def _scores(
    load: str, seed: int, seconds: float, data: Path | None, names: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Scores by contestant under one load with one seed."""
    services = SETTING.services
    earlier = arrivals(load, services, seconds, seed + _EARLIER, data)
    history = observe(SETTING, earlier, seconds, [Limit()] * len(services))
    requests = arrivals(load, services, seconds, seed, data)
    scores = {}
    for name in names:
        chosen = contestant(name, SETTING, history)
        scores[name] = _score(observe(SETTING, requests, seconds, chosen.start, chosen.policy, chosen.again))
    return scores


def _score(observed: Observed) -> dict[str, float]:
    """Latencies in ms, unanswered requests as the slowest there are; slack in CPUs of one container.

    `reach` is slack if CPU time that a container may have saved up counts as its limit too.
    """
    answered = ~np.isnan(observed.latency)
    latency = np.where(answered, observed.latency, np.inf)
    limits = (observed.limit, observed.limit + observed.saved)
    slack, reach = (np.maximum(limit - observed.used, 0.0) for limit in limits)
    slack, reach = slack[~np.isnan(slack)], reach[~np.isnan(reach)]
    levels = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}
    return {
        **{name: float(np.quantile(latency, level, method="higher")) * 1e3 for name, level in levels.items()},
        "throughput": float(answered.sum() / observed.seconds),
        "slack_p50": float(np.quantile(slack, 0.5)),
        "slack_p99": float(np.quantile(slack, 0.99)),
        "reach_p50": float(np.quantile(reach, 0.5)),
        "oom_kills": float(observed.kills),
    }


def _summary(scores: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Medians over seeds, with the least and the most of the two that matter most; kills are added up."""
    columns = {name: [score[name] for score in scores] for name in scores[0]}
    summary: dict[str, Any] = {name: float(np.median(values)) for name, values in columns.items()}
    summary["oom_kills"] = int(sum(columns["oom_kills"]))
    for name in ("p99_ms", "slack_p50"):
        summary[f"{name}_range"] = [min(columns[name]), max(columns[name])]
    return summary


def _compared(policies: dict[str, Any], loads: Sequence[str]) -> dict[str, Any]:
    """Others' p99 and median slack as multiples of Trimtab's, by load: above 1, Trimtab's is better."""
    own = policies["trimtab"]
    return {
        name: {
            load: {
                "p99": policies[name][load]["p99_ms"] / own[load]["p99_ms"],
                "slack_p50": policies[name][load]["slack_p50"] / max(own[load]["slack_p50"], 1e-3),
                "throughput": policies[name][load]["throughput"] / own[load]["throughput"],
            }
            for load in loads
        }
        for name in policies
        if name != "trimtab"
    }


def _table(load: str, by_policy: dict[str, dict[str, Any]]) -> ResultTable:
    forms = ["{p50_ms:.0f}", "{p99_ms:.0f}", "{p99_ms_range[0]:.0f}-{p99_ms_range[1]:.0f}", "{p999_ms:.0f}"]
    forms += ("{throughput:.1f}", "{slack_p50:.3f}", "{slack_p99:.3f}", "{oom_kills}")
    rows = [(name, *(form.format_map(summary) for form in forms)) for name, summary in by_policy.items()]
    columns = ("policy", "p50", "p99", "seeds", "p99.9", "per s", "slack", "p99", "kills")
    return ResultTable(f"{load} load: ms, answers per second, unused CPUs of a container", columns, rows)
