"""The sections of the bench, put together.

Small random graphs beside an exact solver, whole models beside every rival by the same forecast, how long a
large graph and a large model take, and predicted beside measured steps. Finished parts are kept.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from operator import ge, le
from pathlib import Path
from statistics import median
from typing import Any

import trimtab
from trimtab_bench.harness import (
    BenchOptions,
    BenchResult,
    Goal,
    Kept,
    Key,
    Part,
    Table,
    done,
    goals_table,
    judged,
)
from trimtab_bench.partition import gpu_stages, large, prediction, small
from trimtab_bench.partition.gpu_stages import BUNDLED
from trimtab_bench.partition.large import METHODS


def goals(figures: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Every goal: its value, what is wanted, and whether that was reached."""
    return judged(_goals(figures))


def _goals(figures: Mapping[str, Any]) -> Iterator[Goal]:
    small, checks = figures["small"], figures["checks"]
    yield Goal("small graphs within 1 % of the optimum", small["within_1pct"], ge, 0.95)
    yield Goal("small graphs, times as fast as the MILP", small["speedup_over_milp"], ge, 10.0)
    yield Goal("rivals with a higher throughput", float(len(checks["beaten_by"])), le, 0.0)
    yield Goal("rivals as fast with less idle memory", float(len(checks["idler_than"])), le, 0.0)
    yield Goal("times Accelerate's on unequal devices", figures["geomean_over_accelerate"], ge, 1.3)
    yield Goal("seconds for 10,000 nodes", figures["seconds_10k_nodes"], le, 10.0)
    yield Goal("seconds for GPT-3 from code to plan", figures["gpt3"]["seconds"], le, 60.0)
    yield Goal("GiB for GPT-3 from code to plan", figures["gpt3"]["peak_gib"], le, 4.0)
    if figures["prediction_error"] is not None:
        yield Goal("median error of predicted step times", figures["prediction_error"], le, 0.25)


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


def tables(figures: Mapping[str, Any]) -> tuple[Table, ...]:
    """All of them, the goals last."""
    return (
        _small_table(figures["small"]),
        _throughputs_table(figures["large"]),
        _plans_table(figures["large"]),
        _over_accelerate_table(figures["over_accelerate"]),
        _speed_table(figures),
        _prediction_table(figures["prediction"]),
        _gpu_stages_table(figures["gpu_stages"]),
        goals_table(figures["goals"], "Goals"),
    )


def _small_table(small: Mapping[str, Any]) -> Table:
    rows = tuple((words, f"{small[name]:.4g}") for name, words in _SMALL.items())
    return Table("Small random graphs", ("", "value"), rows)


def _throughputs_table(large: Mapping[str, Any]) -> Table:
    rows = tuple(
        (case, *(f"{by[name]['throughput']:.4g}" if by[name]["fits"] else "does not fit" for name in METHODS))
        for case, by in large.items()
    )
    return Table("Samples per second", ("case", *METHODS), rows)


def _plans_table(large: Mapping[str, Any]) -> Table:
    heads = (
        "case",
        "method",
        "step s",
        "idle GiB",
        "devices",
        "stages",
        "replicas",
        "tensor",
        "plan",
        "found in s",
    )
    rows = []
    for case, by in large.items():
        best = max(METHODS[2:], key=lambda name: by[name]["throughput"])
        for name in (*METHODS[:2], best):
            if by[name]["fits"]:
                rows.append((case, name, *_plan(by[name])))
    return Table("Plans: ours, and the best rival's", heads, tuple(rows))


def _plan(each: Mapping[str, Any]) -> tuple[str, ...]:
    words = [f"{each['microbatches']} micro-batches", each["schedule"]]
    words += [f"{each['sharding']} sharded"] if each["sharding"] != "none" else []
    words += ["recomputed"] if each["recompute"] else []
    return (
        f"{each['step_seconds']:.4g}",
        f"{each['idle_gib']:.1f}",
        *(str(each[name]) for name in ("devices", "stages", "replicas", "tensor")),
        ", ".join(words),
        f"{each['took']:.2f}",
    )


def _over_accelerate_table(over: Mapping[str, Any]) -> Table:
    heads = ("", "geometric mean", "least", "unequal cases", "Accelerate's does not fit", "ours does not fit")
    rows = tuple(
        (
            name,
            f"{each['geomean']:.2f}",
            f"{each['least']:.2f}",
            str(each["cases"]),
            str(each["accelerate_does_not_fit"]),
            str(each["ours_does_not_fit"]),
        )
        for name, each in over.items()
    )
    return Table("Throughput over the better of Accelerate's two", heads, rows)


def _speed_table(figures: Mapping[str, Any]) -> Table:
    gpt3 = figures["gpt3"]
    rows = (
        ("10,000 nodes on 64 devices", f"{figures['seconds_10k_nodes']:.2f} s", ""),
        ("GPT-3 from code to plan", f"{gpt3['seconds']:.1f} s", f"{gpt3['peak_gib']:.2f} GiB"),
    )
    return Table("How long it takes", ("", "time", "memory"), rows)


