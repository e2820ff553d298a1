"""Alibaba's GPU cluster of 2023 (data set `gpu-cluster`): pods, some with shares of a GPU, and nodes."""

from collections import Counter
from pathlib import Path

import numpy as np

from trimtab.core import Workload
from trimtab.schedule.cluster import Group
from trimtab.schedule.job import Job, Priority, Worker
from trimtab.schedule.traces.table import SECONDS_ANYWHERE, Trace, TraceTable, read_table

COLUMNS = (
    "name",
    "cpu_milli",
    "memory_mib",
    "num_gpu",
    "gpu_milli",
    "gpu_spec",
    "qos",
    "creation_time",
    "deletion_time",
    "scheduled_time",
)
PARTS = "variant"
NODES_FILE = "ali_v2023_nodes.csv.gz"

_MIB = 2.0**20
_PRIORITIES = {"LS": Priority.HIGH, "Guaranteed": Priority.HIGH, "BE": Priority.LOW}


def read(table: TraceTable, name: str) -> Trace:
    """Pods are jobs of one worker on one node; work is in seconds. Groups come from the file of nodes beside.

    Latency-sensitive and guaranteed pods are of high priority, best-effort ones of low.
    """
    groups = read_nodes(table.path.parent / NODES_FILE)
    if not any(table.columns["creation_time"]):
        jobs = _jobs(table, [0.0] * len(table), [None] * len(table))
        return Trace(name, jobs, groups, ("no times are told: all submitted at 0, for durations unknown",))
    ran = [row for row, cell in enumerate(table.columns["scheduled_time"]) if cell]
    notes = [f"dropped {len(table) - len(ran):,} pods that never ran"] if len(ran) < len(table) else []
    table = table.rows(ran)
    submitted = table.numbers("creation_time")
    if np.any(np.diff(submitted) < 0):
        notes.append("rows were not in order of creation_time: sorted")
        table = table.rows(np.argsort(submitted, kind="stable").tolist())
        submitted.sort()
    seconds = table.numbers("deletion_time") - table.numbers("scheduled_time")
    backwards = np.flatnonzero(seconds < 0.0)
    if backwards.size:
        table.refuse(int(backwards[0]), "deletion_time is before scheduled_time; it must be after")
    return Trace(name, _jobs(table, submitted.tolist(), seconds.tolist()), groups, tuple(notes))


def _jobs(table: TraceTable, submitted: list[float], seconds: list[float | None]) -> tuple[Job, ...]:
    """Jobs of one worker each; equal needs share one `Worker`."""
    workers: dict[tuple[object, ...], Worker] = {}
    needs = zip(
        table.numbers("num_gpu").tolist(),
        table.numbers("gpu_milli").tolist(),
        table.numbers("cpu_milli").tolist(),
        table.numbers("memory_mib").tolist(),
        table.columns["gpu_spec"],
        strict=True,
    )
    jobs = []
    for job, qos, when, work, need in zip(
        table.unique("name"), table.columns["qos"], submitted, seconds, needs, strict=True
    ):
        if need not in workers:
            workers[need] = _worker(*need)
        workload = Workload(job, priority=_PRIORITIES.get(qos, Priority.NORMAL))
        jobs.append(Job(job, workload, when, workers[need], work=work, speeds=SECONDS_ANYWHERE))
    return tuple(jobs)


def _worker(gpus: float, share: float, cpus: float, memory: float, kinds: str) -> Worker:
    """One pod's needs: `share` is in thousandths and counts where it wants a single accelerator."""
    accelerators = tuple(dict.fromkeys(kinds.lower().split("|"))) if kinds else ()
    return Worker(share / 1000.0 if gpus == 1.0 else gpus, cpus / 1000.0, memory * _MIB, accelerators)


def read_nodes(path: Path) -> tuple[Group, ...]:
    """Groups of equal nodes, the most numerous first; none where there is no such file."""
    if not path.exists():
        return ()
    table = read_table(path)
    kinds = Counter(
        zip(
            table.columns["model"],
            table.whole_numbers("gpu"),
            table.numbers("cpu_milli", above=0.0).tolist(),
            table.numbers("memory_mib", above=0.0).tolist(),
            strict=True,
        )
    )
    return tuple(
        Group(
            f"{model.lower() or 'cpu'}-{gpus}x-{cpus / 1000:g}c-{memory / 1024:g}g",
            model.lower(),
            count,
            gpus,
            cpus / 1000.0,
            memory * _MIB,
        )
        for (model, gpus, cpus, memory), count in kinds.most_common()
    )
