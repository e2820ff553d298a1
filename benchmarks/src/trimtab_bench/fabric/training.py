"""From steps and faults to numbers: how much longer, how long a stall, how far apart in loss."""

import contextlib
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

from trimtab.collect import Step
from trimtab.core import BadInputError, TrimtabError
from trimtab.core.units import format_bytes, format_duration
from trimtab.fabric import apply_plan, plan_here
from trimtab.fabric.lab.faults import Cycle
from trimtab.fabric.lab.lab import Lab
from trimtab_bench.fabric.gloo_jobs import (
    Job,
    Meanwhile,
    Ranks,
    Restarted,
    Run,
    loss_difference,
    measure_costs,
    run_job,
    run_restarting,
)
from trimtab_bench.fabric.variants import bind_to_one_port, single_port_addresses
from trimtab_bench.harness import Key, Part, Table

AVERAGED = 10
"""Iterations that make one of those whose 90th percentile is compared, as in seed 002, figure 3.6."""
_AFTER = 2.0  # s after the begin of a fault, in which it may be felt


@dataclass(frozen=True, slots=True)
class Trained:
    """A job that ran, and when faults began meanwhile, in seconds since the epoch."""

    run: Run | Restarted
    faults: tuple[float, ...] = ()

    @property
    def seconds(self) -> float:
        """From the begin of the first step to the end of the last one that was made."""
        first = self.run.runs[0] if isinstance(self.run, Restarted) else self.run
        begin = first.begun if first.ready is None else first.ready
        return self.run.steps[-1].time - begin if self.run.steps else math.inf

    @property
    def seconds_per_step(self) -> float:
        """Mean seconds per step; a step that was repeated after a failure counts once."""
        return self.seconds / len(self.run.steps) if self.run.steps else math.inf

    @property
    def stalls(self) -> tuple[float, ...]:
        """By how much the longest step after each fault was longer than steps mostly are, in seconds."""
        steps = self.run.steps
        if len(steps) < 2:
            return ()
        usual = median(_lengths(steps))
        felt = [fault for fault in self.faults if steps[0].time <= fault < steps[-1].time]
        return tuple(_longest_after(steps, fault) - usual for fault in felt)

    def at(self, faults: Sequence[float], begun: float) -> "Trained":
        """This run with the faults of another, aligned at the first step: a control without faults."""
        shift = self.run.steps[0].time - begun if self.run.steps else 0.0
        return Trained(self.run, tuple(fault + shift for fault in faults))


def slowdown(with_faults: Trained, without: Trained) -> float:
    """How many times as long, for as many steps; without end where the job failed."""
    if with_faults.run.failure or without.run.failure:
        return math.inf
    return with_faults.seconds_per_step / without.seconds_per_step


def p90_ratio(with_faults: Trained, without: Trained) -> float:
    """The 90th percentile of an iteration's time, each the mean of ten, to that without faults.

    Without end where the job failed: it may have died before it felt a fault.
    """
    if with_faults.run.failure or without.run.failure:
        return math.inf
    return _p90(_averages(with_faults.run.steps)) / _p90(_averages(without.run.steps))


def compared(pairs: Sequence[tuple[Trained, Trained]]) -> dict[str, Any]:
    """Pairs of the same job with and without faults."""
    one, other = pairs[0]
    return {
        "ratios": [slowdown(faulty, calm) for faulty, calm in pairs],
        "p90_ratios": [p90_ratio(faulty, calm) for faulty, calm in pairs],
        "loss_difference": max(loss_difference(one.run, each.run) for pair in pairs for each in pair),
        "final_loss": other.run.steps[-1].loss,
        "crashes": [each.run.failure for pair in pairs for each in pair if each.run.failure],
        "faults": sum(len(faulty.faults) for faulty, _ in pairs),
        "stalls_s": [stall for faulty, _ in pairs for stall in faulty.stalls],
        "calm_stalls_s": [
            stall
            for faulty, calm in pairs
            for stall in calm.at(faulty.faults, faulty.run.steps[0].time).stalls
        ],
        "steps": len(other.run.steps),
        "seconds": [[faulty.seconds, calm.seconds] for faulty, calm in pairs],
        "step_s": median(_lengths(other.run.steps)),
    }


def _longest_after(steps: Sequence[Step], fault: float) -> float:
    felt = [
        after.time - before.time
        for before, after in pairwise(steps)
        if after.time > fault and before.time < fault + _AFTER
    ]
    return max(felt)


def _lengths(steps: Sequence[Step]) -> list[float]:
    return [after.time - before.time for before, after in pairwise(steps)]


def _averages(steps: Sequence[Step]) -> list[float]:
    lengths = _lengths(steps)
    return [fmean(lengths[first : first + AVERAGED]) for first in range(0, len(lengths), AVERAGED)]


