"""Readers of the data sets that few-shot predictors learn from and are tested on.

All are CSV files, plain or gzipped; an error names file, line and column. Rows of one (environment,
application, name) become a case, and repeats of one configuration are averaged.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trimtab.catalog import Accelerator, accelerator
from trimtab.core import GIB, MIB, BadInputError, NotFoundError
from trimtab.predict.cost.measurements import read_measurements
from trimtab.predict.fewshot.case import Array, Case, Corpus, Flags, metrics_table, settings_table
from trimtab.predict.fewshot.predictor import column_means
from trimtab.predict.tables import find_file, read_table


@dataclass(frozen=True, slots=True)
class MeasuredRuns:
    """One entry per run; the fields are those of a case."""

    application: Sequence[str]
    name: Sequence[str]
    environment: Sequence[str]
    configuration: Sequence[str]
    settings: Array
    metrics: Array
    seconds: Array
    ok: Flags
    data: Sequence[str] | None = None

    def corpus(self, name: str) -> Corpus:
        """A case for every (environment, application, name), in the order in which they first come."""
        keys = zip(self.environment, self.application, self.name, strict=True)
        return Corpus(name, tuple(self._case(name, index) for index in _groups(list(keys))))

    def _case(self, corpus: str, index: NDArray[np.intp]) -> Case:
        runs = _groups([self.configuration[i] for i in index])
        chosen = [index[run] for run in runs]
        first = int(index[0])
        return Case(
            corpus=corpus,
            application=self.application[first],
            name=self.name[first],
            environment=self.environment[first],
            configurations=tuple(self.configuration[run[0]] for run in chosen),
            settings=self.settings[[run[0] for run in chosen]],
            metrics=np.array([column_means(self.metrics[run]) for run in chosen]),
            seconds=np.array([column_means(self.seconds[run, None])[0] for run in chosen]),
            ok=np.array([self.ok[run].all() for run in chosen]),
            data=self.data[first] if self.data is not None else "",
        )


def _groups(keys: Sequence[Hashable]) -> list[NDArray[np.intp]]:
    groups: dict[Hashable, list[int]] = {}
    for position, key in enumerate(keys):
        groups.setdefault(key, []).append(position)
    return [np.array(positions, dtype=np.intp) for positions in groups.values()]


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
_FUNCTION_COLUMNS = (
    "environment", "application", "memory_mb", "cpus", "status", "mean_s", "median_s", "std_s", "min_s",
    *_PER_INVOCATION.values(), "memory_peak_bytes", "probe_s",
)  # fmt: skip

BUNDLED_FUNCTIONS = Path(str(files("trimtab.predict") / "data" / "functions" / "functions.csv"))
"""Measurements of functions that were made with `trimtab collect functions`."""


def read_functions(path: Path) -> Corpus:
    """Functions measured under limits of memory and CPU, as `trimtab collect functions` writes them.

    One row per environment, application and size, with means per invocation. An environment is a law by which
    a memory size comes with CPU time: `lambda` or `openwhisk`. A run whose status is not `ok` may have no
    time.
    """
    if path.is_dir():
        raise BadInputError(f"{path} is a folder; give the CSV file of the measured functions")
    table = read_table(path, _FUNCTION_COLUMNS)
    ok = np.array(table.text("status")) == "ok"
    sizes, cpus = table.positive("memory_mb"), table.positive("cpus")
    table.only(ok, "whose status is ok").positive("mean_s")
    seconds, peak = _above_zero(table.numbers("mean_s")), _above_zero(table.numbers("memory_peak_bytes"))
    return MeasuredRuns(
        application=table.text("application"),
        name=table.text("application"),
        environment=table.text("environment"),
        configuration=[f"{size:g}MB cpus={share:g}" for size, share in zip(sizes, cpus, strict=True)],
        settings=settings_table(len(table), memory_bytes=sizes * MIB, cpus=cpus, nodes=1.0, accelerators=0.0),
        metrics=metrics_table(
            len(table),
            **{name: table.numbers(column) / seconds for name, column in _PER_INVOCATION.items()},
            memory_used=peak,
            memory_fraction=peak / (sizes * MIB),
            seconds_deviation=table.numbers("std_s") / seconds,
            seconds_least=table.numbers("min_s") / seconds,
            seconds_median=table.numbers("median_s") / seconds,
            probe_seconds=_above_zero(table.numbers("probe_s")),
        ),
        seconds=seconds,
        ok=ok,
    ).corpus("functions")


def _above_zero(values: Array) -> Array:
    """NaN instead of the zero that is written for a run that failed before it could be measured."""
    return np.where(values > 0, values, np.nan)


_CODES = ("A_family", "A_vcpu", "B_family", "B_vcpu", "C_family", "C_type", "C_vcpu")
_MULTICLOUD_COLUMNS = ("provider", *_CODES, "nodes", "workload", "target_cost", "target_runtime", "status")

# The CPUs have codes too: 0, and 1 at twice the price. The study rented machines of 2 and of 4.
_FEWEST_CPUS = 2.0


def read_multicloud(folder: Path, completed_only: bool = False) -> Corpus:
    """CloudBandit's measurements: 30 Dask workloads on 82 configurations of three anonymised providers.

    A workload is `<data set>-<task>`; the task is the application, so all its data sets are held out
    together. Repeated runs are averaged; the seconds of a failed run are when it failed. `completed_only`
    leaves failed runs out before averaging, and with them configurations that never completed.
    """
    table = read_table(find_file(folder, "multicloud", "multi-cloud-configuration.csv"), _MULTICLOUD_COLUMNS)
    if completed_only:
        table = table.only(np.array(table.columns["status"]) == "ok", "whose status is ok")
    seconds, nodes = table.positive("target_runtime"), table.positive("nodes")
    hourly = table.positive("target_cost") / seconds / nodes * 3600.0
    workloads, providers = table.text("workload"), table.text("provider")
    for row, letter in enumerate(providers):
        if letter not in ("A", "B", "C"):
            raise table.error(row, "provider", f"{letter!r} is not A, B or C")
    codes = {name: table.numbers(name) for name in _CODES}
    configurations = []
    for row, letter in enumerate(providers):
        given = [f"{name[2:]}={code[row]:g}" for name, code in codes.items() if not math.isnan(code[row])]
        configurations.append(" ".join((letter, *given, f"nodes={nodes[row]:g}")))

    def code(*columns: str) -> Array:
        """The code in whichever column has one: each provider has its own; 0 where none has."""
        return np.asarray(np.nansum([codes[column] for column in columns], axis=0))

    family, kind = code("A_family", "B_family", "C_family"), code("C_type")
    provider = np.array(providers)
    return MeasuredRuns(
        application=[w.partition("-")[2] or w for w in workloads],
        name=workloads,
        environment=("cloud",) * len(table),
        configuration=configurations,
        settings=settings_table(
            len(table),
            cpus=_FEWEST_CPUS * (1.0 + code("A_vcpu", "B_vcpu", "C_vcpu")),
            nodes=nodes,
            price_per_hour=hourly,
            accelerators=0.0,
            provider_a=provider == "A",
            provider_b=provider == "B",
            provider_c=provider == "C",
            family_1=family == 1,
            family_2=family == 2,
            type_1=kind == 1,
            type_2=kind == 2,
        ),
        metrics=metrics_table(len(table)),
        seconds=seconds,
        ok=np.array(table.columns["status"]) == "ok",
        data=[w.partition("-")[0] for w in workloads],
    ).corpus("multicloud")


_SCOUT_COLUMNS = (
    "vm", "vm_vcpus", "vm_mem_gib", "vm_price_usd_h", "workload", "framework", "datasize", "completed",
    "elapsed_s", "timestamp", "cpu_pct_usr_mean", "cpu_pct_sys_mean", "cpu_pct_iowait_mean",
    "task_cswch_per_s_mean", "disk_rd_sec_per_s_mean", "disk_wr_sec_per_s_mean", "network_rxkB_per_s_mean",
    "network_txkB_per_s_mean", "paging_majflt_per_s_mean", "disk_pct_util_mean", "memory_kbmemused_mean",
    "memory_pct_memused_mean",
)  # fmt: skip

_KIB = 1024.0
_SECTOR = 512.0


def read_scout(folder: Path) -> Corpus:
    """Scout's measurements on EC2: 18 Hadoop and Spark workloads on 69 clusters, with sar's metrics of a run.

    A workload is a program, a framework and a size of data; the program is the application. A failed run is
    kept, not ok, with the seconds after which it ended.
    """
    table = read_table(find_file(folder, "scout", "scout_multi_node.csv"), ("n_nodes", *_SCOUT_COLUMNS))
    ok, nodes, cpus = table.flags("completed"), table.positive("n_nodes"), table.positive("vm_vcpus")
    programs, machines = table.text("workload"), table.text("vm")
    cases = zip(programs, table.text("framework"), table.text("datasize"), strict=True)
    generations = []
    for row, machine in enumerate(machines):
        digits = "".join(c for c in machine.partition(".")[0] if c.isdigit())
        if not digits:
            raise table.error(row, "vm", f"{machine!r} is not an instance type such as m4.large")
        generations.append(float(digits))
    return MeasuredRuns(
        application=programs,
        name=["-".join(case) for case in cases],
        environment=("ec2",) * len(table),
        configuration=[f"{vm} nodes={n:g}" for vm, n in zip(machines, nodes, strict=True)],
        settings=settings_table(
            len(table),
            memory_bytes=table.positive("vm_mem_gib") * GIB,
            cpus=cpus,
            nodes=nodes,
            price_per_hour=table.positive("vm_price_usd_h"),
            accelerators=0.0,
            generation=generations,
        ),
        metrics=metrics_table(
            len(table),
            cpu_user=table.numbers("cpu_pct_usr_mean") / 100.0 * cpus,
            cpu_system=table.numbers("cpu_pct_sys_mean") / 100.0 * cpus,
            cpu_waiting=table.numbers("cpu_pct_iowait_mean") / 100.0 * cpus,
            context_switches=table.numbers("task_cswch_per_s_mean"),
            bytes_read=table.numbers("disk_rd_sec_per_s_mean") * _SECTOR,
            bytes_written=table.numbers("disk_wr_sec_per_s_mean") * _SECTOR,
            bytes_received=table.numbers("network_rxkB_per_s_mean") * _KIB,
            bytes_sent=table.numbers("network_txkB_per_s_mean") * _KIB,
            major_faults=table.numbers("paging_majflt_per_s_mean"),
            disk_busy=table.numbers("disk_pct_util_mean") / 100.0,
            memory_used=table.numbers("memory_kbmemused_mean") * _KIB,
            memory_fraction=table.numbers("memory_pct_memused_mean") / 100.0,
        ),
        seconds=table.positive("elapsed_s", ok),
        ok=ok,
        data=table.text("datasize"),
    ).corpus("scout")


_GAVEL_COLUMNS = (
    "source", "accelerator", "consolidated", "model", "batch_size", "num_gpus", "other_model", "steps_per_s",
)  # fmt: skip


def read_gavel(folder: Path, source: str = "simulation") -> Corpus:
    """Gavel's throughputs: training jobs alone on one to eight K80, P100 or V100; seconds of one step.

    A case is a model with a batch size; the model is the application. Zero throughput means not measured.
    There are two sources, `simulation` and `physical_cluster`; they hold the same measurements but for a few.
    """
    table = read_table(find_file(folder, "gpu-throughput", "gavel_throughputs.csv"), _GAVEL_COLUMNS)
    alone = np.array([not other for other in table.columns["other_model"]])
    table = table.only(alone & (np.array(table.columns["source"]) == source), f"of a job alone from {source}")
    table = table.only(table.numbers("steps_per_s") != 0, "with a throughput")
    models, sizes, count = table.text("model"), table.numbers("batch_size"), table.positive("num_gpus")
    devices, together = table.text("accelerator"), table.flags("consolidated")
    known: dict[str, Accelerator] = {}
    for row, name in enumerate(devices):
        try:
            known[name] = known.get(name) or accelerator(name)
        except NotFoundError as error:
            raise table.error(row, "accelerator", str(error)) from None
    return MeasuredRuns(
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
            accelerator_flops=[known[name].peak["fp32"] for name in devices],
            accelerator_bandwidth=[known[name].memory_bandwidth for name in devices],
            batch_size=sizes,
            half_precision=0.0,
            training=1.0,
            consolidated=together,
        ),
        metrics=metrics_table(len(table)),
        seconds=1.0 / table.positive("steps_per_s"),
        ok=np.ones(len(table), dtype=bool),
    ).corpus("gavel")


_GPU = "H200"
_CPU_THREADS = 2.0


def read_steps(folder: Path, gpu: str = _GPU) -> Corpus:
    """Measured steps of deep-learning models on one GPU and on two CPU threads; a case is a model.

    Its configurations are the device, training or inference, the precision and the batch size. `gpu` names
    the device `cuda`. A step that ran out of memory has no time.
    """
    steps = read_measurements(folder)
    device = accelerator(gpu)
    on_gpu = np.array([step.device != "cpu" for step in steps])
    memory = np.array([step.peak_memory or math.nan for step in steps])
    peak = np.array([device.peak.get(step.precision, math.nan) for step in steps])
    rows = len(steps)
    return MeasuredRuns(
        application=[step.name for step in steps],
        name=[step.name for step in steps],
        environment=(gpu,) * rows,
        configuration=[
            f"{'cpu' if step.device == 'cpu' else gpu} {'train' if step.training else 'infer'} "
            f"{step.precision} batch={step.batch}"
            for step in steps
        ],
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
