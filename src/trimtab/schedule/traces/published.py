"""Published traces: Sia and Pollux (`goodput`), Microsoft's Philly, Gavel, Alibaba's GPU cluster of 2023.

The files do not say how an application of `goodput` or a model of Gavel progresses: the simulated world knows
`Job.work` and `Job.speeds`.
"""

from collections import Counter
from pathlib import Path

import numpy as np

from trimtab.core import Workload
from trimtab.schedule.cluster import Floats, NodeGroup
from trimtab.schedule.job import Job, Priority, Worker
from trimtab.schedule.traces.table import SECONDS_ANYWHERE, Trace, TraceTable, read_table

GOODPUT_COLUMNS = ("workload", "job", "submit_time_s", "application", "num_replicas", "batch_size")
GOODPUT_PARTS = "workload"

# The workloads were made for these 64 accelerators. CPUs and memory are unknown: 8 and 64 GB per accelerator.
_GOODPUT_CLUSTER = (("t4", 6, 4), ("rtx2080ti", 3, 8), ("a100", 2, 8))


def read_goodput(table: TraceTable, name: str) -> Trace:
    """One workload of rigid gangs; `Trace.elastic` makes them adaptive."""
    names = table.unique("job")
    submitted = table.numbers("submit_time_s")
    table.ascending("submit_time_s", submitted)
    batch = table.whole_numbers("batch_size", 1)
    jobs = tuple(
        Job(job, Workload(job), when, least=workers, most=workers, application=application)
        for job, when, workers, application in zip(
            names,
            submitted.tolist(),
            table.whole_numbers("num_replicas", 1),
            table.text("application"),
            strict=True,
        )
    )
    groups = tuple(
        NodeGroup(kind, kind, nodes, gpus, cpus=8.0 * gpus, memory=64e9 * gpus)
        for kind, nodes, gpus in _GOODPUT_CLUSTER
    )
    return Trace(name, jobs, groups, batch_sizes=dict(zip(names, batch, strict=True)))


PHILLY_COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")

_PHILLY_WORKER = Worker()


def read_philly(table: TraceTable, name: str) -> Trace:
    """All of it. Virtual clusters are tenants, work is in GPU-seconds, time starts with the first job."""
    times = _times(table)
    order = np.argsort(times, kind="stable")
    back = int(np.count_nonzero(np.diff(times) < 0))
    notes = (f"rows were not in order of time ({back:,} went back): sorted",) if back else ()
    durations = table.numbers("duration", above=0.0).tolist()
    workers = table.whole_numbers("num_gpus", 1)
    clusters = table.text("cluster")
    submitted = (times - times.min(initial=np.inf)).tolist()
    jobs = tuple(
        Job(
            f"philly-{table.lines[row]}",
            Workload(f"philly-{table.lines[row]}", tenant=clusters[row]),
            submitted[row],
            _PHILLY_WORKER,
            workers[row],
            workers[row],
            work=durations[row] * workers[row],
            speeds=SECONDS_ANYWHERE,
        )
        for row in order.tolist()
    )
    return Trace(name, jobs, notes=notes)


def _times(table: TraceTable) -> Floats:
    """Seconds since 1970."""
    cells = table.text("timestamp")
    try:
        return np.array(cells, dtype="datetime64[s]").astype(float)
    except ValueError:
        for row, cell in enumerate(cells):
            try:
                np.datetime64(cell, "s")
            except ValueError:
                table.refuse(row, f"timestamp is {cell:.40}; it must be like 2017-10-09 07:01:55")
        raise


GAVEL_COLUMNS = (
    "trace",
    "job_index",
    "arrival_s",
    "model",
    "batch_size",
    "num_gpus",
    "total_steps",
    "priority_weight",
    "slo",
)
GAVEL_PARTS = "trace"

# 36 accelerators, as the hand-made traces are usually replayed. Their number per server is unknown: four hold
# the largest gang. CPUs and memory are unknown, too: 8 and 64 GB per accelerator.
_GAVEL_KINDS = ("v100", "p100", "k80")
_GAVEL_NODES, _GAVEL_GPUS = 3, 4


