"""The figures as tables for people."""

from collections.abc import Mapping
from typing import Any

from trimtab_bench.goals import goals_table
from trimtab_bench.partition.large import METHODS
from trimtab_bench.result import Table

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
        _small(figures["small"]),
        _throughputs(figures["large"]),
        _plans(figures["large"]),
        _over_accelerate(figures["over_accelerate"]),
        _speed(figures),
        _prediction(figures["prediction"]),
        _gpu_stages(figures["gpu_stages"]),
        goals_table(figures["goals"], "Goals"),
    )


def _small(small: Mapping[str, Any]) -> Table:
    rows = tuple((words, f"{small[name]:.4g}") for name, words in _SMALL.items())
    return Table("Small random graphs", ("", "value"), rows)


def _throughputs(large: Mapping[str, Any]) -> Table:
    rows = tuple(
        (case, *(f"{by[name]['throughput']:.4g}" if by[name]["fits"] else "does not fit" for name in METHODS))
        for case, by in large.items()
    )
    return Table("Samples per second", ("case", *METHODS), rows)


def _plans(large: Mapping[str, Any]) -> Table:
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


def _over_accelerate(over: Mapping[str, Any]) -> Table:
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


def _speed(figures: Mapping[str, Any]) -> Table:
    gpt3 = figures["gpt3"]
    rows = (
        ("10,000 nodes on 64 devices", f"{figures['seconds_10k_nodes']:.2f} s", ""),
        ("GPT-3 from code to plan", f"{gpt3['seconds']:.1f} s", f"{gpt3['peak_gib']:.2f} GiB"),
    )
    return Table("How long it takes", ("", "time", "memory"), rows)


def _prediction(prediction: Mapping[str, Any]) -> Table:
    rows = tuple(
        (name, f"{each['predicted'] * 1e3:.0f}", f"{each['measured'] * 1e3:.0f}", f"{each['error']:+.0%}")
        for name, each in prediction["runs"].items()
    )
    return Table("Real steps in local processes", ("run", "predicted ms", "measured ms", "error"), rows)


def _gpu_stages(found: Mapping[str, Any]) -> Table:
    rows = tuple(
        (name, *(" ".join(f"{error:+.0%}" for error in each[what]) for what in ("seconds", "memory")))
        for name, each in found["models"].items()
    )
    over_all = tuple(f"{found[f'median_{what}']:.0%}" for what in ("seconds", "memory"))
    heads = ("model", "time, stage by stage", "memory")
    return Table("Predicted stages on an H200, off by", heads, (*rows, ("median", *over_all)))
