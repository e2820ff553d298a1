"""`trimtab partition`: split a model over devices, which may be unequal."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.markup import escape
from rich.table import Table

from trimtab import partition as room
from trimtab.catalog import find_accelerator
from trimtab.cli.place import LedgerQueue, check_place
from trimtab.cli.terminal import (
    OUTPUT,
    Json,
    check_files,
    new_table,
    one_of,
    panel,
    print_table,
    progress,
    say,
)
from trimtab.core import BadInputError, MissingDependencyError, format_bytes, format_duration, to_plain
from trimtab.kernel import write_whole
from trimtab.serve import plan_partition

if TYPE_CHECKING:
    from trimtab.partition import RunReport

_device, _use, _search = panel("Devices"), panel("Use of the model"), panel("Plans to consider")
_output, _run = panel(OUTPUT), panel("Training with it here")
_PRECISIONS = ("fp32", "tf32", "bf16", "fp16")


def partition(
    target: str = typer.Argument(
        ...,
        metavar="MODEL",
        help="mymodel.py:build, package.module:build(layers=4), graph.json or model.onnx.",
    ),
    devices: str = _device(
        ..., metavar="DEVICES", help="Kinds and counts like a100-40:2,t4:4 or cpu:2x8, or a YAML file."
    ),
    network: str | None = _device(
        None, metavar="BANDWIDTH", help="Bandwidth between machines: 25Gbit, 3GB/s, none; default: 10Gbit."
    ),
    per_machine: int | None = _device(
        None, help="Devices per machine; default: all devices of a kind are in one machine."
    ),
    batch: int = _use(32, help="Samples per step, over all devices."),
    precision: str | None = _use(
        None,
        metavar="FORMAT",
        help="Number format: fp32, tf32, bf16, fp16; default: bf16, or fp32 if there are CPUs.",
    ),
    optimizer: str = _use("adam", metavar="NAME", help="adam, momentum or sgd."),
    inference: bool = _use(False, "--inference", help="Forward only."),
    objective: str = _search(
        "throughput", metavar="NAME", help="What makes a plan better: throughput, latency or cost."
    ),
    idle_weight: float = _search(0.0, help="With --objective latency: weight of idle memory."),
    schedule: str | None = _search(
        None, metavar="NAME", help="Order of forward and backward passes: 1f1b or gpipe; default: the faster."
    ),
    microbatches: int | None = _search(None, help="Micro-batches per step; default: the best."),
    pipeline_only: bool = _search(False, "--pipeline-only", help="No replicas, no tensor parallelism."),
    max_data: int | None = _search(None, help="At most this many replicas."),
    max_tensor: int | None = _search(None, help="At most this many devices of tensor parallelism."),
    sharding: str | None = _search(
        None,
        metavar="NAME",
        help="Sharding among replicas: none, optimizer, full; several as none,optimizer.",
    ),
    recompute: bool = _search(True, "--recompute/--no-recompute", help="Allow to recompute activations."),
    method: str = _search("ours", metavar="NAME", help="ours, milp, or one to compare with: equal, …"),
    explain: bool = _output(False, "--explain", help="Name all layers of every stage."),
    as_json: Json = False,
    html: Path | None = _output(
        None, "--html", metavar="FILE", help="Write a page with charts of the graph, schedule and memory."
    ),
    output: Path | None = _output(None, "-o", "--output", metavar="PLAN.json", help="Write the plan."),
    device_map: Path | None = _output(None, metavar="FILE", help="Write Accelerate's device map."),
    torchrun: Path | None = _output(
        None, metavar="FOLDER", help="Write a script that trains with the plan, and its launcher."
    ),
    run: bool = _run(
        False, "--run", help="Train a few steps in local processes, and check that the loss is equal."
    ),
    steps: int = _run(5, help="Steps to train.", min=1),
) -> None:
    """Split a model over devices: which layers go where, predicted time and memory, and why.

    `trimtab partition mymodel.py:build --devices a100-40:2,t4:4 --network 25Gbit`
    searches mixes of pipeline, data, sharded-data and tensor parallelism. The decision is recorded;
    `trimtab outcome ID --time 0.42s` adds the measured time of a step.
    """
    parsed = room.parse_devices(devices, network, per_machine)
    has_cpus = any(device.cores for device in parsed.devices.devices)
    recipe = room.Recipe(
        batch=batch,
        precision=one_of("--precision", precision or ("fp32" if has_cpus else "bf16"), _PRECISIONS),
        optimizer=one_of("--optimizer", optimizer, ("adam", "momentum", "sgd")),
        training=not inference,
    )
    kinds = ("none", "optimizer", "full")
    shardings = [name.strip() for name in sharding.split(",")] if sharding is not None else kinds
    settings = _settings(
        objective=one_of("--objective", objective, ("throughput", "latency", "cost")),
        idle_weight=idle_weight,
        microbatches=microbatches,
        schedule=None if schedule is None else one_of("--schedule", schedule, ("1f1b", "gpipe")),
        pipeline_only=pipeline_only,
        most_replicas=max_data,
        most_tensor=max_tensor,
        shardings=tuple(dict.fromkeys(one_of("--sharding", name, kinds) for name in shardings)),
        recompute=recompute,
    )
    _check(target, parsed.devices, recipe, settings, run or torchrun is not None)
    check_files(html, output, device_map, torchrun / "plan.json" if torchrun else None)
    check_place()
    graph, notes = _graph(target, batch)
    with _working() as show:
        solution = plan_partition(graph, parsed.devices, recipe, settings, method, show)
        solution = room.with_usual_plans(solution, settings)
    assumed = (*parsed.assumed, *notes)
    texts = _files(solution, target, output, device_map, torchrun)  # all of them, before any is written
    decision = room.decision(replace(solution, placement=None) if run or torchrun else solution)
    ledger = LedgerQueue()
    ledger.record(decision)
    if html:
        texts[html] = room.html_report(solution, ledger.id_of(decision.id), assumed)
    for path, text in texts.items():
        write_whole(path, text)
        if path.suffix == ".sh":
            path.chmod(0o755)
    report, here = _train(ledger, solution, target, steps, decision.id) if run else (None, None)
    decision_id = ledger.id_of(decision.id)
    if as_json:
        print(json.dumps(plan_as_json(solution, decision_id, assumed, report, here)))
    else:
        print_plan(solution, assumed, explain)
        if report is not None:
            print_run(solution, report, here)
        for path in texts:
            typer.echo(f"written: {path.resolve()}")
        if decision_id:
            typer.echo(f"decision {decision_id}: trimtab decisions {decision_id}")
    ledger.require()
    if report is not None and not report.equal:
        raise typer.Exit(1)


def _settings(**values: Any) -> room.SearchSettings:
    """Search settings, with the search's own defaults where a value is None."""
    options = {"microbatches": "--microbatches", "most_replicas": "--max-data", "most_tensor": "--max-tensor"}
    for name, option in options.items():
        if values[name] is not None and values[name] < 1:
            raise BadInputError(f"{option} is {values[name]}; it should be at least 1")
    idle_weight = values["idle_weight"]
    if not 0 <= idle_weight < math.inf:
        raise BadInputError(f"--idle-weight is {idle_weight:g}; it should be a number from 0 upwards")
    if idle_weight and values["objective"] != "latency":
        raise BadInputError("--idle-weight needs --objective latency")
    return room.SearchSettings(**{name: value for name, value in values.items() if value is not None})


