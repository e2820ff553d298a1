"""Training under faults: how much longer a job takes, how long it stalls, how far its loss differs."""

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

import numpy as np

from trimtab.collect import Step
from trimtab.core import BadInputError, TrimtabError
from trimtab.core.units import format_bytes, format_duration
from trimtab.fabric import apply_plan, plan_here
from trimtab.fabric.lab.faults import Cycle
from trimtab.fabric.lab.lab import Lab
from trimtab_bench.fabric.gloo_jobs import (
    GlooJob,
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
from trimtab_bench.harness import BenchPart, Key, ResultTable

AVERAGED = 10
"""Iterations that are averaged before their 90th percentile is compared, as in seed 002, figure 3.6."""
_AFTER = 2.0  # s after the begin of a fault, in which it may stall a step


@dataclass(frozen=True, slots=True)
class Trained:
    """A job that ran, and when faults began meanwhile, in seconds since the epoch."""

    run: Run | Restarted
    faults: tuple[float, ...] = ()

    @property
    def seconds(self) -> float:
        """From the begin of the first step to the end of the last one that was made."""
        first = self.run.runs[0] if isinstance(self.run, Restarted) else self.run
        begin = first.started_at if first.marks.ready is None else first.marks.ready
        return self.run.steps[-1].time - begin if self.run.steps else math.inf

    @property
    def seconds_per_step(self) -> float:
        """Mean seconds per step; a step that was repeated after a failure counts once."""
        return self.seconds / len(self.run.steps) if self.run.steps else math.inf

    @property
    def stalls(self) -> tuple[float, ...]:
        """By how much the longest step after each fault was longer than the median step, in seconds."""
        steps = self.run.steps
        if len(steps) < 2:
            return ()
        usual = median(_lengths(steps))
        return tuple(
            max(
                after.time - before.time
                for before, after in pairwise(steps)
                if after.time > fault and before.time < fault + _AFTER
            )
            - usual
            for fault in self.faults
            if steps[0].time <= fault < steps[-1].time
        )

    def at(self, faults: Sequence[float], first_step: float) -> "Trained":
        """This run with the faults of another, aligned at the first step: a control without faults."""
        shift = self.run.steps[0].time - first_step if self.run.steps else 0.0
        return Trained(self.run, tuple(fault + shift for fault in faults))


def slowdown(with_faults: Trained, without: Trained) -> float:
    """Ratio of the seconds per step; infinite where the job failed."""
    if with_faults.run.failure or without.run.failure:
        return math.inf
    return with_faults.seconds_per_step / without.seconds_per_step


def p90_ratio(with_faults: Trained, without: Trained) -> float:
    """The 90th percentile of an iteration's time, each the mean of ten, to that without faults.

    Infinite where the job failed: it may have died before a fault could slow it down.
    """
    if with_faults.run.failure or without.run.failure:
        return math.inf
    quantiles = []
    for run in (with_faults.run, without.run):
        lengths = _lengths(run.steps)
        means = [fmean(lengths[first : first + AVERAGED]) for first in range(0, len(lengths), AVERAGED)]
        quantiles.append(float(np.quantile(means, 0.9)))
    return quantiles[0] / quantiles[1]


def compared(pairs: Sequence[tuple[Trained, Trained]]) -> dict[str, Any]:
    """Pairs of the same job with and without faults."""
    one, other = pairs[0]
    return {
        "ratios": [slowdown(faulty, calm) for faulty, calm in pairs],
        "p90_ratios": [p90_ratio(faulty, calm) for faulty, calm in pairs],
        "loss_difference": max(loss_difference(one.run, job.run) for pair in pairs for job in pair),
        "final_loss": other.run.steps[-1].loss,
        "crashes": [job.run.failure for pair in pairs for job in pair if job.run.failure],
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


def _lengths(steps: Sequence[Step]) -> list[float]:
    return [after.time - before.time for before, after in pairwise(steps)]


_JOBS = Path(__file__).resolve().parents[4] / "examples" / "fabric"
_WARM = 5  # steps before the first fault
_TRIED = 40  # steps by which a job's pace is known
_READY = 120.0  # s for a lab, also after faults
_START = 60.0  # s that a job may take to start
_TIMES = 5.0  # as long as it should, that a job may take


@dataclass(frozen=True, slots=True)
class FaultSchedule:
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
        """Seconds that a job should take without faults."""
        return self.faults * (self.down + self.up)

    @property
    def limit(self) -> float:
        """Seconds after which a job is given up."""
        return _TIMES * self.seconds + _START


PAPER = FaultSchedule(20.0, 20.0, faults=4, patience=5.0)
SHORT = FaultSchedule(4.0, 4.0, faults=1, patience=3.0, steps=100)


@dataclass(frozen=True, slots=True)
class ExampleJob:
    """A job of `examples/fabric`: its script, its options, and the steps of an epoch."""

    script: str
    options: tuple[str, ...]
    steps_per_epoch: int

    def job(self, steps: int, *more: str) -> GlooJob:
        """The job with so many steps on two hosts, not yet bound to a device."""
        path = _JOBS / self.script
        if not path.exists():
            raise BadInputError(f"there is no {path}; run this bench from a checkout of Trimtab's source")
        return GlooJob((sys.executable, str(path), *self.options, "--steps", str(steps), *more))


RESNET = ExampleJob(
    "pictures_resnet.py", ("--width", "16", "--blocks", "1", "--batch-size", "8"), 50_000 // 16
)
GPT = ExampleJob(
    "words_gpt.py",
    ("--width", "32", "--layers", "2", "--batch-size", "8", "--small-batches", "4"),
    10_000 // 8,
)
COLLECTIVES = ExampleJob("collectives.py", (), 1)


@contextlib.contextmanager
def ready_lab(agents: bool = True) -> Iterator[Lab]:
    """Two hosts that work, with Trimtab's agents or with FRR alone."""
    with Lab() as lab:
        lab.wait_ready(_READY)
        if agents:
            lab.start_agents()
        yield lab


def on_fabric(lab: Lab) -> Callable[[GlooJob], GlooJob]:
    """Binds a job to the virtual device."""
    return lambda job: job.bound_to(lab.hosts[0].host.tenants[0].devices[0])


def on_one_port(lab: Lab) -> Callable[[GlooJob], GlooJob]:
    """Binds a job to the first uplink of both hosts, as one would without a fabric."""
    bind_to_one_port(lab)
    address, device = single_port_addresses(lab)[0], lab.hosts[0].host.uplinks[0].device
    return lambda job: replace(job, address=address, device=device)


def as_long_as(
    schedule: FaultSchedule, lab: Lab, bind: Callable[[GlooJob], GlooJob], example: ExampleJob, *options: str
) -> GlooJob:
    """The job with as many steps as the schedule takes, by the pace it has here without faults."""
    if schedule.steps is not None:
        return bind(example.job(schedule.steps, *options))
    run = run_job(bind(example.job(_TRIED, *options)), lab.run, limit=schedule.limit)
    if run.failure:
        raise TrimtabError(f"{example.script} does not run in the lab: {run.failure}")
    steps = max(_TRIED, round(schedule.seconds / median(run.step_seconds[_WARM:])))
    return bind(example.job(steps, *options))


def train(lab: Lab, job: GlooJob, schedule: FaultSchedule, faults: bool = True) -> Trained:
    """Run the job to its end; faults begin with its first steps and continue until it ends."""
    if faults:
        with _faults(lab, schedule) as (cycle, meanwhile):
            run = run_job(job, lab.run, limit=schedule.limit, meanwhile=meanwhile)
        return _trained(run, cycle)
    run = run_job(job, lab.run, limit=schedule.limit)
    if run.failure:
        raise TrimtabError(f"without any fault the job {Path(job.words[1]).name} fails: {run.failure}")
    return Trained(run)


def train_restarting(lab: Lab, job: GlooJob, schedule: FaultSchedule, every: int) -> Trained:
    """Run a job under faults that gives up soon and is started again from its last checkpoint."""
    with tempfile.TemporaryDirectory() as folder, _faults(lab, schedule) as (cycle, meanwhile):
        words = (*job.words, "--timeout", f"{schedule.patience:g}")
        saving = replace(job, words=words, checkpoint=Path(folder) / "kept", every=every)
        run = run_restarting(saving, lab.run, limit=schedule.limit, meanwhile=meanwhile, most=1000)
    return _trained(run, cycle)


@contextlib.contextmanager
def _faults(lab: Lab, schedule: FaultSchedule) -> Iterator[tuple[Cycle, Meanwhile]]:
    """A cycle of faults that begins after a few steps; the lab is ready again at the end."""
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


def _trained(run: Run | Restarted, cycle: Cycle) -> Trained:
    since_epoch = time.time() - time.monotonic()
    ended = run.runs[-1].ended if isinstance(run, Restarted) else run.ended
    began = [fault.began + since_epoch for fault in cycle.happened]
    return Trained(run, tuple(moment for moment in began if moment < ended))


SIZES = (2**16, 2**23)
_SMALL = ("--bytes", str(2**16))
_KERNELS = 0.0  # s: leave the least timeout to the kernel


def measure_collectives(calm: FaultSchedule, faulty: FaultSchedule) -> dict[str, Any]:
    """Bytes per second of every operation on the virtual device and on one port; seconds of stalls.

    Stalls are of small messages after each fault, with TCP's least timeout as usual and as the kernel has it.
    """
    sizes = ("--bytes", *map(str, SIZES))
    rates, stalls = {}, {}
    with ready_lab() as lab:
        ways = {"fabric": on_fabric(lab), "one_port": on_one_port(lab)}
        for way, bind in ways.items():
            job = as_long_as(calm, lab, bind, COLLECTIVES, *sizes)
            run = _checked(train(lab, job, calm, faults=False)).run
            assert isinstance(run, Run)
            rates[way] = {f"{c.operation} {format_bytes(c.bytes)}": c.rate for c in run.marks.collectives}
        job = as_long_as(faulty, lab, ways["fabric"], COLLECTIVES, *_SMALL)
        for name, least in (("rto_min", lab.hosts[0].host.rto_min), ("without", _KERNELS)):
            for host in lab.hosts:
                apply_plan(plan_here(replace(host.host, rto_min=least), host.namespace), host.namespace)
            stalls[name] = list(_checked(train(lab, job, faulty)).stalls)
    return {"rates": rates, "stalls": stalls}


def _checked(done: Trained) -> Trained:
    """The argument, if it ended well and all results of collectives were right."""
    if done.run.failure:
        raise TrimtabError(f"collectives do not run in the lab: {done.run.failure}")
    if worst := max(step.loss for step in done.run.steps):
        raise TrimtabError(f"collectives gave wrong results, by as much as {worst:g}")
    return done


EXAMPLES = {"data parallel": RESNET, "pipeline": GPT}
_SAVED_EVERY = 5.0  # s between checkpoints of a job that restarts: often, to its advantage
_COSTS_STEPS = 60
_COSTS_LIMIT = 180.0  # s


def parts(quick: bool) -> list[BenchPart]:
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
    return [BenchPart(("training", name), run) for name, run in measured.items()]


def compare(
    example: ExampleJob, schedule: FaultSchedule, pairs: int = 1, agents: bool = True
) -> dict[str, Any]:
    """A job with and without faults, in turn, so that a machine that slows down slows down both."""
    with ready_lab(agents) as lab:
        job = as_long_as(schedule, lab, on_fabric(lab), example)
        done = list[tuple[Trained, Trained]]()
        for number in range(pairs):
            order = (False, True) if number % 2 == 0 else (True, False)
            trained = {faults: train(lab, job, schedule, faults) for faults in order}
            done.append((trained[True], trained[False]))
    return compared(done)


def compare_one_port(schedule: FaultSchedule) -> dict[str, Any]:
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
    """Seconds of starting, a step, an epoch and checkpoints (seed 002, table 3.1)."""
    figures = {}
    with ready_lab() as lab:
        for name, example in EXAMPLES.items():
            job = on_fabric(lab)(example.job(_COSTS_STEPS))
            costs, _ = measure_costs(
                job, lab.run, steps_per_epoch=example.steps_per_epoch, limit=_COSTS_LIMIT
            )
            figures[name] = {
                "initialisation_s": fmean(costs.initialisation),
                "step_s": costs.step,
                "epoch_s": costs.epoch,
                "saving_s": fmean(costs.saving),
                "loading_s": fmean(costs.loading),
                "advise": f"trimtab fabric advise 1024 {costs.options}",
            }
    return figures


def figures(results: Mapping[Key, Any]) -> dict[str, Any]:
    """`training_slowdown` is of total time, the median of pairs; all that is compared ran in labs here."""
    data, pipeline, frr = (results["training", name] for name in ("data parallel", "pipeline", "frr"))
    one_port, collectives = results["training", "one port"], results["training", "collectives"]
    rates, stalls = collectives["rates"], collectives["stalls"]
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
        "collectives": {
            name: {
                "fabric_gbit_s": rate * 8e-9,
                "one_port_gbit_s": rates["one_port"][name] * 8e-9,
                "ratio": rate / rates["one_port"][name],
            }
            for name, rate in rates["fabric"].items()
        },
        "collective_stall_ms": {
            name: {
                "median": median(seconds) * 1e3,
                "mean": fmean(seconds) * 1e3,
                "worst": max(seconds) * 1e3,
                "faults": len(seconds),
            }
            for name, seconds in stalls.items()
            if seconds
        },
        "costs": results["training", "costs"],
    }


def _stalls(answer: Mapping[str, Any]) -> dict[str, float]:
    """Milliseconds by which the longest step after a fault exceeds the median step, and without faults."""
    stalls, calm = answer["stalls_s"], answer["calm_stalls_s"]
    return {
        "median": median(stalls) * 1e3 if stalls else 0.0,
        "worst": max(stalls, default=0.0) * 1e3,
        "share_of_time": sum(stalls) / sum(faulty for faulty, _ in answer["seconds"]),
        "median_without_faults": median(calm) * 1e3 if calm else 0.0,
        "faults": len(stalls),
    }


def tables(results: Mapping[Key, Any]) -> list[ResultTable]:
    """Under the cycle of faults, costs of failing, and collectives."""
    shown = figures(results)
    costs = {
        name: {key: format_duration(value) for key, value in entry.items() if key.endswith("_s")}
        for name, entry in shown["costs"].items()
    }
    names = {"rto_min": "rto_min of the host's file", "without": "rto_min: off"}
    return [
        _under_faults(results, shown),
        ResultTable.of(
            "What failing would cost",
            "job",
            costs,
            {
                "saving a checkpoint": "{saving_s}",
                "loading it": "{loading_s}",
                "initialisation": "{initialisation_s}",
                "step": "{step_s}",
                "epoch": "{epoch_s}",
            },
        ),
        ResultTable.of(
            "Collectives of two hosts over gloo",
            "collective",
            shown["collectives"],
            {
                "virtual device, Gbit/s": "{fabric_gbit_s:.2f}",
                "one port, Gbit/s": "{one_port_gbit_s:.2f}",
                "ratio": "{ratio:.2f}",
            },
        ),
        ResultTable.of(
            "Collectives stop after a silent fault",
            "TCP's least timeout",
            {names[name]: entry for name, entry in shown["collective_stall_ms"].items()},
            {
                "faults": "{faults}",
                "median ms": "{median:.0f}",
                "mean ms": "{mean:.0f}",
                "worst ms": "{worst:.0f}",
            },
        ),
    ]


def _under_faults(results: Mapping[Key, Any], shown: Mapping[str, Any]) -> ResultTable:
    ways = {
        "data parallel, fabric": ("data parallel", "training_stall_ms"),
        "pipeline, fabric": ("pipeline", "pipeline_stall_ms"),
        "data parallel, FRR alone": ("frr", "frr_stall_ms"),
    }
    rows = []
    for way, (name, stalls) in ways.items():
        result, stall = results["training", name], shown[stalls]
        ratios = result["ratios"]
        spread = f" ({min(ratios):.3f} to {max(ratios):.3f})" if len(ratios) > 1 else ""
        rows.append(
            (
                way,
                str(result["faults"]),
                f"{median(ratios):.3f}{spread}",
                f"{median(result['p90_ratios']):.3f}",
                f"{stall['median']:.0f} ({stall['median_without_faults']:.0f})",
                f"{result['loss_difference']:g}",
                str(len(result["crashes"])),
            )
        )
    restart, one_port = shown["restart"], shown["one_port"]
    restarts = f"{restart['restarts']}" + ("" if restart["ended_well"] else ", not ended")
    ratio, faults = f"{restart['slowdown']:.3f}", str(restart["faults"])
    rows.append(("data parallel, one port, restarting", faults, ratio, "", "", "", restarts))
    stall = f"{one_port['longest_stall_s'] * 1e3:.0f} at most"
    ratio, faults = f"{one_port['slowdown']:.3f}", str(one_port["faults"])
    died = "1" if one_port["failure"] else "0"
    rows.append(("data parallel, one port", faults, ratio, "", stall, "", died))
    columns = (
        *("job", "faults", "time to that without", "90th percentile", "stall ms (without faults)"),
        *("loss differs by", "crashes"),
    )
    return ResultTable("Training while one uplink after the other is silent", columns, rows)
