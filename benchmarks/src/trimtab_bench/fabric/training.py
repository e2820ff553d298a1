"""Training under faults: two hosts, one uplink after the other silent, and jobs that know nothing of it.

Data-parallel and pipeline-parallel jobs over gloo through the virtual device, with and without the fault
cycle of seed 002, section 3.5.2; against FRR alone, a worker bound to one port, and one that restarts.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

from trimtab.core.units import format_duration
from trimtab_bench.fabric.gloo_jobs.costs import measure_costs
from trimtab_bench.fabric.gloo_jobs.run import Restarted
from trimtab_bench.fabric.training_collectives import (
    bandwidth_figures,
    bandwidth_table,
    measure_collectives,
    stall_figures,
    stall_table,
)
from trimtab_bench.fabric.training_measures import Trained, compared, slowdown
from trimtab_bench.fabric.training_runs import (
    GPT,
    PAPER,
    RESNET,
    SHORT,
    Kind,
    Schedule,
    as_long_as,
    on_fabric,
    on_one_port,
    ready_lab,
    train,
    train_restarting,
)
from trimtab_bench.kept import Key, Part
from trimtab_bench.result import Table

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