def _p90(values: Sequence[float]) -> float:
    import numpy as np

    return float(np.quantile(values, 0.9))


_JOBS = Path(__file__).resolve().parents[4] / "examples" / "fabric"
_WARM = 5  # steps before the first fault
_TRIED = 40  # steps by which a job's pace is known
_READY = 120.0  # s for a lab, also after faults
_START = 60.0  # s that a job may take to start
_TIMES = 5.0  # as long as it should, that a job may take


@dataclass(frozen=True, slots=True)
class Schedule:
    """Faults of `down` seconds, each at the next uplink and `up` seconds after the last one was mended.

    A job is as long as `faults` of them, or has `steps`; a worker that restarts gives up after `patience`.
    """

    down: float
    up: float
    faults: int
    patience: float
    steps: int | None = None

    @property
    def seconds(self) -> float:
        """That a job should take when all is well."""
        return self.faults * (self.down + self.up)


PAPER = Schedule(20.0, 20.0, faults=4, patience=5.0)
SHORT = Schedule(4.0, 4.0, faults=1, patience=3.0, steps=100)


@dataclass(frozen=True, slots=True)
class Kind:
    """A job of `examples/fabric`: its script, its options, and how many steps go through its data once."""

    script: str
    options: tuple[str, ...]
    steps_per_epoch: int

    def job(self, steps: int, *more: str) -> Job:
        """So many steps of it on two hosts, not yet bound to anything."""
        path = _JOBS / self.script
        if not path.exists():
            raise BadInputError(f"there is no {path}; run this bench from a checkout of Trimtab's source")
        return Job((sys.executable, str(path), *self.options, "--steps", str(steps), *more))


RESNET = Kind(
    "pictures_resnet.py",
    ("--width", "16", "--blocks", "1", "--batch-size", "8"),
    steps_per_epoch=50_000 // 16,
)
GPT = Kind(
    "words_gpt.py",
    ("--width", "32", "--layers", "2", "--batch-size", "8", "--small-batches", "4"),
    steps_per_epoch=10_000 // 8,
)
COLLECTIVES = Kind("collectives.py", (), steps_per_epoch=1)


@contextlib.contextmanager
def ready_lab(agents: bool = True) -> Iterator[Lab]:
    """Two hosts that work, with Trimtab's agents or with FRR alone."""
    with Lab() as lab:
        lab.wait_ready(_READY)
        if agents:
            lab.start_agents()
        yield lab


def on_fabric(lab: Lab) -> Callable[[Job], Job]:
    """Binds a job to the virtual device."""
    return lambda job: job.bound_to(lab.hosts[0].host.tenants[0].devices[0])


def on_one_port(lab: Lab) -> Callable[[Job], Job]:
    """Binds a job to the first uplink of both hosts, as one would without a fabric."""
    bind_to_one_port(lab)
    address, device = single_port_addresses(lab)[0], lab.hosts[0].host.uplinks[0].device
    return lambda job: replace(job, address=address, device=device)


def as_long_as(schedule: Schedule, lab: Lab, bind: Callable[[Job], Job], kind: Kind, *options: str) -> Job:
    """The job with as many steps as the schedule asks for, by the pace it has here when all is well."""
    if schedule.steps is not None:
        return bind(kind.job(schedule.steps, *options))
    run = run_job(bind(kind.job(_TRIED, *options)), lab.run, limit=_limit(schedule.seconds))
    if run.failure:
        raise TrimtabError(f"{kind.script} does not run in the lab: {run.failure}")
    steps = max(_TRIED, round(schedule.seconds / median(run.step_seconds[_WARM:])))
    return bind(kind.job(steps, *options))


def train(lab: Lab, job: Job, schedule: Schedule, faults: bool = True) -> Trained:
    """The job to its end; faults begin with its first steps and go on until it ends."""
    with _faults(lab, schedule if faults else None) as (cycle, meanwhile):
        run = run_job(job, lab.run, limit=_limit(schedule.seconds), meanwhile=meanwhile)
    if run.failure and not faults:
        raise TrimtabError(f"without any fault the job {Path(job.words[1]).name} fails: {run.failure}")
    return _trained(run, cycle)


def train_restarting(lab: Lab, job: Job, schedule: Schedule, every: int) -> Trained:
    """The same for a job that gives up soon, and is started again from its last checkpoint."""
    with tempfile.TemporaryDirectory() as folder, _faults(lab, schedule) as (cycle, meanwhile):
        impatient = replace(job, words=(*job.words, "--timeout", f"{schedule.patience:g}"))
        kept = replace(impatient, checkpoint=Path(folder) / "kept", every=every)
        run = run_restarting(kept, lab.run, limit=_limit(schedule.seconds), meanwhile=meanwhile, most=1000)
    return _trained(run, cycle)