def _check(
    target: str, devices: room.Devices, recipe: room.Recipe, settings: room.SearchSettings, trains: bool
) -> None:
    """Refuse, before any work, options that contradict each other."""
    for kind in devices.kinds if recipe.training else ():
        facts = find_accelerator(kind)
        if facts is not None and not facts.trains:
            raise BadInputError(f"{kind} cannot train; add --inference, or train on other devices")
    if settings.microbatches is not None and recipe.batch % settings.microbatches:
        raise BadInputError(f"{settings.microbatches} micro-batches do not divide a batch of {recipe.batch}")
    if trains and _is_file(target):
        raise BadInputError(
            f"{target} is only a graph; --run and --torchrun need a builder like model.py:build"
        )
    if trains and not recipe.training:
        raise BadInputError("--run and --torchrun train; leave out --inference")


def _is_file(target: str) -> bool:
    return target.endswith((".json", ".onnx"))


def _graph(target: str, batch: int) -> tuple[room.Graph, tuple[str, ...]]:
    """The graph, and notes on how it was captured. Only a builder needs PyTorch."""
    if _is_file(target):
        return room.load_graph(target, batch), ()
    if find_spec("torch") is None:
        raise MissingDependencyError(
            "a model in Python is read with PyTorch; pip install 'trimtab[learn]', or give a graph file"
        )
    captured = room.load_target(target)
    if captured.how == "export":
        return captured.graph, ()
    return captured.graph, (f"operations as {captured.how} shows them, since {captured.note}",)


