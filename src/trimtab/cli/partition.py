"""`trimtab partition`: how to split a model over devices that may all be unequal."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from trimtab import partition as room
from trimtab.catalog import find_accelerator
from trimtab.cli.options import OUTPUT, Json, panel
from trimtab.cli.place import LedgerQueue, check_place
from trimtab.cli.terminal import check_files, new_table, one_of, print_table, progress, say
from trimtab.core import (
    BadInputError,
    MissingDependencyError,
    format_bytes,
    format_duration,
    to_plain,
)
from trimtab.kernel import write_whole
from trimtab.partition import (
    HOW_PLACED,
    Devices,
    Explained,
    ExplainedPlacement,
    Forecast,
    Graph,
    Recipe,
    SearchSettings,
    Sharding,
    Solution,
    explained,
    explained_placement,
    load_graph,
    load_target,
    parse_devices,
    with_usual_plans,
)
from trimtab.serve import plan_partition

if TYPE_CHECKING:
    from trimtab.partition import RunReport

_device, _use, _search = panel("Devices"), panel("How the model is used"), panel("Which plans to consider")
_output, _run = panel(OUTPUT), panel("Training with it here")
_PRECISIONS = ("fp32", "tf32", "bf16", "fp16")


def partition(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="mymodel.py:build, package.module:build(layers=4), graph.json or model.onnx.",
            show_default=False,
        ),
    ],
    devices: Annotated[str, _device(help="Kinds and counts like a100-40:2,t4:4 or cpu:2x8, or a YAML file.")],
    network: Annotated[
        str | None, _device(help="Between machines: 25Gbit, 3GB/s, none. Unset: 10Gbit.")
    ] = None,
    per_machine: Annotated[
        int | None, _device(help="Devices to a machine. Unset: each kind is one machine.")
    ] = None,
    batch: Annotated[int, _use(help="Samples of a step, in all.")] = 32,
    precision: Annotated[
        str | None,
        _use(help="Of the arithmetic: fp32, tf32, bf16, fp16. Unset: bf16, or fp32 where there are CPUs."),
    ] = None,
    optimizer: Annotated[str, _use(help="adam, momentum or sgd.")] = "adam",
    inference: Annotated[bool, _use("--inference", help="Forward only.")] = False,
    objective: Annotated[
        str, _search(help="What makes a plan better: throughput, latency or cost.")
    ] = "throughput",
    idle_weight: Annotated[
        float, _search(help="With --objective latency: how much idle memory counts beside it.")
    ] = 0.0,
    schedule: Annotated[
        str | None, _search(help="Of forward and backward passes: 1f1b or gpipe. Unset: the better.")
    ] = None,
    microbatches: Annotated[int | None, _search(help="Into how many a step is cut. Unset: the best.")] = None,
    pipeline_only: Annotated[
        bool, _search("--pipeline-only", help="Neither replicas nor shared products.")
    ] = False,
    max_data: Annotated[int | None, _search(help="At most this many replicas.")] = None,
    max_tensor: Annotated[int | None, _search(help="At most this many devices share a product.")] = None,
    sharding: Annotated[
        str | None,
        _search(help="What replicas may keep a part of: none, optimizer, full; like none,optimizer."),
    ] = None,
    recompute: Annotated[
        bool, _search("--recompute/--no-recompute", help="Whether activations may be computed again.")
    ] = True,
    method: Annotated[str, _search(help="ours, milp, or another way to compare with: equal, …")] = "ours",
    explain: Annotated[bool, _output("--explain", help="Name all layers of every stage.")] = False,
    as_json: Json = False,
    html: Annotated[
        Path | None,
        _output(
            "--html", metavar="FILE", help="Write a page with pictures of the graph, the schedule and memory."
        ),
    ] = None,
    output: Annotated[
        Path | None, _output("-o", "--output", metavar="PLAN.json", help="Write the plan.")
    ] = None,
    device_map: Annotated[Path | None, _output(metavar="FILE", help="Write Accelerate's device map.")] = None,
    torchrun: Annotated[
        Path | None,
        _output(metavar="FOLDER", help="Write a script that trains with the plan, and how to start it."),
    ] = None,
    run: Annotated[
        bool, _run("--run", help="Train a few steps in local processes, and prove the loss is the same.")
    ] = False,
    steps: Annotated[int, _run(help="How many.", min=1)] = 5,
) -> None:
    """Split a model over devices: which layers go where, what to expect of it, and why.

    `trimtab partition mymodel.py:build --devices a100-40:2,t4:4 --network 25Gbit`
    searches mixes of pipeline, data, sharded-data and tensor parallelism. The decision is written down;
    `trimtab outcome ID --time 0.42s` tells how long a step really took.
    """
    told = parse_devices(devices, network, per_machine)
    recipe = Recipe(
        batch=batch,
        precision=_precision(precision, told.devices),
        optimizer=one_of("--optimizer", optimizer, ("adam", "momentum", "sgd")),
        training=not inference,
    )
    settings = _settings(
        objective=one_of("--objective", objective, ("throughput", "latency", "cost")),
        idle_weight=idle_weight,
        microbatches=microbatches,
        schedule=None if schedule is None else one_of("--schedule", schedule, ("1f1b", "gpipe")),
        pipeline_only=pipeline_only,
        most_replicas=max_data,
        most_tensor=max_tensor,
        shardings=_shardings(sharding),
        recompute=recompute,
    )
    _check(target, told.devices, recipe, settings, run or torchrun is not None)
    check_files(html, output, device_map, torchrun / "plan.json" if torchrun else None)
    check_place()
    graph, notes = _graph(target, batch)
    found = _plan(graph, told.devices, recipe, settings, method)
    assumed = (*told.assumed, *notes)
    decided = replace(found, placement=None) if run or torchrun else found
    ledger = LedgerQueue()
    made, written = _keep(ledger, decided, found, target, assumed, html, output, device_map, torchrun)
    ran, here = _train(ledger, found, target, steps, made) if run else (None, None)
    decision_id = ledger.id_of(made)
    if as_json:
        print(json.dumps(plan_as_json(found, decision_id, assumed, ran, here)))
    else:
        print_plan(found, assumed, explain)
        if ran is not None:
            print_run(found, ran, here)
        for path in written:
            typer.echo(f"written: {path.resolve()}")
        if decision_id:
            typer.echo(f"decision {decision_id}: trimtab decisions {decision_id}")
    ledger.require()
    if ran is not None and not ran.equal:
        raise typer.Exit(1)


def _precision(told: str | None, devices: Devices) -> str:
    if told is not None:
        return str(one_of("--precision", told, _PRECISIONS))
    return "fp32" if any(device.cores for device in devices.devices) else "bf16"


def _shardings(told: str | None) -> tuple[Sharding, ...]:
    known = ("none", "optimizer", "full")
    names = [name.strip() for name in told.split(",")] if told is not None else known
    return tuple(dict.fromkeys(one_of("--sharding", name, known) for name in names))


def _settings(**told: Any) -> SearchSettings:
    """The settings, with the search's own defaults where nothing is told."""
    options = {"microbatches": "--microbatches", "most_replicas": "--max-data", "most_tensor": "--max-tensor"}
    for name, option in options.items():
        if told[name] is not None and told[name] < 1:
            raise BadInputError(f"{option} is {told[name]}; it should be at least 1")
    if not 0 <= told["idle_weight"] < math.inf:
        raise BadInputError(f"--idle-weight is {told['idle_weight']:g}; it should be a number from 0 upwards")
    if told["idle_weight"] and told["objective"] != "latency":
        raise BadInputError("--idle-weight counts beside latency; add --objective latency")
    return SearchSettings(**{name: value for name, value in told.items() if value is not None})


