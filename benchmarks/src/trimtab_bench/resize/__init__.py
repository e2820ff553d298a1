"""Containers under load, sized by Trimtab, its rivals or nobody: the same cap, the same requests.

Real containers (runc), three HTTP services, an open-loop client. Every load and seed is a part of its own: an
observed run that gives everyone a history, then all contestants one after the other with the same requests.
Machines with many cores do several parts at once, each on cores of its own; finished parts are kept.
"""

import json
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import trimtab
from trimtab_bench.harness import BenchOptions, BenchResult, Kept, Table
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


@dataclass(frozen=True, slots=True)
class LoadPart:
    """One load with one seed, for everyone in turn."""

    load: str
    seed: int
    seconds: float
    data: Path | None
    contestants: tuple[str, ...]
    kept: Kept


def run(options: BenchOptions) -> BenchResult:
    """All loads and seeds; figures are medians over seeds, with their range."""
    parts = _parts(options)
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    with options.progress(len(parts), "containers under load") as done:
        for part, scores in _scored(parts):
            done(part)
            for name, score in scores.items():
                found.setdefault((name, part.load), []).append(score)
    loads = [load for load in LOADS if any(part.load == load for part in parts)]
    names = parts[0].contestants
    policies = {name: {load: _summary(found[name, load]) for load in loads} for name in names}
    tables = tuple(_table(load, {name: policies[name][load] for name in names}) for load in loads)
    published = {
        "Escra, against limits of 1.5 times the peak": {"p99.9 latency": "-38 %", "median CPU slack": "-81 %"}
    }
    figures = {"policies": policies, "compared": _compared(policies, loads)}
    return BenchResult("resize", figures, {}, published, options.seed, tables)


def _parts(options: BenchOptions) -> list[LoadPart]:
    """Where there is no `--data`, the load from a trace is left out."""
    seeds = [options.seed] if options.quick else [options.seed + number for number in range(3)]
    loads = [load for load in LOADS if load != "trace" or options.data]
    names = CONTESTANTS
    if options.quick:
        loads, names = ["bursty"], ("trimtab", "vpa", "static_1.5")
    seconds = 3.0 if options.quick else 16.0
    kept = Kept.of("resize", _made_from(options))
    return [LoadPart(load, seed, seconds, options.data, names, kept) for seed in seeds for load in loads]


def _scored(parts: Sequence[LoadPart]) -> Iterator[tuple[LoadPart, dict[str, dict[str, float]]]]:
    """Every part as soon as it is done; several at once where there are cores for it."""
    cores = sorted(os.sched_getaffinity(0))
    lanes = max(1, len(cores) // _CORES)
    if lanes == 1:
        for part in parts:
            yield part, _done(part)
        return
    context = multiprocessing.get_context("spawn")
    free = context.Queue()
    for lane in range(lanes):
        free.put(cores[lane * _CORES : (lane + 1) * _CORES])
    with ProcessPoolExecutor(lanes, context, _take_cores, (free,)) as pool:
        for done in as_completed([pool.submit(_part_and_scores, part) for part in parts]):
            yield done.result()


def _take_cores(free: Any) -> None:
    """Each process of the pool, and whatever it starts, stays on its own cores."""
    os.sched_setaffinity(0, free.get())


def _part_and_scores(part: LoadPart) -> tuple[LoadPart, dict[str, dict[str, float]]]:
    return part, _done(part)


def _done(part: LoadPart) -> dict[str, dict[str, float]]:
    """The part's scores by contestant: kept ones, or measured now."""
    name = f"{part.load}-{part.seed}.json"
    known = part.kept.load(name)
    if known is not None:
        scores: dict[str, dict[str, float]] = json.loads(known)
        return scores
    services, seconds = SETTING.services, part.seconds
    earlier = arrivals(part.load, services, seconds, part.seed + _EARLIER, part.data)
    history = observe(SETTING, earlier, seconds, [Limit()] * len(services))
    requests = arrivals(part.load, services, seconds, part.seed, part.data)
    scores = {}
    for name in part.contestants:
        who = contestant(name, SETTING, history)
        scores[name] = _score(observe(SETTING, requests, seconds, who.start, who.policy, who.again))
    part.kept.save(name, json.dumps(scores).encode())
    return scores


def _score(seen: Observed) -> dict[str, float]:
    """Latencies in ms, unanswered requests as the slowest there are; slack in CPUs of one container.

    `reach` is slack if what a container may have saved up counts as its limit too.
    """
    answered = ~np.isnan(seen.latency)
    latency = np.where(answered, seen.latency, np.inf)
    slack, reach = (np.maximum(most - seen.used, 0.0) for most in (seen.limit, seen.limit + seen.saved))
    slack, reach = slack[~np.isnan(slack)], reach[~np.isnan(reach)]
    p50, p99, p999 = (
        float(np.quantile(latency, level, method="higher")) * 1e3 for level in (0.5, 0.99, 0.999)
    )
    return {
        "p50_ms": p50,
        "p99_ms": p99,
        "p999_ms": p999,
        "throughput": float(answered.sum() / seen.seconds),
        "slack_p50": float(np.quantile(slack, 0.5)),
        "slack_p99": float(np.quantile(slack, 0.99)),
        "reach_p50": float(np.quantile(reach, 0.5)),
        "oom_kills": float(seen.kills),
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
    ours = policies["trimtab"]
    return {
        name: {
            load: {
                "p99": policies[name][load]["p99_ms"] / ours[load]["p99_ms"],
                "slack_p50": policies[name][load]["slack_p50"] / max(ours[load]["slack_p50"], 1e-3),
                "throughput": policies[name][load]["throughput"] / ours[load]["throughput"],
            }
            for load in loads
        }
        for name in policies
        if name != "trimtab"
    }


def _table(load: str, by_policy: dict[str, dict[str, Any]]) -> Table:
    rows = tuple(
        (
            name,
            f"{s['p50_ms']:.0f}",
            f"{s['p99_ms']:.0f}",
            f"{s['p99_ms_range'][0]:.0f}-{s['p99_ms_range'][1]:.0f}",
            f"{s['p999_ms']:.0f}",
            f"{s['throughput']:.1f}",
            f"{s['slack_p50']:.3f}",
            f"{s['slack_p99']:.3f}",
            str(s["oom_kills"]),
        )
        for name, s in by_policy.items()
    )
    columns = ("policy", "p50", "p99", "seeds", "p99.9", "per s", "slack", "p99", "kills")
    return Table(f"{load} load: ms, answers per second, unused CPUs of a container", columns, rows)


def _made_from(options: BenchOptions) -> Iterator[bytes]:
    """Fingerprint of kept results: the options, and the code of bench and product."""
    yield repr((options.quick, str(options.data), asdict(SETTING))).encode()
    product = Path(trimtab.__file__).resolve().parent
    for folder in (Path(__file__).resolve().parent, product / "resize", product / "kernel"):
        for path in sorted(folder.rglob("*.py")):
            yield path.read_bytes()
