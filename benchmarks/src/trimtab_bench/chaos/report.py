"""The runs on all stores put together: figures by store, their sums, and tables."""

import os
import shutil
from collections.abc import Mapping
from typing import Any

from trimtab.core import BadInputError, TrimtabError, did_you_mean
from trimtab_bench.chaos.plan import STORES
from trimtab_bench.chaos.system import c_compiler
from trimtab_bench.chaos.trial import ChaosResult, chaos_trial
from trimtab_bench.chaos.verdict import ZERO
from trimtab_bench.harness import BenchOptions, BenchResult, ResultTable

_MINUTES = 10.0
_QUICK_MINUTES = 2.0
_SUMS = ("acknowledged", "ended", "failed", "refused", *ZERO, "faults", "events")


def all_stores(options: BenchOptions) -> BenchResult:
    from trimtab.serve import Settings, require_installed

    require_installed(Settings(dashboard=False))
    stores = _stores(options.store)
    _require_machine()
    minutes = options.minutes or (_QUICK_MINUTES if options.quick else _MINUTES)
    results = {store: _with_progress(store, 60.0 * minutes, options) for store in stores}
    figures = sums(results) | {"stores": {store: result.figures for store, result in results.items()}}
    failure = "\n".join(result.failure for result in results.values() if result.failure)
    return BenchResult("chaos", figures, {}, {}, options.seed, tables(figures["stores"]), failure)


def _stores(name: str | None) -> tuple[str, ...]:
    if name is None:
        return STORES
    if name not in STORES:
        near = did_you_mean(name, STORES)
        raise BadInputError(f'--store: should be {" or ".join(STORES)}, not "{name:.40}"{near}')
    return (name,)


def _require_machine() -> None:
    if os.geteuid() != 0:
        raise TrimtabError("this bench mounts a small disk and makes control groups; run it as root")
    for program in ("mount", "setpriv"):
        if shutil.which(program) is None:
            raise TrimtabError(f"this bench needs the program {program}; apt-get install util-linux")
    c_compiler()


def _with_progress(store: str, seconds: float, options: BenchOptions) -> ChaosResult:
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, disable=options.quiet) as bars:
        bar = bars.add_task(store, total=seconds)

        def announce(passed: float, counts: str) -> None:
            bars.update(bar, completed=passed, description=f"{store}: {counts}")

        return chaos_trial(store, seconds, options.seed, announce)


def sums(results: Mapping[str, ChaosResult]) -> dict[str, Any]:
    """Counts over all stores."""
    return {name: sum(result.figures[name] for result in results.values()) for name in _SUMS}


def tables(stores: Mapping[str, Mapping[str, Any]]) -> tuple[ResultTable, ...]:
    columns = ("", *stores)
    counts = [(name, *(f"{figures[name]}" for figures in stores.values())) for name in _SUMS]
    kinds = sorted({kind for figures in stores.values() for kind in figures["by_kind"]})
    faults = [
        (kind, *(f"{figures['by_kind'].get(kind, 0)}" for figures in stores.values())) for kind in kinds
    ]
    return ResultTable("Verdict", columns, counts), ResultTable("Faults", columns, faults)
