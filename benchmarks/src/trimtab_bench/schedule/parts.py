"""Parts of the scheduling bench: simulations, in order."""

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from trimtab.core import BadInputError
from trimtab.schedule import read_trace, read_traces
from trimtab_bench.harness import BenchOptions, BenchPart
from trimtab_bench.schedule import philly, speed, workloads

_SEEDS = 3
_TIMED = ("trimtab", "sia")


def parts_of(options: BenchOptions, data: Path) -> list[BenchPart]:
    return [*_workload_parts(options, data), *_philly_parts(options, data), *_speed_parts(options, data)]


def listed_file(data: Path) -> Path:
    """The file of the workloads that have published figures."""
    return data / "goodput" / "workloads.csv.gz"


def _workload_parts(options: BenchOptions, data: Path) -> Iterator[BenchPart]:
    """Every policy on every workload, and on Gavel's trace."""
    if options.workloads is None:
        path = listed_file(data)
        names = workloads.LISTED[:1] if options.quick else workloads.LISTED
        traces = {name: read_trace(path, name) for name in names}
    else:
        path, traces = options.workloads, read_traces(options.workloads)
        for name, trace in traces.items():
            if not trace.batch_sizes or any(job.work is not None for job in trace.jobs):
                raise BadInputError(
                    f"{path}: {name} is not a workload of measured applications; the columns of one "
                    "are workload, job, submit_time_s, application, num_replicas and batch_size"
                )
    for name, trace in traces.items():
        # The digest tells workloads apart that have the same name.
        digest = hashlib.sha256(repr((trace.jobs, trace.batch_sizes)).encode()).hexdigest()[:16]
        for policy in workloads.QUICK if options.quick else workloads.CONTESTANTS:
            run = partial(workloads.workload_figures, trace, path, data, workloads.CONTESTANTS[policy])
            yield BenchPart(("workloads", name, policy), run, digest)
    for name in workloads.GAVEL_TRACE_QUICK if options.quick else workloads.GAVEL_TRACE_POLICIES:
        yield BenchPart(("gavel_trace", name), partial(workloads.gavel_trace_figures, data, name))


def _philly_parts(options: BenchOptions, data: Path) -> Iterator[BenchPart]:
    trace = read_trace(data / "goodput" / "philly_trace.csv.gz").jobs
    count, load = (philly.QUICK_JOBS, philly.QUICK_LOAD) if options.quick else (philly.JOBS, philly.LOAD)
    jobs = philly.busiest(trace, count, load)
    busier = jobs.loaded(philly.BUSIER)
    sections: dict[str, Callable[[int], Any]] = {
        "deadlines": partial(philly.deadline_figures, jobs, philly.DEADLINE_POLICIES),
        "priorities": partial(philly.priority_figures, jobs, philly.PRIORITY_POLICIES),
        "priorities_busier": partial(philly.priority_figures, busier, philly.PRIORITY_POLICIES),
        "tenants": partial(philly.tenant_figures, jobs, philly.TENANT_POLICIES),
        "beliefs": partial(philly.belief_figures, jobs, philly.BELIEF_POLICIES),
        "spot": partial(philly.spot_figures, jobs),
    }
    for name, run in sections.items():
        for seed in range(options.seed, options.seed + (1 if options.quick else _SEEDS)):
            yield BenchPart((name, str(seed)), partial(run, seed))


def _speed_parts(options: BenchOptions, data: Path) -> Iterator[BenchPart]:
    for jobs in speed.QUICK_SIZES if options.quick else speed.SIZES:
        yield BenchPart(("round_seconds", str(jobs)), partial(speed.round_seconds, jobs, options.seed))
    path = listed_file(data)
    trace = read_trace(path, workloads.LISTED[0])
    for name in _TIMED:
        run = partial(workloads.workload_figures, trace, path, data, workloads.CONTESTANTS[name])
        yield BenchPart(("sim_seconds", name), run)
    many = speed.QUICK_MANY if options.quick else speed.MANY
    for name in speed.SIMULATED:
        yield BenchPart(("job_rounds", name), partial(speed.job_rounds_per_second, name, many, options.seed))