def _prediction_table(prediction: Mapping[str, Any]) -> Table:
    rows = tuple(
        (name, f"{each['predicted'] * 1e3:.0f}", f"{each['measured'] * 1e3:.0f}", f"{each['error']:+.0%}")
        for name, each in prediction["runs"].items()
    )
    return Table("Real steps in local processes", ("run", "predicted ms", "measured ms", "error"), rows)


def _gpu_stages_table(found: Mapping[str, Any]) -> Table:
    rows = tuple(
        (name, *(" ".join(f"{error:+.0%}" for error in each[what]) for what in ("seconds", "memory")))
        for name, each in found["models"].items()
    )
    over_all = tuple(f"{found[f'median_{what}']:.0%}" for what in ("seconds", "memory"))
    heads = ("model", "time, stage by stage", "memory")
    return Table("Predicted stages on an H200, off by", heads, (*rows, ("median", *over_all)))


SPEED_RUNS = 3


def parts_of(options: BenchOptions) -> list[Part]:
    """Everything; what is timed comes first, so that the rest may share the machine."""
    return [
        *_small_parts(options),
        *_speed_parts(options),
        *_prediction_parts(options),
        *_large_parts(options),
    ]


def _small_parts(options: BenchOptions) -> Iterator[Part]:
    for number in range(small.QUICK_CASES if options.quick else small.CASES):
        yield Part(("small", str(number)), partial(small.small_figures, number, options.seed))


def _large_parts(options: BenchOptions) -> Iterator[Part]:
    for case in large.cases(options.quick):
        for method in large.METHODS:
            yield Part(("large", case.name, method), partial(large.large_figures, case, method))


def _speed_parts(options: BenchOptions) -> Iterator[Part]:
    for seed in range(options.seed, options.seed + (1 if options.quick else SPEED_RUNS)):
        yield Part(("ten_thousand", str(seed)), partial(large.solving_seconds, large.NODES, seed))
    yield Part(("gpt3",), partial(large.command_figures, "gpt3_175b"))


def _prediction_parts(options: BenchOptions) -> Iterator[Part]:
    for name, run in prediction.runs(options.quick).items():
        yield Part(("prediction", name), run)
    yield Part(("gpu_stages",), gpu_stages.stage_errors)


_UNRELATED = {"workflow", "exports", "fewshot", "foundation", "durations", "encoder", "correction", "data"}
"""Folders that have no part in it."""
_READ = {".py", ".toml", ".json"}


def all_sections(options: BenchOptions) -> BenchResult:
    """Result of `trimtab bench partition`."""
    parts = parts_of(options)
    kept = Kept.of("partition", _made_from(options))
    with options.progress(len(parts), "splitting") as tell:
        figures = put_together(done(parts, kept, tell), options)
    rivals = {
        case: {name: each["throughput"] for name, each in by.items() if name not in large.OURS}
        for case, by in figures["large"].items()
    }
    return BenchResult("partition", figures, {"throughput": rivals}, {}, options.seed, tables(figures))


def put_together(found: Mapping[Key, Any], options: BenchOptions) -> dict[str, Any]:
    """The figures, from what all parts answered."""
    by_case: dict[str, dict[str, Any]] = {}
    for key, value in found.items():
        if key[0] == "large":
            by_case.setdefault(key[1], {})[key[2]] = value
    kinds = {case.name: case.on.kind for case in large.cases(options.quick)}
    over = {ours: large.over_accelerate(by_case, kinds, ours) for ours in large.OURS}
    took = [value["seconds"] for key, value in found.items() if key[0] == "ten_thousand"]
    runs = {key[1]: value for key, value in found.items() if key[0] == "prediction"}
    figures: dict[str, Any] = {
        "small": small.summary([value for key, value in found.items() if key[0] == "small"]),
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
        "gpt3": found[("gpt3",)],
        "prediction": prediction.summary(runs),
        "gpu_stages": found[("gpu_stages",)],
    }
    figures["prediction_error"] = figures["prediction"]["median"]
    figures["goals"] = goals(figures)
    return figures


def _made_from(options: BenchOptions) -> Iterator[bytes]:
    """Options, the code that is measured and measures, and the data on devices and stages that it reads."""
    yield repr((options.quick, options.seed)).encode()
    here = Path(__file__).resolve().parent
    rooms = Path(trimtab.__file__).parent
    measured = (rooms / room for room in ("partition", "predict", "catalog"))
    for folder in (here, BUNDLED.parent, *measured):
        for path in sorted(folder.rglob("*")):
            if path.suffix in _READ and not _UNRELATED & set(path.relative_to(folder).parts):
                yield path.read_bytes()
