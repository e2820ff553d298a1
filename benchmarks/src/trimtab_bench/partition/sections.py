"""The sections of the bench, put together.

Small random graphs against an exact solver, large models against every rival by the same forecast, the time
for a large graph and a large model, and predicted against measured steps. Finished parts are kept.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import ge, le
from pathlib import Path
from statistics import median
from typing import Any

import trimtab
from trimtab_bench.harness import (
    BenchGoal,
    BenchOptions,
    BenchPart,
    BenchResult,
    Kept,
    Key,
    ResultTable,
    finish,
    goals_table,
    judged,
)
from trimtab_bench.partition import gpu_stages, large, prediction, small
from trimtab_bench.partition.gpu_stages import BUNDLED
from trimtab_bench.partition.large import METHODS


def _goals(figures: Mapping[str, Any]) -> Iterator[BenchGoal]:
    small, checks = figures["small"], figures["checks"]
    yield BenchGoal("small graphs within 1 % of the optimum", small["within_1pct"], ge, 0.95)
    yield BenchGoal("small graphs, times as fast as the MILP", small["speedup_over_milp"], ge, 10.0)
    yield BenchGoal("rivals with a higher throughput", float(len(checks["beaten_by"])), le, 0.0)
    yield BenchGoal("rivals as fast with less idle memory", float(len(checks["idler_than"])), le, 0.0)
    yield BenchGoal("times Accelerate's on unequal devices", figures["geomean_over_accelerate"], ge, 1.3)
    yield BenchGoal("seconds for 10,000 nodes", figures["seconds_10k_nodes"], le, 10.0)
    yield BenchGoal("seconds for GPT-3 from code to plan", figures["gpt3"]["seconds"], le, 60.0)
    yield BenchGoal("GiB for GPT-3 from code to plan", figures["gpt3"]["peak_gib"], le, 4.0)
    if figures["prediction_error"] is not None:
        yield BenchGoal("median error of predicted step times", figures["prediction_error"], le, 0.25)


_SMALL = {
    "cases": "cases",
    "proven": "proven optimal by the MILP",
    "nothing_fits": "of them, nothing fits",
    "within_1pct": "ours within 1 % of its best",
    "within_1pct_of_proven": "the same of those proven",
    "within_1pct_of_bound": "ours within 1 % of its bound",
    "optimal": "ours as good",
    "worst_gap": "worst, slower by",
    "better_than_unproven": "ours better, where unproven",
    "speedup_over_milp": "MILP's time over ours, in all",
    "median_speedup": "median of ratios",
    "least_speedup": "least ratio",
    "median_seconds": "our seconds, median",
    "median_milp_seconds": "MILP's seconds, median",
}


def tables(figures: Mapping[str, Any]) -> tuple[ResultTable, ...]:
    cases, gpt3, stages = figures["large"], figures["gpt3"], figures["gpu_stages"]
    small_rows = [(words, f"{figures['small'][name]:.4g}") for name, words in _SMALL.items()]
    throughputs = [
        (case, *(f"{by[name]['throughput']:.4g}" if by[name]["fits"] else "does not fit" for name in METHODS))
        for case, by in cases.items()
    ]
    over = {
        "geometric mean": "{geomean:.2f}",
        "least": "{least:.2f}",
        "unequal cases": "{cases}",
        "Accelerate's does not fit": "{accelerate_does_not_fit}",
        "ours does not fit": "{ours_does_not_fit}",
    }
    times = (
        ("10,000 nodes on 64 devices", f"{figures['seconds_10k_nodes']:.2f} s", ""),
        ("GPT-3 from code to plan", f"{gpt3['seconds']:.1f} s", f"{gpt3['peak_gib']:.2f} GiB"),
    )
    runs = [
        (name, f"{entry['predicted'] * 1e3:.0f}", f"{entry['measured'] * 1e3:.0f}", f"{entry['error']:+.0%}")
        for name, entry in figures["prediction"]["runs"].items()
    ]
    quantities = ("seconds", "memory")
    stage_rows = [
        (name, *(" ".join(f"{error:+.0%}" for error in entry[quantity]) for quantity in quantities))
        for name, entry in stages["models"].items()
    ]
    stage_rows.append(("median", *(f"{stages[f'median_{quantity}']:.0%}" for quantity in quantities)))
    return (
        ResultTable("Small random graphs", ("", "value"), small_rows),
        ResultTable("Samples per second", ("case", *METHODS), throughputs),
        _plans_table(cases),
        ResultTable.of(
            "Throughput over the better of Accelerate's two", "", figures["over_accelerate"], over
        ),
        ResultTable("How long it takes", ("", "time", "memory"), times),
        ResultTable("Real steps in local processes", ("run", "predicted ms", "measured ms", "error"), runs),
        ResultTable(
            "Predicted stages on an H200, off by", ("model", "time, stage by stage", "memory"), stage_rows
        ),
        goals_table(figures["goals"], "Goals"),
    )


def _plans_table(cases: Mapping[str, Any]) -> ResultTable:
    heads = ("case", "method", "step s", "idle GiB", "devices", "stages", "replicas", "tensor", "plan")
    forms = ("{step_seconds:.4g}", "{idle_gib:.1f}", "{devices}", "{stages}", "{replicas}", "{tensor}")
    rows = []
    for case, by in cases.items():
        best = max(METHODS[2:], key=lambda name: by[name]["throughput"])
        for name in (*METHODS[:2], best):
            plan = by[name]
            if not plan["fits"]:
                continue
            words = [f"{plan['microbatches']} micro-batches", plan["schedule"]]
            words += [f"{plan['sharding']} sharded"] if plan["sharding"] != "none" else []
            words += ["recomputed"] if plan["recompute"] else []
            cells = [form.format_map(plan) for form in forms]
            rows.append((case, name, *cells, ", ".join(words), f"{plan['took']:.2f}"))
    return ResultTable("Plans: ours, and the best rival's", (*heads, "found in s"), rows)


SPEED_RUNS = 3


def parts_of(options: BenchOptions) -> list[BenchPart]:
    """All parts; timed ones come first, so that the rest may share the machine."""
    seeds = range(options.seed, options.seed + (1 if options.quick else SPEED_RUNS))
    runs: dict[Key, Callable[[], Any]] = {
        ("small", str(number)): partial(small.small_figures, number, options.seed)
        for number in range(small.QUICK_CASES if options.quick else small.CASES)
    }
    runs |= {("ten_thousand", str(seed)): partial(large.solving_seconds, large.NODES, seed) for seed in seeds}
    runs["gpt3",] = partial(large.command_figures, "gpt3_175b")
    runs |= {("prediction", name): run for name, run in prediction.runs(options.quick).items()}
    runs["gpu_stages",] = gpu_stages.stage_errors
    runs |= {
        ("large", case.name, method): partial(large.large_figures, case, method)
        for case in large.cases(options.quick)
        for method in large.METHODS
    }
    return [BenchPart(key, run) for key, run in runs.items()]


_UNRELATED = {"workflow", "exports", "fewshot", "foundation", "durations", "encoder", "correction", "data"}
"""Folders that do not affect the results."""
_READ = {".py", ".toml", ".json"}


def all_sections(options: BenchOptions) -> BenchResult:
    parts = parts_of(options)
    rooms = Path(trimtab.__file__).parent
    measured = (rooms / room for room in ("partition", "predict", "catalog"))
    files = [
        path
        for folder in (Path(__file__).resolve().parent, BUNDLED.parent, *measured)
        for path in sorted(folder.rglob("*"))
        if path.suffix in _READ and not _UNRELATED & set(path.relative_to(folder).parts)
    ]
    kept = Kept.of("partition", (options.quick, options.seed), files)
    with options.progress(len(parts), "splitting") as announce:
        figures = put_together(finish(parts, kept, announce), options)
    rivals = {
        case: {name: entry["throughput"] for name, entry in by.items() if name not in large.OURS}
        for case, by in figures["large"].items()
    }
    return BenchResult("partition", figures, {"throughput": rivals}, {}, options.seed, tables(figures))


def put_together(results: Mapping[Key, Any], options: BenchOptions) -> dict[str, Any]:
    by_case: dict[str, dict[str, Any]] = {}
    for key, value in results.items():
        if key[0] == "large":
            by_case.setdefault(key[1], {})[key[2]] = value
    kinds = {case.name: case.on.kind for case in large.cases(options.quick)}
    over = {method: large.over_accelerate(by_case, kinds, method) for method in large.OURS}
    took = [value["seconds"] for key, value in results.items() if key[0] == "ten_thousand"]
    runs = {key[1]: value for key, value in results.items() if key[0] == "prediction"}
    figures: dict[str, Any] = {
        "small": small.summary([value for key, value in results.items() if key[0] == "small"]),
        "large": by_case,
        "kinds": kinds,
        "fits": large.fits(by_case, large.METHODS),
        "over_accelerate": over,
        "geomean_over_accelerate": over[large.HYBRID]["geomean"],
        "checks": {
            "beaten_by": large.beaten(by_case, large.HYBRID),
            "pipelines_beaten_by": large.beaten(by_case, large.PIPELINE),
            "idler_than": large.idler(by_case, large.HYBRID),
        },
        "seconds_10k_nodes": median(took),
        "ten_thousand": {"least": min(took), "most": max(took), "runs": len(took)},
        "gpt3": results[("gpt3",)],
        "prediction": prediction.summary(runs),
        "gpu_stages": results[("gpu_stages",)],
    }
    figures["prediction_error"] = figures["prediction"]["median"]
    figures["goals"] = judged(_goals(figures))
    return figures
