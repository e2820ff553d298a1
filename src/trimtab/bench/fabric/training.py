"""Training under faults: two hosts, one uplink after the other silent, and jobs that know nothing of it.

Data-parallel and pipeline-parallel jobs over gloo through the virtual device, with and without the fault
cycle of seed 002, section 3.5.2; against FRR alone, a worker bound to one port, and one that restarts.
"""

from collections.abc import Mapping
from functools import partial
from statistics import median
from typing import Any

from trimtab.bench.fabric.training_collectives import (
    bandwidth_figures,
    bandwidth_table,
    measure_bandwidth,
    measure_stalls,
    stall_figures,
    stall_table,
)
from trimtab.bench.fabric.training_measures import Trained, compared, slowdown
from trimtab.bench.fabric.training_runs import (
    GPT,
    PAPER,
    RESNET,
    SHORT,
    Kind,
    Schedule,
    on_fabric,
    on_one_port,
    ready_lab,
    steps_in,
    train,
    train_restarting,
)
from trimtab.bench.kept import Key, Part
from trimtab.bench.result import Table
from trimtab.core.units import format_duration
from trimtab.fabric.training import JobCosts, Measured, Restarted, measure_costs

KINDS = {"data parallel": RESNET, "pipeline": GPT}
_SAVED_EVERY = 5.0  # s between checkpoints of a job that restarts: often, to its advantage
_COSTS_LIMIT = 180.0  # s


def parts(quick: bool) -> list[Part]:
    """A full run keeps to the paper's cycle; a quick one has shorter faults, and fewer."""
    schedule = SHORT if quick else PAPER
    faults, few = (1, 1) if quick else (4, 2)
    measured = {
        "data parallel": partial(compare, RESNET, schedule, faults, pairs=1 if quick else 2),
        "pipeline": partial(compare, GPT, schedule, few),
        "frr": partial(compare, RESNET, schedule, few, agents=False),
        "restart": partial(compare_restarting, schedule, few),
        "one port": partial(compare_one_port, schedule, few),
        "bandwidth": partial(measure_bandwidth, 2.0 if quick else 15.0),
        "stalls": partial(measure_stalls, SHORT, faults if quick else 8),
    }
    costs = {f"costs of {name}": partial(measure_kind, kind) for name, kind in KINDS.items()}
    return [Part(("training", name), run) for name, run in (measured | costs).items()]


def compare(
    kind: Kind, schedule: Schedule, faults: int, pairs: int = 1, agents: bool = True
) -> dict[str, Any]:
    """The same job with and without faults, in turn, so that a machine that slows down slows down both."""
    expected = faults * schedule.period
    with ready_lab(agents) as lab:
        bind = on_fabric(lab)
        job = bind(kind.job(steps_in(lab, bind, kind, expected)))
        found = list[tuple[Trained, Trained]]()
        for number in range(pairs):
            order = (None, schedule) if number % 2 == 0 else (schedule, None)
            done = {each: train(lab, job, expected, each) for each in order}
            found.append((done[schedule], done[None]))
    return compared(found)


def compare_restarting(schedule: Schedule, faults: int) -> dict[str, Any]:
    """A job bound to one port that is started again from its last checkpoint whenever it fails."""
    expected = faults * schedule.period
    with ready_lab(agents=False) as lab:
        bind = on_one_port(lab)
        steps = steps_in(lab, bind, RESNET, expected)
        calm = train(lab, bind(RESNET.job(steps)), expected)
        every = max(1, round(_SAVED_EVERY / calm.seconds_per_step))
        faulty = train_restarting(lab, bind(RESNET.job(steps)), expected, schedule, every)
    assert isinstance(faulty.run, Restarted)
    return {
        "slowdown": faulty.seconds_per_step / calm.seconds_per_step,
        "ended_well": not faulty.run.failure,
        "starts": len(faulty.run.runs),
        "lost_steps": faulty.run.lost_steps,
        "faults": len(faulty.faults),
    }


def compare_one_port(schedule: Schedule, faults: int) -> dict[str, Any]:
    """The same job without restarts and with all the patience that gloo has."""
    expected = faults * schedule.period
    with ready_lab(agents=False) as lab:
        bind = on_one_port(lab)
        job = bind(RESNET.job(steps_in(lab, bind, RESNET, expected)))
        calm = train(lab, job, expected)
        faulty = train(lab, job, expected, schedule)
    return {
        "slowdown": slowdown(faulty, calm),
        "failure": faulty.run.failure,
        "longest_stall_s": max(faulty.stalls, default=0.0),
        "faults": len(faulty.faults),
    }


def measure_kind(kind: Kind) -> dict[str, Any]:
    """What starting, a step, an epoch and checkpoints take, in seconds (seed 002, table 3.1)."""
    with ready_lab() as lab:
        job = on_fabric(lab)(kind.job(60))
        costs, _ = measure_costs(job, lab.run, steps_per_epoch=kind.steps_per_epoch, limit=_COSTS_LIMIT)
    return {
        "initialisation_s": list(costs.initialisation.seconds),
        "step_s": costs.step,
        "epoch_s": costs.epoch,
        "saving_s": list(costs.saving.seconds),
        "loading_s": list(costs.loading.seconds),
    }


def figures(found: Mapping[Key, Any]) -> dict[str, Any]:
    """`training_slowdown` is of total time, the median of pairs; all that is compared ran in labs here."""
    data, pipeline, frr = (found["training", name] for name in ("data parallel", "pipeline", "frr"))
    restart = found["training", "restart"]
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
        "restart_slowdown": restart["slowdown"],
        "restart": restart,
        "one_port": found["training", "one port"],
        "collectives": bandwidth_figures(found["training", "bandwidth"]),
        "collective_stall_ms": stall_figures(found["training", "stalls"]),
        "costs": {name: _costs(found["training", f"costs of {name}"]) for name in KINDS},
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
        "median_without_faults": median(calm) * 1e3 if calm else 0.0,
        "faults": len(felt),
    }


def _costs(answer: Mapping[str, Any]) -> dict[str, Any]:
    costs = JobCosts(
        Measured(tuple(answer["initialisation_s"])),
        answer["step_s"],
        answer["epoch_s"],
        Measured(tuple(answer["saving_s"])),
        Measured(tuple(answer["loading_s"])),
    )
    return {
        "initialisation_s": costs.initialisation.mean,
        "step_s": costs.step,
        "epoch_s": costs.epoch,
        "saving_s": costs.saving.mean,
        "loading_s": costs.loading.mean,
        "advise": f"trimtab fabric advise 1024 {costs.options}",
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
    restarted = f"{restart['starts'] - 1}" + ("" if restart["ended_well"] else ", not ended")
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