def _check(target: str, devices: Devices, recipe: Recipe, settings: SearchSettings, trains: bool) -> None:
    """What can be refused before any work."""
    for kind in devices.kinds if recipe.training else ():
        facts = find_accelerator(kind)
        if facts is not None and not facts.trains:
            raise BadInputError(f"{kind} only infers; add --inference, or train on other devices")
    if settings.microbatches is not None and recipe.batch % settings.microbatches:
        raise BadInputError(f"{settings.microbatches} micro-batches do not divide a batch of {recipe.batch}")
    if trains and _is_file(target):
        raise BadInputError(
            f"{target} is only a graph; --run and --torchrun need a builder like model.py:build"
        )
    if trains and not recipe.training:
        raise BadInputError("--run and --torchrun train; without --inference they can")


def _is_file(target: str) -> bool:
    return target.endswith((".json", ".onnx"))


def _graph(target: str, batch: int) -> tuple[Graph, tuple[str, ...]]:
    """The graph, and what to say about how it was taken. Only a builder needs PyTorch."""
    if _is_file(target):
        return load_graph(target, batch), ()
    if find_spec("torch") is None:
        raise MissingDependencyError(
            "a model in Python is read with PyTorch; pip install 'trimtab[learn]', or give a graph file"
        )
    captured = load_target(target)
    if captured.how == "export":
        return captured.graph, ()
    return captured.graph, (f"operations as {captured.how} shows them, since {captured.note}",)


