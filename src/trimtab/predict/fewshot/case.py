"""Cases: one application with one input in one environment, measured under several configurations.

Every data set has the same table of settings and the same table of metrics, in SI units; the order here is
the column order, and NaN means unknown or not applicable. A setting of a configuration is known before it
runs; a metric is measured in a run, per second of run time or as a fraction, so that it describes the
application and not its duration.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trimtab.core import BadInputError
from trimtab.predict.tables import take_rows

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

# Settings on a scale: their ratio counts.
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

# The metrics of the FLASH paper's table 2, and those that sar and a control group add to them.
METRIC_MEANINGS: Mapping[str, str] = {
    "cpu_user": "CPU seconds in user mode per second, per node",
    "cpu_system": "CPU seconds in the kernel per second, per node",
    "cpu_waiting": "CPU seconds idle for want of a disk per second, per node",
    "context_switches": "voluntary context switches per second; all where the two kinds are not separated",
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
    """`rows` rows of SETTINGS; missing columns are NaN."""
    return _table(SETTINGS, rows, columns)


def metrics_table(rows: int, **columns: ArrayLike) -> Array:
    """`rows` rows of METRICS; missing columns are NaN."""
    return _table(METRICS, rows, columns)


def _table(names: tuple[str, ...], rows: int, columns: Mapping[str, ArrayLike]) -> Array:
    table = np.full((rows, len(names)), np.nan)
    for name, values in columns.items():
        if name not in names:
            raise BadInputError(f"there is no column {name!r}; the columns are {', '.join(names)}")
        table[:, names.index(name)] = values
    return table


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """Measurements of an application, one row per configuration; no configuration comes twice.

    Cases of one `application` are held out together in a backtest. A configuration has the same key in all
    cases. `seconds` is positive wherever the run completed (`ok`); of a failed run, it is when it ended, or
    NaN. `data` names the input, where it is known before the run: cases of equal data have something in
    common. The arrays are read-only.
    """

    corpus: str
    application: str
    name: str
    environment: str
    configurations: tuple[str, ...]
    settings: Array
    metrics: Array
    seconds: Array
    ok: Flags
    data: str = ""

    def __post_init__(self) -> None:
        rows = len(self.configurations)
        if not rows:
            raise BadInputError(f"{self.label} has no measured configuration")
        if len(set(self.configurations)) < rows:
            raise BadInputError(f"{self.label} has the same configuration twice; average repeats first")
        shapes = {
            "settings": (float, (rows, len(SETTINGS))),
            "metrics": (float, (rows, len(METRICS))),
            "seconds": (float, (rows,)),
            "ok": (bool, (rows,)),
        }
        for field, (kind, shape) in shapes.items():
            values = np.array(getattr(self, field), dtype=kind)
            if values.shape != shape:
                raise BadInputError(f"{self.label}: {field} has the shape {values.shape}, not {shape}")
            if np.isinf(values).any():
                raise BadInputError(f"{self.label}: {field} has an infinite value; unknown is NaN")
            values.flags.writeable = False
            object.__setattr__(self, field, values)
        for wrong, expected in (
            (self.seconds <= 0, "times are positive"),
            (self.ok & np.isnan(self.seconds), "a completed run has a time"),
        ):
            for row in np.flatnonzero(wrong)[:1]:
                where = f"{self.label}, {self.configurations[row]}"
                raise BadInputError(f"{where}: {self.seconds[row]:g} seconds; {expected}")

    def __len__(self) -> int:
        return len(self.configurations)

    @property
    def label(self) -> str:
        return f"{self.corpus}, {self.environment}, {self.application}, {self.name}"

    def setting(self, name: str) -> Array:
        return np.asarray(self.settings[:, SETTINGS.index(name)])

    def metric(self, name: str) -> Array:
        return np.asarray(self.metrics[:, METRICS.index(name)])

    def only(self, rows: ArrayLike) -> "Case":
        """The case with the rows of a mask, or of indices in their order."""
        return take_rows(self, rows)

    def known_at(self, known: NDArray[np.intp]) -> "Case":
        """The case with times and metrics known only in these rows; elsewhere they are NaN."""
        shown = np.isin(np.arange(len(self)), known)
        return replace(
            self,
            metrics=np.where(shown[:, None], self.metrics, np.nan),
            seconds=np.where(shown, self.seconds, np.nan),
            ok=self.ok & shown,
        )


@dataclass(frozen=True, slots=True)
class Corpus:
    """Cases that were measured together."""

    name: str
    cases: tuple[Case, ...]

    def __post_init__(self) -> None:
        if not self.cases:
            raise BadInputError(f"{self.name} has no case")

    @property
    def applications(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(case.application for case in self.cases))

    @property
    def environments(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(case.environment for case in self.cases))

    def within(self, *environments: str) -> "Corpus":
        """The cases of these environments."""
        chosen = tuple(case for case in self.cases if case.environment in environments)
        if not chosen:
            known = ", ".join(self.environments)
            raise BadInputError(f"{self.name} has no case in {' or '.join(environments)}, only in {known}")
        return Corpus(self.name, chosen)

    def completed(self) -> "Corpus":
        """The runs that completed; a case without one drops out."""
        cases = tuple(case.only(case.ok) for case in self.cases if case.ok.any())
        if not cases:
            raise BadInputError(f"{self.name} has no completed run")
        return Corpus(self.name, cases)
