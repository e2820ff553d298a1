"""Gavel's throughputs: training jobs alone on one to eight K80, P100 or V100.

A case is a model with a batch size; the model is the application. Seconds are those of one step.
"""

from pathlib import Path

import numpy as np

from trimtab.catalog import accelerator
from trimtab.core import NotFoundError
from trimtab.predict.fewshot.case import Corpus
from trimtab.predict.fewshot.rows import Rows
from trimtab.predict.fewshot.schema import Array, metrics_table, settings_table
from trimtab.predict.fewshot.table import Table, find, read_table

_COLUMNS = (
    "source", "accelerator", "consolidated", "model", "batch_size", "num_gpus", "other_model", "steps_per_s",
)  # fmt: skip


def read(folder: Path, source: str = "simulation") -> Corpus:
    """Jobs that ran alone; zero throughput means not measured and is left out.

    There are two sources, `simulation` and `physical_cluster`; they hold the same measurements but for a few.
    """
    table = read_table(find(folder, "gpu-throughput", "gavel_throughputs.csv"), _COLUMNS)
    alone = np.array([not other for other in table.columns["other_model"]])
    table = table.only(alone & (np.array(table.columns["source"]) == source), f"of a job alone from {source}")
    rate = table.numbers("steps_per_s")
    table = table.only(rate != 0, "with a throughput")
    models, sizes = table.text("model"), table.numbers("batch_size")
    devices, together = table.text("accelerator"), table.flags("consolidated")
    count = table.positive("num_gpus")
    flops, bandwidth = _facts(table).T
    return Rows(
        application=models,
        name=[m if np.isnan(b) else f"{m} batch={b:g}" for m, b in zip(models, sizes, strict=True)],
        environment=table.text("source"),
        configuration=[
            f"{device} gpus={n:g} {'consolidated' if one else 'spread'}"
            for device, n, one in zip(devices, count, together, strict=True)
        ],
        settings=settings_table(
            len(table),
            accelerators=count,
            accelerator_flops=flops,
            accelerator_bandwidth=bandwidth,
            batch_size=sizes,
            half_precision=0.0,
            training=1.0,
            consolidated=together,
        ),
        metrics=metrics_table(len(table)),
        seconds=1.0 / table.positive("steps_per_s"),
        ok=np.ones(len(table), dtype=bool),
    ).corpus("gavel")


def _facts(table: Table) -> Array:
    """Peak FLOP/s in fp32 and bytes/s of the GPU in every row."""
    known: dict[str, tuple[float, float]] = {}
    for row, name in enumerate(table.text("accelerator")):
        if name in known:
            continue
        try:
            device = accelerator(name)
        except NotFoundError as error:
            raise table.error(row, "accelerator", str(error)) from None
        known[name] = (device.peak["fp32"], device.memory_bandwidth)
    return np.array([known[name] for name in table.columns["accelerator"]])
