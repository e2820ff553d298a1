"""Microsoft's Philly jobs (data set `goodput`): when, how long, on how many GPUs, in which cluster."""

import numpy as np

from trimtab.core import Workload
from trimtab.schedule.cluster import Floats
from trimtab.schedule.job import Job, Worker
from trimtab.schedule.traces.table import SECONDS_ANYWHERE, Trace, TraceTable

COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")
PARTS = None

_WORKER = Worker()


def read(table: TraceTable, name: str) -> Trace:
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
            _WORKER,
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
