"""All that is simulated, as parts: each by itself, in order, and kept when it is done."""

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from trimtab.core import BadInputError
from trimtab.schedule import Trace, read_trace, read_traces
from trimtab_bench.harness import BenchOptions, Part
from trimtab_bench.schedule import philly, speed, workloads

_SEEDS = 3
_TIMED = ("trimtab", "sia")


def parts_of(options: BenchOptions, data: Path) -> list[Part]:
    """Everything that was asked for, in order."""
    return [
        *_workloads(options, data),
        *_gavel_trace(options, data),
        *_philly(options, data),
        *_speed(options, data),
    ]


def listed_file(data: Path) -> Path:
    """The file of the workloads that have published figures."""
    return data / "goodput" / "workloads.csv.gz"


def _workloads(options: BenchOptions, data: Path) -> Iterator[Part]:
    names = workloads.QUICK if options.quick else tuple(workloads.CONTESTANTS)
    for name, (trace, path) in _traces(options, data).items():
        for who in names:
            run = partial(workloads.workload_figures, trace, path, data, workloads.CONTESTANTS[who])
            yield Part(("workloads", name, who), run, _digest(trace))


def _digest(trace: Trace) -> str:
    """Tells workloads apart that have the same name."""
    return hashlib.sha256(repr((trace.jobs, trace.batch_sizes)).encode()).hexdigest()[:16]


def _traces(options: BenchOptions, data: Path) -> dict[str, tuple[Trace, Path]]:
    if options.workloads is None:
        path = listed_file(data)
        names = workloads.LISTED[:1] if options.quick else workloads.LISTED
        return {name: (read_trace(path, name), path) for name in names}
    traces = read_traces(options.workloads)
    for name, trace in traces.items():
        if not trace.batch_sizes or any(job.work is not None for job in trace.jobs):
            raise BadInputError(
                f"{options.workloads}: {name} is not a workload of measured applications; the columns of one "
                "are workload, job, submit_time_s, application, num_replicas and batch_size"
            )
    return {name: (trace, options.workloads) for name, trace in traces.items()}


def _gavel_trace(options: BenchOptions, data: Path) -> Iterator[Part]:
    for name in workloads.GAVEL_TRACE_QUICK if options.quick else workloads.GAVEL_TRACE_POLICIES:
        yield Part(("gavel_trace", name), partial(workloads.gavel_trace_figures, data, name))


def _philly(options: BenchOptions, data: Path) -> Iterator[Part]:
    """Promises and spot, seed by seed."""
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
            yield Part((name, str(seed)), partial(run, seed))


def _speed(options: BenchOptions, data: Path) -> Iterator[Part]:
    for jobs in speed.QUICK_SIZES if options.quick else speed.SIZES:
        yield Part(("round_seconds", str(jobs)), partial(speed.round_seconds, jobs, options.seed))
    path = listed_file(data)
    trace = read_trace(path, workloads.LISTED[0])
    for name in _TIMED:
        run = partial(workloads.workload_figures, trace, path, data, workloads.CONTESTANTS[name])
        yield Part(("sim_seconds", name), run)
    many = speed.QUICK_MANY if options.quick else speed.MANY
    for name in speed.SIMULATED:
        yield Part(("job_rounds", name), partial(speed.job_rounds_per_second, name, many, options.seed))
