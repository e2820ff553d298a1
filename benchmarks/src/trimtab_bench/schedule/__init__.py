"""Scheduling: all policies on the same jobs in the same simulator, and published results.

Workloads on 64 accelerators of three kinds, Gavel's trace of rigid jobs, promises on Microsoft's Philly jobs
(deadlines, priorities, tenants, wrong estimates), spot nodes, and how long it takes. Finished parts are kept.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import trimtab.schedule
from trimtab.core import BadInputError
from trimtab_bench.harness import BenchOptions, BenchResult, Kept, Key, code_below, finish
from trimtab_bench.schedule.parts import parts_of
from trimtab_bench.schedule.report import compared, goals, tables
from trimtab_bench.schedule.workloads import GAVEL, GAVEL_TRACE, SIA, SIA_SECONDS

_OVER_SEEDS = ("deadlines", "priorities", "priorities_busier", "tenants", "beliefs", "spot")
PUBLISHED = {
    "Sia's own simulator, average h": {name: result.average for name, result in SIA.items()},
    "Sia's own simulator, 99th percentile h": {name: result.p99 for name, result in SIA.items()},
    "Sia's own simulator, seconds here": {"saturn-1": SIA_SECONDS},
    "Gavel's policy in Sia's simulator, average h": {name: result.average for name, result in GAVEL.items()},
    "Gavel's own simulator on its trace, average h": {
        name: average for name, (average, _) in GAVEL_TRACE.items()
    },
}
_DATA = ("goodput/*.csv.gz", "gpu-throughput/gavel_*.csv.gz")


def run(options: BenchOptions) -> BenchResult:
    """All sections; figures with chance in them are means over seeds, with their least and most."""
    if options.data is None:
        raise BadInputError(
            "bench schedule needs --data, a folder with the data sets goodput and gpu-throughput"
        )
    parts = parts_of(options, options.data)
    data = [path for pattern in _DATA for path in sorted(options.data.glob(pattern))]
    product = Path(trimtab.schedule.__file__).resolve().parent
    code = code_below(Path(__file__).resolve().parent, product)
    kept = Kept.of("schedule", (options.quick, options.seed), [*data, *code])
    with options.progress(len(parts), "simulating") as announce:
        figures = _figures(finish(parts, kept, announce), listed=options.workloads is None)
    baselines = {
        "workloads": {name: _rival_hours(results) for name, results in figures["workloads"].items()},
        "gavel_trace": _rival_hours(figures["gavel_trace"]),
    }
    return BenchResult("schedule", figures, baselines, PUBLISHED, options.seed, tables(figures))


def _rival_hours(by_policy: Mapping[str, Any]) -> dict[str, float]:
    """Average hours to completion under the policies of others."""
    rivals = [policy for policy in by_policy if not policy.startswith("trimtab")]
    return {policy: by_policy[policy]["avg_jct_h"] for policy in rivals}


def _figures(results: Mapping[Key, Any], listed: bool) -> dict[str, Any]:
    """By section; `workloads[name][policy]`, `round_seconds[jobs]`, and so on."""
    figures: dict[str, Any] = {"workloads": {}, "gavel_trace": {}, "round_seconds": {}}
    for key, value in results.items():
        if key[0] == "workloads":
            figures["workloads"].setdefault(key[1], {})[key[2]] = value
        elif key[0] in figures:
            figures[key[0]][key[1]] = value
    for name in _OVER_SEEDS:
        seeds = [value for key, value in results.items() if key[0] == name]
        figures[name] = {}
        for policy, columns in seeds[0].items():
            values = {column: [seed[policy][column] for seed in seeds] for column in columns}
            figures[name][policy] = {column: sum(v) / len(v) for column, v in values.items()}
            figures[name][policy]["ranges"] = {column: [min(v), max(v)] for column, v in values.items()}
    figures["simulating"] = {
        key[1]: result["seconds"] for key, result in results.items() if key[0] == "sim_seconds"
    }
    figures["sim_seconds"] = figures["simulating"]["trimtab"]
    figures["job_rounds_per_second"] = {
        key[1]: result for key, result in results.items() if key[0] == "job_rounds"
    }
    figures["compared"] = compared(figures["workloads"], listed)
    figures["goals"] = goals(figures)
    return figures