def _files(
    solution: room.Solution, target: str, output: Path | None, device_map: Path | None, torchrun: Path | None
) -> dict[Path, str]:
    """Contents of the files to write, by path."""
    plan = solution.plan, solution.graph, solution.devices, solution.recipe
    texts: dict[Path, str] = {}
    if output:
        texts[output] = room.plan_json(*plan, solution.forecast, None if _is_file(target) else target)
    if device_map:
        placed = (
            room.placement_map(solution.placement)
            if solution.placement is not None
            else room.device_map(solution.plan, solution.graph, solution.devices)
        )
        texts[device_map] = json.dumps(placed, indent=1) + "\n"
    if torchrun:
        script = room.torchrun_script(*plan, target, solution.forecast)
        texts |= {torchrun / name: text for name, text in script.items()}
    return texts


def _train(
    ledger: LedgerQueue, solution: room.Solution, target: str, steps: int, decision_id: str
) -> tuple["RunReport", float | None]:
    """Train as planned; on CPUs of this machine, the measured step is the decision's outcome.

    Returns the report, and seconds per step predicted from this machine's own speed, if it ran on CPUs.
    """
    from trimtab.partition import RunSettings, measure_link, predicted_here, run_plan

    with _working() as show:
        show(f"training {steps} steps, as planned and in one piece", 0, 0)
        report = run_plan(target, solution.graph, solution.plan, solution.recipe, RunSettings(steps=steps))
        if not all(solution.devices[use.device].cores for use in solution.forecast.uses):
            return report, None
        show("measuring the link between the processes", 0, 0)
        here = predicted_here(solution.graph, solution.plan, solution.recipe, report, measure_link())
    ledger.record_outcome(decision_id, {"time": report.seconds}, "measured by --run")
    return report, here


def print_plan(solution: room.Solution, assumed: Sequence[str], explain: bool) -> None:
    """Print the plan, its figures and reasons."""
    words, placed = room.explained(solution), room.explained_placement(solution)
    graph, recipe = solution.graph, solution.recipe
    use = f"{recipe.optimizer}, {recipe.precision}" if recipe.training else f"inference, {recipe.precision}"
    say(
        f"{graph.name}: {len(graph):,} operations, {_parameters(graph.total_parameters)} parameters;"
        f" {recipe.batch:,} samples a step, {use}; {len(solution.devices)} devices"
    )
    if placed is not None:
        say(f"it fits: {placed.summary}")
        say(f"{room.HOW_PLACED}\n")
        print_table(_placed_devices(placed, explain))
        print()
        for name, value in placed.figures:
            say(f"{name:12} {value}")
        say("--device-map writes this placement; -o, --run and --torchrun use the plan in stages\n")
    say(f"{'in stages' if placed else 'it fits'}: {words.mix}")
    for table in (_stages(words, explain), _devices(words)):
        print()
        print_table(table)
    print()
    for name, value in words.figures:
        say(f"{name:12} {value}")
    say("\nwhy this cut")
    for line in words.reasons:
        say(f"  {line}")
    if words.others:
        say("other plans")
    for name, line in words.others:
        say(f"  {name}: {line}")
    for line in assumed:
        say(f"assumed: {line}")


def print_run(solution: room.Solution, report: "RunReport", here: float | None) -> None:
    """Print losses and step time of a training run; `here` is predicted from this machine's own speed."""
    say(f"trained {len(report.losses)} steps in {len(report.ranks)} processes and in one piece")
    say(f"  losses {' '.join(f'{loss:.6g}' for loss in report.losses)}")
    verdict = "equal" if report.equal else "NOT equal"
    say(f"  {verdict}: {report.difference:.1e} apart at most, weights {report.weights:.1e}")
    if solution.placement is not None:
        say("  by the plan in stages, not the placement")
    say(f"  a step took {format_duration(report.seconds)}")
    if here is not None:
        for source, seconds in (
            ("before the run", solution.forecast.seconds),
            ("from the whole model's speed and the link here", here),
        ):
            say(f"  predicted {source}: {format_duration(seconds)}, {seconds / report.seconds - 1.0:+.0%}")
    for note in report.notes:
        say(f"  {note}")


