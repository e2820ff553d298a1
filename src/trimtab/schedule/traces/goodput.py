"""Workloads of the data set `goodput` (Sia, on Pollux): applications, and what their users asked for.

How an application progresses is not in the file: `Job.work` and `Job.speeds` are for a world to say.
"""

from trimtab.core import Workload
from trimtab.schedule.cluster import Group
from trimtab.schedule.job import Job
from trimtab.schedule.traces.table import Trace, TraceTable

COLUMNS = ("workload", "job", "submit_time_s", "application", "num_replicas", "batch_size")
PARTS = "workload"

# 64 accelerators, as the workloads were made for. Nobody told CPUs and memory: 8 and 64 GB beside each.
_CLUSTER = (("t4", 6, 4), ("rtx2080ti", 3, 8), ("a100", 2, 8))


def read(table: TraceTable, name: str) -> Trace:
    """One workload. Everybody asks for a rigid gang; adaptive policies take `Trace.elastic`."""
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
        Group(kind, kind, nodes, gpus, cpus=8.0 * gpus, memory=64e9 * gpus) for kind, nodes, gpus in _CLUSTER
    )
    return Trace(name, jobs, groups, batch_sizes=dict(zip(names, batch, strict=True)))
