"""Functions measured under limits of memory and CPU, as Trimtab itself writes them down.

One row per environment, application and size, with means per invocation. An environment is a rule by which
a memory size comes with CPU time: `lambda` or `openwhisk`.
"""

from importlib.resources import files
from pathlib import Path

import numpy as np

from trimtab.core import BadInputError
from trimtab.predict.fewshot.case import Corpus
from trimtab.predict.fewshot.rows import Rows
from trimtab.predict.fewshot.schema import Array, metrics_table, settings_table
from trimtab.predict.fewshot.table import Table, read_table

_PER_INVOCATION = {
    "cpu_user": "cpu_user_s",
    "cpu_system": "cpu_system_s",
    "context_switches": "voluntary_switches",
    "involuntary_switches": "involuntary_switches",
    "bytes_read": "bytes_read",
    "bytes_written": "bytes_written",
    "bytes_received": "bytes_received",
    "bytes_sent": "bytes_sent",
    "throttled": "throttled_s",
}
_COLUMNS = (
    "environment", "application", "memory_mb", "cpus", "status", "mean_s", "median_s", "std_s", "min_s",
    *_PER_INVOCATION.values(), "memory_peak_bytes", "probe_s",
)  # fmt: skip

BUNDLED_FUNCTIONS = Path(str(files("trimtab.predict") / "data" / "functions" / "functions.csv"))
"""Measurements of functions that were made with `trimtab collect functions`."""

_MIB = 2.0**20


def read(path: Path) -> Corpus:
    """The functions in a file; a row whose status is not `ok` is not ok, and may have no time."""
    if path.is_dir():
        raise BadInputError(f"{path} is a folder; give the CSV file of the measured functions")
    table = read_table(path, _COLUMNS)
    ok = np.array(table.text("status")) == "ok"
    sizes, cpus = table.positive("memory_mb"), table.positive("cpus")
    table.only(ok, "whose status is ok").positive("mean_s")
    seconds = _above_zero(table.numbers("mean_s"))
    return Rows(
        application=table.text("application"),
        name=table.text("application"),
        environment=table.text("environment"),
        configuration=[f"{size:g}MB cpus={share:g}" for size, share in zip(sizes, cpus, strict=True)],
        settings=settings_table(
            len(table), memory_bytes=sizes * _MIB, cpus=cpus, nodes=1.0, accelerators=0.0
        ),
        metrics=_metrics(table, seconds, sizes * _MIB),
        seconds=seconds,
        ok=ok,
    ).corpus("functions")


def _metrics(table: Table, seconds: Array, limit: Array) -> Array:
    rates = {name: table.numbers(column) / seconds for name, column in _PER_INVOCATION.items()}
    peak = _above_zero(table.numbers("memory_peak_bytes"))
    return metrics_table(
        len(table),
        **rates,
        memory_used=peak,
        memory_fraction=peak / limit,
        seconds_deviation=table.numbers("std_s") / seconds,
        seconds_least=table.numbers("min_s") / seconds,
        seconds_median=table.numbers("median_s") / seconds,
        probe_seconds=_above_zero(table.numbers("probe_s")),
    )


def _above_zero(values: Array) -> Array:
    """What failed before it could be measured is written down as zero: unknown."""
    return np.where(values > 0, values, np.nan)