@contextmanager
def _working() -> Iterator[Callable[[str, int, int], None]]:
    """A progress line on the terminal; yields `show(doing, done, total)`."""
    with progress("reading") as update:
        yield lambda doing, done, total: update(
            description=f"{doing}{f', {done} of {total}' if total else ''}",
            completed=done,
            total=total or None,
        )


def plan_as_json(
    solution: room.Solution,
    decision_id: str,
    assumed: Sequence[str],
    report: "RunReport | None",
    here: float | None,
) -> dict[str, Any]:
    """The plan as plain data. `placement` has branches side by side; `plan` is in stages."""
    words, placed, rows = room.explained(solution), solution.placement, room.explained_placement(solution)
    return {
        "decision": decision_id or None,
        "model": solution.graph.name,
        "nodes": len(solution.graph),
        "parameters": solution.graph.total_parameters,
        "method": solution.method,
        "solver_seconds": solution.seconds,
        "recipe": to_plain(solution.recipe),
        "devices": to_plain(solution.devices.devices),
        "mix": words.mix,
        "plan": to_plain(solution.plan),
        "stages": to_plain(words.stages),
        "forecast": _forecast(solution.forecast),
        "placement": None
        if placed is None or rows is None
        else {
            "latency": placed.latency,
            "latency_in_stages": solution.forecast.latency,
            "latency_alone": placed.alone,
            "fastest": placed.devices[placed.fastest].name,
            "alone_fits": placed.alone_fits,
            "idle": placed.idle,
            "loss": placed.loss,
            "device_of": list(placed.device_of),
            "devices": to_plain(rows.rows),
        },
        "alternatives": [{"name": name, **_forecast(other)} for name, other in solution.alternatives],
        "reasons": [*words.reasons, *(f"{name}: {line}" for name, line in words.others)],
        "assumed": list(assumed),
        "run": None
        if report is None
        else {**to_plain(report), "equal": report.equal, "predicted_here": here},
    }


def _forecast(forecast: room.PlanForecast) -> dict[str, Any]:
    """A forecast with None for infinity (a link is missing), which JSON cannot hold."""
    plain: Mapping[str, Any] = {
        **to_plain(forecast),
        "throughput": forecast.throughput,
        "cost_per_sample": forecast.cost_per_sample,
    }
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in plain.items()
    }


def _stages(words: room.Explained, explain: bool) -> Table:
    table = new_table(">stage", "layers", "devices", ">parameters", ">forward", ">backward", ">busy")
    for row in words.stages:
        table.add_row(
            *(str(row.number), escape(row.layers_in_short(len(row.layers) if explain else 3))),
            *(escape(row.devices), _parameters(row.parameters)),
            *(format_duration(row.forward), format_duration(row.backward), f"{row.busy:.0%}"),
        )
    return table


def _devices(words: room.Explained) -> Table:
    table = new_table("memory of", ">stage", ">used", ">free", ">busy")
    for row in words.devices:
        used, free = format_bytes(row.used), format_bytes(row.free)
        table.add_row(escape(row.names), row.stages, used, free, f"{row.busy:.0%}")
    return table


def _placed_devices(words: room.ExplainedPlacement, explain: bool) -> Table:
    table = new_table("device", "layers", ">parameters", ">used", ">free", ">busy")
    for row in words.rows:
        layers = row.layers_in_short(len(row.layers) if explain else 4)
        used, free = format_bytes(row.used), format_bytes(row.free)
        weights, busy = _parameters(row.parameters), f"{row.busy:.0%}"
        table.add_row(escape(row.device), escape(layers), weights, used, free, busy)
    return table


def _parameters(count: float) -> str:
    for scale, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= scale:
            return f"{count / scale:.3g} {letter}"
    return f"{count:.0f}"
