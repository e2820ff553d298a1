"""One table of settings and one of metrics for every data set, in SI units; the order is the column order.

NaN says that a value is unknown or does not apply. A setting is what was asked for and is known of every
configuration; a metric is what a run showed, per second of run time or as a fraction, so that it describes
the application and not how long it ran.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trimtab.core import BadInputError

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

# Settings on a scale: what counts is the ratio of two values.
SCALES: Mapping[str, str] = {
    "memory_bytes": "memory of a node, or the limit of a function's container",
    "cpus": "CPUs of a node; a share of one for a small function",
    "nodes": "machines the work is spread over",
    "price_per_hour": "dollars per hour and node",
    "accelerators": "GPUs in all; 0 where it runs on CPUs",
    "accelerator_flops": "peak FLOP/s of one GPU in the format used",
    "accelerator_bandwidth": "bytes/s between one GPU and its memory",
    "batch_size": "samples in one step",
    "generation": "generation of the instance family: the 4 of m4",
}

# Settings that are 0 or 1. Where a data set only has codes, a code's meaning depends on the provider.
SWITCHES: Mapping[str, str] = {
    "half_precision": "computes in 16 bits",
    "training": "trains; 0 is inference",
    "consolidated": "all GPUs in one machine",
    "provider_a": "rented from the provider called A",
    "provider_b": "rented from the provider called B",
    "provider_c": "rented from the provider called C",
    "family_1": "the provider's instance family has code 1",
    "family_2": "the provider's instance family has code 2",
    "type_1": "the family's machine type has code 1",
    "type_2": "the family's machine type has code 2",
}

SETTINGS: tuple[str, ...] = (*SCALES, *SWITCHES)

# Those of the FLASH paper's table 2, and what sar and a control group add to them.
METRIC_MEANINGS: Mapping[str, str] = {
    "cpu_user": "CPU seconds in user mode per second, per node",
    "cpu_system": "CPU seconds in the kernel per second, per node",
    "cpu_waiting": "CPU seconds idle for want of a disk per second, per node",
    "context_switches": "voluntary context switches per second; all where they are not told apart",
    "involuntary_switches": "context switches forced by the scheduler per second",
    "bytes_read": "bytes read from disk per second, per node",
    "bytes_written": "bytes written to disk per second, per node",
    "bytes_received": "bytes received over the network per second, per node",
    "bytes_sent": "bytes sent over the network per second, per node",
    "major_faults": "page faults that went to disk per second",
    "disk_busy": "fraction of the time the disk had something to do",
    "heap_used": "bytes of the language runtime's heap in use",
    "memory_used": "bytes of memory in use, per node",
    "memory_fraction": "memory in use over the memory there is",
    "throttled": "fraction of the time the CPU limit held it back",
    "seconds_deviation": "standard deviation of the runs' times over their mean",
    "seconds_least": "the fastest run's time over the mean",
    "seconds_median": "the median of the runs' times over their mean",
    "probe_seconds": "seconds a fixed piece of work took in the same place: how fast the place is",
}

METRICS: tuple[str, ...] = tuple(METRIC_MEANINGS)


def settings_table(rows: int, **columns: ArrayLike) -> Array:
    """`rows` rows of SETTINGS; what is not given is NaN."""
    return _table(SETTINGS, rows, columns)


def metrics_table(rows: int, **columns: ArrayLike) -> Array:
    """`rows` rows of METRICS; what is not given is NaN."""
    return _table(METRICS, rows, columns)


def _table(names: tuple[str, ...], rows: int, columns: Mapping[str, ArrayLike]) -> Array:
    table = np.full((rows, len(names)), np.nan)
    for name, values in columns.items():
        if name not in names:
            raise BadInputError(f"there is no column {name!r}; the columns are {', '.join(names)}")
        table[:, names.index(name)] = values
    return table
