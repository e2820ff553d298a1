"""What workers say to each other: bandwidth with and without the fabric, and how long a fault stops it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import Any

from trimtab.core import TrimtabError
from trimtab.core.units import format_bytes
from trimtab.fabric import apply_plan, plan_here
from trimtab.fabric.lab.lab import Lab
from trimtab_bench.fabric.gloo_jobs.job import Job
from trimtab_bench.fabric.gloo_jobs.run import Run
from trimtab_bench.fabric.training_measures import Trained
from trimtab_bench.fabric.training_runs import (
    COLLECTIVES,
    Schedule,
    as_long_as,
    on_fabric,
    on_one_port,
    ready_lab,
    train,
)
from trimtab_bench.result import Table

SIZES = (2**16, 2**23)
_SMALL = ("--bytes", str(2**16))
_KERNELS = 0.0  # s: leave the least timeout to the kernel


def measure_collectives(calm: Schedule, faulty: Schedule) -> dict[str, Any]:
    """Bytes per second of every operation on the virtual device and on one port; seconds they stop for.

    Stalls are of small messages after each fault, with TCP's least timeout as usual and as the kernel has it.
    """
    with ready_lab() as lab:
        ways = {"fabric": on_fabric(lab), "one_port": on_one_port(lab)}
        rates = {way: _rates(lab, bind, calm) for way, bind in ways.items()}
        job = as_long_as(faulty, lab, ways["fabric"], COLLECTIVES, *_SMALL)
        stalls = {}
        for name, least in (("rto_min", lab.hosts[0].host.rto_min), ("without", _KERNELS)):
            _set_least_timeout(lab, least)
            stalls[name] = list(_right(train(lab, job, faulty)).stalls)
    return {"rates": rates, "stalls": stalls}


def _rates(lab: Lab, bind: Callable[[Job], Job], schedule: Schedule) -> dict[str, float]:
    sizes = ("--bytes", *map(str, SIZES))
    done = _right(train(lab, as_long_as(schedule, lab, bind, COLLECTIVES, *sizes), schedule, faults=False))
    assert isinstance(done.run, Run)
    return {f"{each.operation} {format_bytes(each.bytes)}": each.rate for each in done.run.collectives}


def _right(done: Trained) -> Trained:
    """The same, if it ended well and all results were right."""
    if done.run.failure:
        raise TrimtabError(f"collectives do not run in the lab: {done.run.failure}")
    if worst := max(step.loss for step in done.run.steps):
        raise TrimtabError(f"collectives gave wrong results, by as much as {worst:g}")
    return done


def bandwidth_figures(found: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """By operation and size: bits per second both ways, and the ratio."""
    return {
        name: {
            "fabric_gbit_s": rate * 8e-9,
            "one_port_gbit_s": found["one_port"][name] * 8e-9,
            "ratio": rate / found["one_port"][name],
        }
        for name, rate in found["fabric"].items()
    }


def stall_figures(found: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
    """Milliseconds per fault, with the host file's `rto_min` and with the kernel's 200 ms."""
    return {
        name: {
            "median": median(stalls) * 1e3,
            "mean": fmean(stalls) * 1e3,
            "worst": max(stalls) * 1e3,
            "faults": len(stalls),
        }
        for name, stalls in found.items()
        if stalls
    }


def bandwidth_table(figures: Mapping[str, Mapping[str, float]]) -> Table:
    """One row for each operation and size."""
    rows = [
        (name, f"{each['fabric_gbit_s']:.2f}", f"{each['one_port_gbit_s']:.2f}", f"{each['ratio']:.2f}")
        for name, each in figures.items()
    ]
    columns = ("collective", "virtual device, Gbit/s", "one port, Gbit/s", "ratio")
    return Table("Collectives of two hosts over gloo", columns, tuple(rows))


def stall_table(figures: Mapping[str, Mapping[str, float]]) -> Table:
    """With and without `rto_min`."""
    names = {"rto_min": "rto_min of the host's file", "without": "rto_min: off"}
    rows = [
        (names[name], str(each["faults"]), *(f"{each[key]:.0f}" for key in ("median", "mean", "worst")))
        for name, each in figures.items()
    ]
    columns = ("TCP's least timeout", "faults", "median ms", "mean ms", "worst ms")
    return Table("Collectives stop after a silent fault", columns, tuple(rows))


def _set_least_timeout(lab: Lab, seconds: float) -> None:
    for host in lab.hosts:
        apply_plan(plan_here(replace(host.host, rto_min=seconds), host.namespace), host.namespace)
