"""Functions in containers of one CPU and eight memory limits: 22 real ones and 30 put together from segments.

The column `repetition` counts inputs, not repeats, so every one is a case of its own. The environment is
`real` or `synthetic`; an application's name starts with it too.
"""

from pathlib import Path

import numpy as np

from trimtab.predict.fewshot.case import Corpus
from trimtab.predict.fewshot.rows import Rows
from trimtab.predict.fewshot.schema import Array, metrics_table, settings_table
from trimtab.predict.fewshot.table import Table, find, read_table

_COLUMNS = (
    "source", "runtime", "app", "memory_mb", "repetition", "dur_mean", "dur_median", "dur_std", "dur_min",
    "userDiff_mean", "sysDiff_mean", "vContextSwitches_mean", "ivContextSwitches_mean", "fsRead_mean",
    "fsWrite_mean", "netByRx_mean", "netByTx_mean", "heapUsed_mean", "maxRss_mean", "rss_mean",
)  # fmt: skip

_MIB = 2.0**20
_KIB = 1024.0
_BLOCK = 512.0  # what getrusage counts file system traffic in


def read(folder: Path) -> Corpus:
    """Mean seconds of an invocation."""
    table = read_table(find(folder, "serverless-memory", "serverless_memory.csv"), _COLUMNS)
    sources, apps = table.text("source"), table.text("app")
    inputs, sizes = table.text("repetition"), table.positive("memory_mb")
    seconds = table.positive("dur_mean") / 1e3
    return Rows(
        application=[f"{source}/{app}" for source, app in zip(sources, apps, strict=True)],
        name=[f"{app}-{n}" for app, n in zip(apps, inputs, strict=True)],
        environment=sources,
        configuration=[f"{size:g}MB" for size in sizes],
        settings=settings_table(len(table), memory_bytes=sizes * _MIB, cpus=1.0, nodes=1.0, accelerators=0.0),
        metrics=_metrics(table, seconds, sizes * _MIB),
        seconds=seconds,
        ok=np.ones(len(table), dtype=bool),
    ).corpus("serverless")


def _metrics(table: Table, seconds: Array, limit: Array) -> Array:
    # Node.js reports the resident bytes, Python the KiB by which an invocation raised their peak.
    in_node = np.array(table.columns["runtime"]) == "nodejs"
    memory = np.where(in_node, table.numbers("rss_mean"), table.numbers("maxRss_mean") * _KIB)
    return metrics_table(
        len(table),
        cpu_user=table.numbers("userDiff_mean") / 1e6 / seconds,
        cpu_system=table.numbers("sysDiff_mean") / 1e6 / seconds,
        context_switches=table.numbers("vContextSwitches_mean") / seconds,
        involuntary_switches=table.numbers("ivContextSwitches_mean") / seconds,
        bytes_read=table.numbers("fsRead_mean") * _BLOCK / seconds,
        bytes_written=table.numbers("fsWrite_mean") * _BLOCK / seconds,
        bytes_received=table.numbers("netByRx_mean") / seconds,
        bytes_sent=table.numbers("netByTx_mean") / seconds,
        heap_used=table.numbers("heapUsed_mean"),
        memory_used=memory,
        memory_fraction=memory / limit,
        seconds_deviation=table.numbers("dur_std") / 1e3 / seconds,
        seconds_least=table.numbers("dur_min") / 1e3 / seconds,
        seconds_median=table.numbers("dur_median") / 1e3 / seconds,
    )