def _limit(seconds: float) -> float:
    return _TIMES * seconds + _START


@contextlib.contextmanager
def _faults(lab: Lab, schedule: Schedule | None) -> Iterator[tuple[Cycle | None, Meanwhile | None]]:
    """All is well at the beginning and again at the end."""
    if schedule is None:
        yield None, None
        return
    cycle = lab.cycle("blackhole", schedule.down, schedule.up)

    def begin(ranks: Ranks) -> None:
        if cycle.began is None and ranks.last_step >= _WARM:
            ranks.mark_fault()
            cycle.start()

    try:
        yield cycle, begin
    finally:
        cycle.stop()
    lab.wait_ready(_READY)


def _trained(run: Run | Restarted, cycle: Cycle | None) -> Trained:
    since_epoch = time.time() - time.monotonic()
    ended = run.runs[-1].ended if isinstance(run, Restarted) else run.ended
    began = [each.began + since_epoch for each in cycle.happened] if cycle else []
    return Trained(run, tuple(moment for moment in began if moment < ended))


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


KINDS = {"data parallel": RESNET, "pipeline": GPT}
_SAVED_EVERY = 5.0  # s between checkpoints of a job that restarts: often, to its advantage
_COSTS_STEPS = 60
_COSTS_LIMIT = 180.0  # s


def parts(quick: bool) -> list[Part]:
    """A full run keeps to the paper's cycle; a quick one has shorter faults, and fewer."""
    schedule = SHORT if quick else PAPER
    half = schedule if quick else replace(PAPER, faults=2)
    calm = replace(SHORT, steps=20) if quick else replace(SHORT, faults=2, steps=None)
    stalling = SHORT if quick else replace(SHORT, faults=8, steps=None)
    measured: dict[str, Callable[[], Any]] = {
        "data parallel": partial(compare, RESNET, schedule, pairs=1 if quick else 2),
        "pipeline": partial(compare, GPT, half),
        "frr": partial(compare, RESNET, half, agents=False),
        "one port": partial(compare_one_port, half),
        "collectives": partial(measure_collectives, calm, stalling),
        "costs": measure_all_costs,
    }
    return [Part(("training", name), run) for name, run in measured.items()]


def compare(kind: Kind, schedule: Schedule, pairs: int = 1, agents: bool = True) -> dict[str, Any]:
    """The same job with and without faults, in turn, so that a machine that slows down slows down both."""
    with ready_lab(agents) as lab:
        job = as_long_as(schedule, lab, on_fabric(lab), kind)
        found = list[tuple[Trained, Trained]]()
        for number in range(pairs):
            order = (False, True) if number % 2 == 0 else (True, False)
            done = {faults: train(lab, job, schedule, faults) for faults in order}
            found.append((done[True], done[False]))
    return compared(found)


def compare_one_port(schedule: Schedule) -> dict[str, Any]:
    """A job bound to one port: with all the patience that gloo has, and started again whenever it fails."""
    with ready_lab(agents=False) as lab:
        job = as_long_as(schedule, lab, on_one_port(lab), RESNET)
        calm = train(lab, job, schedule, faults=False)
        patient = train(lab, job, schedule)
        every = max(1, round(_SAVED_EVERY / calm.seconds_per_step))
        restarted = train_restarting(lab, job, schedule, every)
    assert isinstance(restarted.run, Restarted)
    return {
        "patient": {
            "slowdown": slowdown(patient, calm),
            "failure": patient.run.failure,
            "longest_stall_s": max(patient.stalls, default=0.0),
            "faults": len(patient.faults),
        },
        "restarting": {
            "slowdown": restarted.seconds_per_step / calm.seconds_per_step,
            "ended_well": not restarted.run.failure,
            "restarts": len(restarted.run.runs) - 1,
            "lost_steps": restarted.run.lost_steps,
            "faults": len(restarted.faults),
        },
    }


def measure_all_costs() -> dict[str, Any]:
    """What starting, a step, an epoch and checkpoints take, in seconds (seed 002, table 3.1)."""
    found = {}
    with ready_lab() as lab:
        for name, kind in KINDS.items():
            job = on_fabric(lab)(kind.job(_COSTS_STEPS))
            costs, _ = measure_costs(job, lab.run, steps_per_epoch=kind.steps_per_epoch, limit=_COSTS_LIMIT)
            found[name] = {
                "initialisation_s": costs.initialisation.mean,
                "step_s": costs.step,
                "epoch_s": costs.epoch,
                "saving_s": costs.saving.mean,
                "loading_s": costs.loading.mean,
                "advise": f"trimtab fabric advise 1024 {costs.options}",
            }
    return found