def read_gavel(table: TraceTable, name: str) -> Trace:
    """One trace. An application is a model at a batch size ("ResNet-18/32"): its steps are of one kind.

    Speeds are measured elsewhere (`gavel_throughputs`). A deadline, where there is one, is hard.
    """
    names = [f"job-{index}" for index in table.unique("job_index")]
    submitted = table.numbers("arrival_s")
    table.ascending("arrival_s", submitted)
    batch = table.numbers("batch_size", hole=0.0).tolist()
    workers = table.whole_numbers("num_gpus", 1)
    deadlines = table.numbers("slo", least=-1.0, hole=-1.0)
    models = table.text("model")
    jobs = tuple(
        Job(
            job,
            Workload(job, deadline=slo if slo > 0 else None),
            when,
            least=gang,
            most=gang,
            hard=slo > 0,
            application=f"{model}/{size:g}" if size else model,
            work=steps,
        )
        for job, when, gang, model, size, steps, slo in zip(
            names,
            submitted.tolist(),
            workers,
            models,
            batch,
            table.numbers("total_steps", above=0.0).tolist(),
            deadlines.tolist(),
            strict=True,
        )
    )
    groups = tuple(
        NodeGroup(kind, kind, _GAVEL_NODES, _GAVEL_GPUS, 8.0 * _GAVEL_GPUS, 64e9 * _GAVEL_GPUS)
        for kind in _GAVEL_KINDS
    )
    sizes = {job: int(size) for job, size in zip(names, batch, strict=True) if size}
    return Trace(name, jobs, groups, _notes(table), sizes)


def _notes(table: TraceTable) -> tuple[str, ...]:
    weights = table.numbers("priority_weight", hole=1.0)
    unequal = int(np.count_nonzero(weights != 1.0))
    return (f"{unequal} weights other than 1 are not used",) if unequal else ()


ALIBABA_COLUMNS = (
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
ALIBABA_PARTS = "variant"
NODES_FILE = "ali_v2023_nodes.csv.gz"

_MIB = 2.0**20
_PRIORITIES = {"LS": Priority.HIGH, "Guaranteed": Priority.HIGH, "BE": Priority.LOW}


def read_alibaba(table: TraceTable, name: str) -> Trace:
    """Pods are jobs of one worker on one node; work is in seconds. Groups come from the file of nodes beside.

    Latency-sensitive and guaranteed pods are of high priority, best-effort ones of low.
    """
    groups = read_nodes(table.path.parent / NODES_FILE)
    if not any(table.columns["creation_time"]):
        jobs = _alibaba_jobs(table, [0.0] * len(table), [None] * len(table))
        return Trace(
            name,
            jobs,
            groups,
            ("the file has no times: all jobs are submitted at 0, and their durations are unknown",),
        )
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
    return Trace(name, _alibaba_jobs(table, submitted.tolist(), seconds.tolist()), groups, tuple(notes))


def _alibaba_jobs(table: TraceTable, submitted: list[float], seconds: list[float | None]) -> tuple[Job, ...]:
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
            workers[need] = _alibaba_worker(*need)
        workload = Workload(job, priority=_PRIORITIES.get(qos, Priority.NORMAL))
        jobs.append(Job(job, workload, when, workers[need], work=work, speeds=SECONDS_ANYWHERE))
    return tuple(jobs)


def _alibaba_worker(gpus: float, share: float, cpus: float, memory: float, kinds: str) -> Worker:
    """One pod's needs: `share` is in thousandths and counts for pods with a single accelerator."""
    accelerators = tuple(dict.fromkeys(kinds.lower().split("|"))) if kinds else ()
    return Worker(share / 1000.0 if gpus == 1.0 else gpus, cpus / 1000.0, memory * _MIB, accelerators)


def read_nodes(path: Path) -> tuple[NodeGroup, ...]:
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
        NodeGroup(
            f"{model.lower() or 'cpu'}-{gpus}x-{cpus / 1000:g}c-{memory / 1024:g}g",
            model.lower(),
            count,
            gpus,
            cpus / 1000.0,
            memory * _MIB,
        )
        for (model, gpus, cpus, memory), count in kinds.most_common()
    )
