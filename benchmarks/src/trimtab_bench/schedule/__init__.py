"""Scheduling: the same simulator, the same jobs, all policies in one run, beside what others published.

Workloads on 64 accelerators of three kinds, Gavel's trace of rigid jobs, promises on Microsoft's Philly jobs
(deadlines, priorities, tenants, wrong estimates), spot nodes, and how long it takes. Finished parts are kept.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import trimtab.schedule
from trimtab.core import BadInputError
from trimtab_bench.harness import BenchOptions, BenchResult, Kept, Key, done
from trimtab_bench.schedule.parts import parts_of
from trimtab_bench.schedule.report import compared, goals, tables
from trimtab_bench.schedule.workloads import GAVEL, GAVEL_TRACE, SIA, SIA_SECONDS

_OVER_SEEDS = ("deadlines", "priorities", "priorities_busier", "tenants", "beliefs", "spot")
_DATA = ("goodput/*.csv.gz", "gpu-throughput/gavel_*.csv.gz")


def run(options: BenchOptions) -> BenchResult:
    """All sections; figures with chance in them are means over seeds, with their least and most."""
    if options.data is None:
        raise BadInputError(
            "bench schedule needs --data, a folder with the data sets goodput and gpu-throughput"
        )
    parts = parts_of(options, options.data)
    kept = Kept.of("schedule", _made_from(options, options.data))
    with options.progress(len(parts), "simulating") as tell:
        figures = _figures(done(parts, kept, tell), listed=options.workloads is None)
    return BenchResult("schedule", figures, _baselines(figures), _published(), options.seed, tables(figures))


def _figures(found: Mapping[Key, Any], listed: bool) -> dict[str, Any]:
    """By section; `workloads[name][policy]`, `round_seconds[jobs]`, and so on."""
    figures: dict[str, Any] = {"workloads": {}, "gavel_trace": {}, "round_seconds": {}}
    for key, value in found.items():
        if key[0] == "workloads":
            figures["workloads"].setdefault(key[1], {})[key[2]] = value
        elif key[0] in figures:
            figures[key[0]][key[1]] = value
    for name in _OVER_SEEDS:
        figures[name] = _over_seeds([value for key, value in found.items() if key[0] == name])
    figures["simulating"] = {
        key[1]: each["seconds"] for key, each in found.items() if key[0] == "sim_seconds"
    }
    figures["sim_seconds"] = figures["simulating"]["trimtab"]
    figures["job_rounds_per_second"] = {key[1]: each for key, each in found.items() if key[0] == "job_rounds"}
    figures["compared"] = compared(figures["workloads"], listed)
    figures["goals"] = goals(figures)
    return figures


def _over_seeds(found: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, Any]]:
    """By policy, means over seeds; and, of each, the least and the most."""
    means: dict[str, dict[str, Any]] = {}
    for name, columns in found[0].items():
        values = {column: [each[name][column] for each in found] for column in columns}
        means[name] = {column: sum(each) / len(each) for column, each in values.items()}
        means[name]["ranges"] = {column: [min(each), max(each)] for column, each in values.items()}
    return means


def _baselines(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Average hours to completion of everybody else, in the same run."""
    by_workload = {
        name: {who: each["avg_jct_h"] for who, each in by_policy.items() if not who.startswith("trimtab")}
        for name, by_policy in figures["workloads"].items()
    }
    there = {who: each["avg_jct_h"] for who, each in figures["gavel_trace"].items() if who != "trimtab"}
    return {"workloads": by_workload, "gavel_trace": there}


def _published() -> dict[str, Any]:
    return {
        "Sia's own simulator, average h": {name: each.average for name, each in SIA.items()},
        "Sia's own simulator, 99th percentile h": {name: each.p99 for name, each in SIA.items()},
        "Sia's own simulator, seconds here": {"saturn-1": SIA_SECONDS},
        "Gavel's policy in Sia's simulator, average h": {name: each.average for name, each in GAVEL.items()},
        "Gavel's own simulator on its trace, average h": {
            name: average for name, (average, _) in GAVEL_TRACE.items()
        },
    }


def _made_from(options: BenchOptions, data: Path) -> Iterator[bytes]:
    """Options, data and code (measured and measuring) that a kept result depends on."""
    yield repr((options.quick, options.seed)).encode()
    for pattern in _DATA:
        for path in sorted(data.glob(pattern)):
            yield path.read_bytes()
    for folder in (Path(__file__).resolve().parent, Path(trimtab.schedule.__file__).resolve().parent):
        for path in sorted(folder.rglob("*.py")):
            yield path.read_bytes()