def figures(found: Mapping[Key, Any]) -> dict[str, Any]:
    """`training_slowdown` is of total time, the median of pairs; all that is compared ran in labs here."""
    data, pipeline, frr = (found["training", name] for name in ("data parallel", "pipeline", "frr"))
    one_port, collectives = found["training", "one port"], found["training", "collectives"]
    return {
        "training_slowdown": median(data["ratios"]),
        "training_slowdowns": data["ratios"],
        "iteration_p90_ratio": median(data["p90_ratios"]),
        "training_loss_difference": data["loss_difference"],
        "training_crashes": len(data["crashes"]) + len(pipeline["crashes"]),
        "training_stall_ms": _stalls(data),
        "pipeline_slowdown": median(pipeline["ratios"]),
        "pipeline_p90_ratio": median(pipeline["p90_ratios"]),
        "pipeline_loss_difference": pipeline["loss_difference"],
        "pipeline_stall_ms": _stalls(pipeline),
        "frr_slowdown": median(frr["ratios"]),
        "frr_crashes": len(frr["crashes"]),
        "frr_stall_ms": _stalls(frr),
        "restart_slowdown": one_port["restarting"]["slowdown"],
        "restart": one_port["restarting"],
        "one_port": one_port["patient"],
        "collectives": bandwidth_figures(collectives["rates"]),
        "collective_stall_ms": stall_figures(collectives["stalls"]),
        "costs": found["training", "costs"],
    }


def tables(found: Mapping[Key, Any]) -> list[Table]:
    """Under the cycle, costs, and collectives."""
    told = figures(found)
    return [
        _under_faults(found, told),
        _costs_table(told["costs"]),
        bandwidth_table(told["collectives"]),
        stall_table(told["collective_stall_ms"]),
    ]


def _stalls(answer: Mapping[str, Any]) -> dict[str, float]:
    """Milliseconds by which the longest step after a fault is longer than usual; the same without faults."""
    felt, calm = answer["stalls_s"], answer["calm_stalls_s"]
    return {
        "median": median(felt) * 1e3 if felt else 0.0,
        "worst": max(felt, default=0.0) * 1e3,
        "share_of_time": sum(felt) / sum(faulty for faulty, _ in answer["seconds"]),
        "median_without_faults": median(calm) * 1e3 if calm else 0.0,
        "faults": len(felt),
    }


def _under_faults(found: Mapping[Key, Any], told: Mapping[str, Any]) -> Table:
    compared_ways = {
        "data parallel, fabric": ("data parallel", "training_stall_ms"),
        "pipeline, fabric": ("pipeline", "pipeline_stall_ms"),
        "data parallel, FRR alone": ("frr", "frr_stall_ms"),
    }
    rows = [
        (
            way,
            str(found["training", name]["faults"]),
            _range(found["training", name]["ratios"]),
            f"{median(found['training', name]['p90_ratios']):.3f}",
            f"{told[stalls]['median']:.0f} ({told[stalls]['median_without_faults']:.0f})",
            f"{found['training', name]['loss_difference']:g}",
            str(len(found["training", name]["crashes"])),
        )
        for way, (name, stalls) in compared_ways.items()
    ]
    restart, one_port = told["restart"], told["one_port"]
    restarted = f"{restart['restarts']}" + ("" if restart["ended_well"] else ", not ended")
    rows.append(
        (
            "data parallel, one port, restarting",
            str(restart["faults"]),
            f"{restart['slowdown']:.3f}",
            *("", "", ""),
            restarted,
        )
    )
    stall = f"{one_port['longest_stall_s'] * 1e3:.0f} at most"
    ratio = f"{one_port['slowdown']:.3f}"
    died = "1" if one_port["failure"] else "0"
    rows.append(("data parallel, one port", str(one_port["faults"]), ratio, "", stall, "", died))
    columns = (
        *("job", "faults", "time to that without", "90th percentile", "stall ms (without faults)"),
        *("loss differs by", "crashes"),
    )
    return Table("Training while one uplink after the other is silent", columns, tuple(rows))


def _costs_table(costs: Mapping[str, Mapping[str, Any]]) -> Table:
    keys = ("saving_s", "loading_s", "initialisation_s", "step_s", "epoch_s")
    rows = [(name, *(format_duration(each[key]) for key in keys)) for name, each in costs.items()]
    columns = ("job", "saving a checkpoint", "loading it", "initialisation", "step", "epoch")
    return Table("What failing would cost", columns, tuple(rows))


def _range(ratios: list[float]) -> str:
    if len(ratios) == 1:
        return f"{ratios[0]:.3f}"
    return f"{median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
