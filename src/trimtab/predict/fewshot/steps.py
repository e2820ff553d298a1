"""Measured steps of deep-learning models on one GPU and on two CPU threads, as cases.

A case is a model; its configurations are the device, training or inference, the precision and the batch size.
"""

import math
from pathlib import Path

import numpy as np

from trimtab.catalog import accelerator
from trimtab.predict.cost.measurements import MeasuredStep, read_measurements
from trimtab.predict.fewshot.case import Corpus
from trimtab.predict.fewshot.rows import Rows
from trimtab.predict.fewshot.schema import metrics_table, settings_table

_GPU = "H200"
_CPU_THREADS = 2.0


def read(folder: Path, gpu: str = _GPU) -> Corpus:
    """The steps in a folder; `gpu` is what its device `cuda` was. One out of memory has no time."""
    steps = read_measurements(folder)
    device = accelerator(gpu)
    on_gpu = np.array([step.device != "cpu" for step in steps])
    memory = np.array([step.peak_memory or math.nan for step in steps])
    peak = np.array([device.peak.get(step.precision, math.nan) for step in steps])
    rows = len(steps)
    return Rows(
        application=[step.name for step in steps],
        name=[step.name for step in steps],
        environment=(gpu,) * rows,
        configuration=[_configuration(step, gpu) for step in steps],
        settings=settings_table(
            rows,
            cpus=np.where(on_gpu, math.nan, _CPU_THREADS),
            nodes=1.0,
            accelerators=on_gpu,
            accelerator_flops=np.where(on_gpu, peak, math.nan),
            accelerator_bandwidth=np.where(on_gpu, device.memory_bandwidth, math.nan),
            batch_size=[step.batch for step in steps],
            half_precision=[step.precision == "bf16" for step in steps],
            training=[step.training for step in steps],
        ),
        metrics=metrics_table(rows, memory_used=memory, memory_fraction=memory / device.memory),
        seconds=np.array([step.seconds or math.nan for step in steps]),
        ok=np.array([not step.out_of_memory for step in steps]),
    ).corpus("steps")


def _configuration(step: MeasuredStep, gpu: str) -> str:
    device = "cpu" if step.device == "cpu" else gpu
    return f"{device} {'train' if step.training else 'infer'} {step.precision} batch={step.batch}"
