"""Gavel's traces (data set `gpu-throughput`): models with a batch size, accelerators, steps to do."""

import numpy as np

from trimtab.core import Workload
from trimtab.schedule.cluster import Group
from trimtab.schedule.job import Job
from trimtab.schedule.traces.table import Trace, TraceTable

COLUMNS = (
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
PARTS = "trace"

# 36 accelerators, as the hand-made traces are usually replayed. How many are in a server is not told: four,
# which holds the largest gang. Nor are CPUs and memory: 8 and 64 GB beside each.
_KINDS = ("v100", "p100", "k80")
_NODES, _GPUS = 3, 4


def read(table: TraceTable, name: str) -> Trace:
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
    groups = tuple(Group(kind, kind, _NODES, _GPUS, 8.0 * _GPUS, 64e9 * _GPUS) for kind in _KINDS)
    sizes = {job: int(size) for job, size in zip(names, batch, strict=True) if size}
    return Trace(name, jobs, groups, _notes(table), sizes)


def _notes(table: TraceTable) -> tuple[str, ...]:
    weights = table.numbers("priority_weight", hole=1.0)
    unequal = int(np.count_nonzero(weights != 1.0))
    return (f"{unequal} weights other than 1 are not used",) if unequal else ()
