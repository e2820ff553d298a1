"""The sections of the bench, put together."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trimtab.core import BadInputError
from trimtab.kernel import sweep_groups
from trimtab_bench.fabric import false_failovers, outage_figures, outages, reconcile, throughput, training
from trimtab_bench.fabric.goals import goals
from trimtab_bench.fabric.published import THORN
from trimtab_bench.goals import goals_table
from trimtab_bench.kept import Kept, Key, done
from trimtab_bench.options import BenchOptions
from trimtab_bench.result import BenchResult, Table

MEASURED = (outages, training, throughput, reconcile, false_failovers)
TOLD = (outage_figures, training, throughput, reconcile, false_failovers)


def all_sections(options: BenchOptions) -> BenchResult:
    """What `trimtab bench fabric` answers with."""
    if os.geteuid() != 0:
        raise BadInputError("bench fabric makes network namespaces and control groups; run it as root")
    sweep_groups()
    parts = [part for section in MEASURED for part in section.parts(options.quick)]
    with options.progress(len(parts), "breaking links") as tell:
        found = done(parts, Kept.of("fabric", _made_from(options)), tell)
    figures = put_together(found)
    rivals = {variant: each for variant, each in figures["outage_ms"].items() if variant != "ours"}
    return BenchResult("fabric", figures, {"outage_ms": rivals}, THORN, options.seed, _tables(found, figures))


def put_together(found: Mapping[Key, Any]) -> dict[str, Any]:
    """The figures, from what all parts answered."""
    figures: dict[str, Any] = {}
    for section in TOLD:
        figures |= section.figures(found)
    figures["goals"] = goals(figures)
    return figures


def _tables(found: Mapping[Key, Any], figures: Mapping[str, Any]) -> tuple[Table, ...]:
    measured = (table for section in TOLD for table in section.tables(found))
    return (*measured, goals_table(figures["goals"]))


def _made_from(options: BenchOptions) -> Iterator[bytes]:
    """What was asked for, and the code that is measured and measures, with the jobs that train."""
    yield repr(options.quick).encode()
    here = Path(__file__).resolve().parent
    for folder in (here, here.parents[1] / "fabric", here.parents[3] / "examples" / "fabric"):
        for path in sorted([*folder.rglob("*.py"), *folder.rglob("*.c")]):
            yield path.read_bytes()
