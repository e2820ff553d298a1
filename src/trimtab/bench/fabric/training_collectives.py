"""What workers say to each other: bandwidth with and without the fabric, and how long a fault stops it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from trimtab.bench.fabric.training_runs import (
    COLLECTIVES,
    Schedule,
    on_fabric,
    on_one_port,
    ready_lab,
    steps_in,
    train,
)
from trimtab.bench.result import Table
from trimtab.core import TrimtabError
from trimtab.core.units import format_bytes
from trimtab.fabric import apply_plan, plan_here
from trimtab.fabric.lab import Lab
from trimtab.fabric.training import Collective

SIZES = (2**16, 2**23)
_SMALL = ("--bytes", str(2**16))
_KERNELS = 0.0  # s: leave the least timeout to the kernel


def measure_bandwidth(seconds: float) -> dict[str, Any]:
    """Bytes per second of every operation, on the virtual device and on one port, for so long each."""
    sizes = ("--bytes", *map(str, SIZES))
    found = {}
    with ready_lab() as lab:
        for way, bind in (("fabric", on_fabric(lab)), ("one_port", on_one_port(lab))):
            steps = steps_in(lab, bind, COLLECTIVES, seconds, *sizes)
            trained = train(lab, bind(COLLECTIVES.job(steps, *sizes)), seconds)
            _check(trained.run.failure, [step.loss for step in trained.run.steps])
            runs = getattr(trained.run, "collectives", ())
            found[way] = {_name(each): each.rate for each in runs}
    return found


def measure_stalls(schedule: Schedule, faults: int) -> dict[str, list[float]]:
    """Seconds that collectives of small messages stop after each fault, by how TCP's least timeout is set."""
    expected = faults * schedule.period
    found = {}
    with ready_lab() as lab:
        usual = lab.hosts[0].host.rto_min
        bind = on_fabric(lab)
        steps = steps_in(lab, bind, COLLECTIVES, expected, *_SMALL)
        for name, least in (("rto_min", usual), ("without", _KERNELS)):
            _set_least_timeout(lab, least)
            trained = train(lab, bind(COLLECTIVES.job(steps, *_SMALL)), expected, schedule)
            _check(trained.run.failure, [step.loss for step in trained.run.steps])
            found[name] = list(trained.stalls)
    return found


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
            "mean": sum(stalls) / len(stalls) * 1e3,
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


def _name(each: Collective) -> str:
    return f"{each.operation} {format_bytes(each.bytes)}"


def _check(failure: str, errors: Sequence[float]) -> None:
    if failure:
        raise TrimtabError(f"collectives do not run in the lab: {failure}")
    if any(errors):
        raise TrimtabError(f"collectives gave wrong results, by as much as {max(errors):g}")


def _set_least_timeout(lab: Lab, seconds: float) -> None:
    for host in lab.hosts:
        apply_plan(plan_here(replace(host.host, rto_min=seconds), host.namespace), host.namespace)
