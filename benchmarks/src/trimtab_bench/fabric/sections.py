"""Sections of the fabric bench: their parts, figures, tables, goals and published results.

Published results: the thesis on THORN-ML (seed 002, chapter 3), A100 GPUs, ConnectX-5, offloaded VXLAN.
"""

import os
from collections.abc import Mapping
from operator import ge, le
from pathlib import Path
from typing import Any

from trimtab import fabric
from trimtab.core import BadInputError
from trimtab.kernel import sweep_groups
from trimtab_bench.fabric import false_failovers, outages, reconcile, throughput, training
from trimtab_bench.fabric.reconcile import PERIOD
from trimtab_bench.harness import BenchGoal, BenchOptions, BenchResult, Kept, Key, finish, goals_table, judged

THORN = {
    "THORN-ML, time of an iteration under its fault cycle, 90th to 95th percentile": {
        "data parallel": "+5.3 to 7.3 ms (1.1 to 1.6 %)",
        "pipeline parallel": "+54.9 to 76.7 ms (5.6 to 7.8 %)",
        "pipeline and tensor parallel": "+729.4 to 928.4 ms (9.2 to 11.7 %)",
    },
    "THORN-ML, NCCL bandwidth under faults, 80th percentile": {"most difference": "0.129 Gbit/s"},
    "THORN-ML, a single fault": {"added latency": "only above the 99.9th percentile"},
    "THORN-ML, without it, per failure": {"GPT-2": "27.0 to 30.8 s", "ResNet101": "up to 85 s"},
}


_LATE = 0.1  # s that a change may take once it is noticed
MEASURED = (outages, training, throughput, reconcile, false_failovers)


def all_sections(options: BenchOptions) -> BenchResult:
    """Result of `trimtab bench fabric`: figures, goals, tables and published results."""
    if os.geteuid() != 0:
        raise BadInputError("bench fabric makes network namespaces and control groups; run it as root")
    sweep_groups()
    parts = [part for section in MEASURED for part in section.parts(options.quick)]
    here = Path(__file__).resolve().parent
    folders = (here, Path(fabric.__path__[0]), here.parents[3] / "examples" / "fabric")
    code = [path for folder in folders for path in sorted([*folder.rglob("*.py"), *folder.rglob("*.c")])]
    with options.progress(len(parts), "breaking links") as announce:
        results = finish(parts, Kept.of("fabric", options.quick, code), announce)
    figures = put_together(results)
    rivals = {variant: figure for variant, figure in figures["outage_ms"].items() if variant != "ours"}
    tables = [table for section in MEASURED for table in section.tables(results)]
    return BenchResult(
        "fabric",
        figures,
        {"outage_ms": rivals},
        THORN,
        options.seed,
        (*tables, goals_table(figures["goals"])),
    )


def put_together(results: Mapping[Key, Any]) -> dict[str, Any]:
    """Figures of all sections, and whether the goals are met."""
    figures: dict[str, Any] = {}
    for section in MEASURED:
        figures |= section.figures(results)
    silent, link_down = figures["silent_outage_ms"], figures["link_down_outage_ms"]
    bounds = [
        ("outage of a silent fault, median ms", silent["p50"], le, 40.0),
        ("outage of a silent fault, worst ms", silent["max"], le, 60.0),
        ("outage of a link down, worst ms", link_down["max"], le, 10.0),
        ("failovers without a fault", float(figures["false_failovers"]), le, 0.0),
        ("training under faults, times without", figures["training_slowdown"], le, 1.02),
        ("training jobs that crashed under faults", float(figures["training_crashes"]), le, 0.0),
        ("final loss of training differs by", figures["training_loss_difference"], le, 0.0),
        ("throughput of the virtual device to the underlay's", figures["throughput_ratio"], ge, 0.75),
        ("a change is in the data plane, worst ms", figures["reconcile_ms"]["max"], le, 100.0),
        ("after losing every event, s", figures["after_losing_all_s"], le, PERIOD + _LATE),
        ("10,000 MACs at once, s", figures["full_sync_s_10k"], le, 2.0),
    ]
    figures["goals"] = judged(BenchGoal(*bound) for bound in bounds)
    return figures