def _plan(graph: Graph, devices: Devices, recipe: Recipe, settings: SearchSettings, method: str) -> Solution:
    """The plan with what others would give; one that does not fit is refused with what would help."""
    with _working() as tell:
        found = plan_partition(graph, devices, recipe, settings, method, tell)
        return with_usual_plans(found, settings)


def _keep(
    ledger: LedgerQueue,
    decided: Solution,
    found: Solution,
    target: str,
    assumed: tuple[str, ...],
    html: Path | None,
    output: Path | None,
    device_map: Path | None,
    torchrun: Path | None,
) -> tuple[str, list[Path]]:
    """Write down what is decided, and the files that are asked for; its id and their paths."""
    made = room.decision(decided)
    asked = found.plan, found.graph, found.devices, found.recipe
    texts: dict[Path, str] = {}  # all of them, before any is written
    if output:
        texts[output] = room.plan_json(*asked, found.forecast, None if _is_file(target) else target)
    if device_map:
        if found.placement is not None:
            placed = room.placement_map(found.placement)
        else:
            placed = room.device_map(found.plan, found.graph, found.devices)
        texts[device_map] = json.dumps(placed, indent=1) + "\n"
    if torchrun:
        script = room.torchrun_script(*asked, target, found.forecast)
        texts |= {torchrun / name: text for name, text in script.items()}
    ledger.record(made)
    if html:
        texts[html] = room.html_report(found, ledger.id_of(made.id), assumed)
    for path, text in texts.items():
        write_whole(path, text)
        if path.suffix == ".sh":
            path.chmod(0o755)
    return made.id, list(texts)


def _train(
    ledger: LedgerQueue, found: Solution, target: str, steps: int, decision_id: str
) -> tuple["RunReport", float | None]:
    """Train as planned; where the plan was made for this machine, the step is the decision's outcome.

    Then it comes with the seconds that a step should take by what was measured here.
    """
    from trimtab.partition import RunSettings, measure_link, predicted_here, run_plan

    with _working() as tell:
        tell(f"training {steps} steps, as planned and in one piece", 0, 0)
        ran = run_plan(target, found.graph, found.plan, found.recipe, RunSettings(steps=steps))
        if not all(found.devices[use.device].cores for use in found.forecast.uses):
            return ran, None
        tell("measuring what joins the processes", 0, 0)
        here = predicted_here(found.graph, found.plan, found.recipe, ran, measure_link())
    ledger.record_outcome(decision_id, {"time": ran.seconds}, "measured by --run")
    return ran, here


def print_plan(found: Solution, assumed: Sequence[str], explain: bool) -> None:
    """The plan on the terminal."""
    words, placed = explained(found), explained_placement(found)
    say(_header(found))
    if placed is not None:
        _print_placement(placed, explain)
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


def _print_placement(words: ExplainedPlacement, explain: bool) -> None:
    """The placement, and what goes by it."""
    say(f"it fits: {words.summary}")
    say(f"{HOW_PLACED}\n")
    print_table(_placed_devices(words, explain))
    print()
    for name, value in words.figures:
        say(f"{name:12} {value}")
    say("--device-map goes by this; -o, --run and --torchrun by the plan in stages\n")


