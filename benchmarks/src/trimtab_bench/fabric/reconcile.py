"""How soon does the data plane follow? Single changes among 1,000 MACs, all messages lost, 10,000 at once."""

from collections.abc import Mapping
from functools import partial
from statistics import median
from typing import Any

from trimtab_bench.fabric.measure_reconcile import measure_reconciling
from trimtab_bench.kept import Key, Part
from trimtab_bench.result import Table

MACS, MANY = 1000, 10_000
CHANGES, QUICK_CHANGES = 60, 6
PERIOD = 1.0
"""Seconds after which everything is compared although nothing was heard."""
_KEY = ("reconcile",)


def parts(quick: bool) -> list[Part]:
    """All in one."""
    return [Part(_KEY, partial(reconcile_seconds, QUICK_CHANGES if quick else CHANGES))]


def reconcile_seconds(changes: int) -> dict[str, Any]:
    """Seconds of each change, heard of or not, and of all MACs at once."""
    told = measure_reconciling(MACS, changes, MANY, PERIOD)
    return {
        "changes": told.changes,
        "without_messages": told.without_messages,
        "full_sync": told.full_sync,
        "compared_again": told.compared_again,
    }


def figures(found: Mapping[Key, Any]) -> dict[str, Any]:
    """`reconcile_ms` is of single changes."""
    told = found[_KEY]
    return {
        "reconcile_ms": {
            "p50": median(told["changes"]) * 1e3,
            "max": max(told["changes"]) * 1e3,
            "n": len(told["changes"]),
        },
        "after_losing_all_s": max(told["without_messages"]),
        "full_sync_s_10k": told["full_sync"],
        "compared_again_s_10k": told["compared_again"],
    }


def tables(found: Mapping[Key, Any]) -> list[Table]:
    """One row for each question."""
    told = figures(found)
    single = told["reconcile_ms"]
    rows = (
        (f"a change among {MACS:,} MACs, ms", f"{single['p50']:.1f}", f"{single['max']:.1f}"),
        ("the same with every message lost, s", "", f"{told['after_losing_all_s']:.2f}"),
        (f"{MANY:,} MACs at once, s", "", f"{told['full_sync_s_10k']:.2f}"),
        (f"{MANY:,} MACs compared again, s", "", f"{told['compared_again_s_10k']:.2f}"),
    )
    return [Table("The data plane follows", ("until it is right", "median", "worst"), rows)]