def print_run(found: Solution, ran: "RunReport", here: float | None) -> None:
    """What training with the plan showed, `here` what was to expect of it by this machine's own speed."""
    verdict = "equal" if ran.equal else "NOT equal"
    say(f"trained {len(ran.losses)} steps in {len(ran.ranks)} processes and in one piece")
    say(f"  losses {' '.join(f'{loss:.6g}' for loss in ran.losses)}")
    say(f"  {verdict}: {ran.difference:.1e} apart at most, weights {ran.weights:.1e}")
    if found.placement is not None:
        say("  by the plan in stages, not the placement")
    say(f"  a step took {format_duration(ran.seconds)}")
    if here is not None:
        say(f"  predicted before the run: {_beside(found.forecast.seconds, ran.seconds)}")
        say(f"  predicted from the whole model's speed and the link here: {_beside(here, ran.seconds)}")
    for note in ran.notes:
        say(f"  {note}")


def _beside(predicted: float, measured: float) -> str:
    return f"{format_duration(predicted)}, {predicted / measured - 1.0:+.0%}"


@contextmanager
def _working() -> Iterator[Callable[[str, int, int], None]]:
    """A line on the terminal that says what is being done; yields `tell(doing, done, of)`."""
    with progress("reading") as update:
        yield lambda doing, done, of: update(
            description=f"{doing}{f', {done} of {of}' if of else ''}", completed=done, total=of or None
        )


def plan_as_json(
    found: Solution,
    decision_id: str,
    assumed: Sequence[str],
    ran: "RunReport | None",
    here: float | None,
) -> dict[str, Any]:
    """The same as plain data."""
    words = explained(found)
    return {
        "decision": decision_id or None,
        "model": found.graph.name,
        "nodes": len(found.graph),
        "parameters": found.graph.total_parameters,
        "method": found.method,
        "solver_seconds": found.seconds,
        "recipe": to_plain(found.recipe),
        "devices": to_plain(found.devices.devices),
        "mix": words.mix,
        "plan": to_plain(found.plan),
        "stages": to_plain(words.stages),
        "forecast": _forecast(found.forecast),
        "placement": _placement(found),
        "alternatives": [{"name": name, **_forecast(other)} for name, other in found.alternatives],
        "reasons": [*words.reasons, *(f"{name}: {line}" for name, line in words.others)],
        "assumed": list(assumed),
        "run": None if ran is None else {**to_plain(ran), "equal": ran.equal, "predicted_here": here},
    }


def _placement(found: Solution) -> dict[str, Any] | None:
    """Where branches run side by side; the plan beside it is in stages."""
    placed, words = found.placement, explained_placement(found)
    if placed is None or words is None:
        return None
    return {
        "latency": placed.latency,
        "latency_in_stages": found.forecast.latency,
        "latency_alone": placed.alone,
        "fastest": placed.devices[placed.fastest].name,
        "alone_fits": placed.alone_fits,
        "idle": placed.idle,
        "loss": placed.loss,
        "device_of": list(placed.device_of),
        "devices": to_plain(words.rows),
    }


def _forecast(forecast: Forecast) -> dict[str, Any]:
    """A forecast without what JSON cannot hold: where a link is missing, a step never ends."""
    plain = {**to_plain(forecast), "throughput": forecast.throughput}
    plain["cost_per_sample"] = forecast.cost_per_sample
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in plain.items()
    }


def _header(found: Solution) -> str:
    recipe = found.recipe
    use = f"{recipe.optimizer}, {recipe.precision}" if recipe.training else f"inference, {recipe.precision}"
    return (
        f"{found.graph.name}: {len(found.graph):,} operations, {_parameters(found.graph.total_parameters)}"
        f" parameters; {recipe.batch:,} samples a step, {use}; {len(found.devices)} devices"
    )


def _stages(words: Explained, explain: bool) -> Table:
    table = new_table(">stage", "layers", "devices", ">parameters", ">forward", ">backward", ">busy")
    for row in words.stages:
        table.add_row(
            str(row.number),
            escape(row.layers_in_short(len(row.layers) if explain else 3)),
            escape(row.devices),
            _parameters(row.parameters),
            format_duration(row.forward),
            format_duration(row.backward),
            f"{row.busy:.0%}",
        )
    return table


def _devices(words: Explained) -> Table:
    table = new_table("memory of", ">stage", ">used", ">free", ">busy")
    for row in words.devices:
        used, free = format_bytes(row.used), format_bytes(row.free)
        table.add_row(escape(row.names), row.stages, used, free, f"{row.busy:.0%}")
    return table


def _placed_devices(words: ExplainedPlacement, explain: bool) -> Table:
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
