"""`trimtab partition`: how to split a model over devices that may all be unequal."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimtab.cli.keeping import Keeping
from trimtab.cli.options import html_option, json_option
from trimtab.cli.partition_output import plan_as_json, print_plan, print_run, working
from trimtab.cli.place import check_place

if TYPE_CHECKING:
    from trimtab.partition import Devices, Graph, Recipe, RunReport, SearchSettings, Sharding, Solution

_DEVICES, _USE, _SEARCH, _OUTPUT, _RUN = (
    "Devices",
    "How the model is used",
    "Which plans to consider",
    "What to print and write",
    "Training with it here",
)
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
    devices: Annotated[
        str,
        typer.Option(
            help="Kinds and counts like a100-40:2,t4:4 or cpu:2x8, or a YAML file.",
            rich_help_panel=_DEVICES,
            show_default=False,
        ),
    ],
    network: Annotated[
        str | None,
        typer.Option(
            help="Between machines: 25Gbit, 3GB/s, none. Unset: 10Gbit.",
            rich_help_panel=_DEVICES,
            show_default=False,
        ),
    ] = None,
    per_machine: Annotated[
        int | None,
        typer.Option(
            help="Devices to a machine. Unset: each kind is one machine.",
            rich_help_panel=_DEVICES,
            show_default=False,
        ),
    ] = None,
    batch: Annotated[int, typer.Option(help="Samples of a step, in all.", rich_help_panel=_USE)] = 32,
    precision: Annotated[
        str | None,
        typer.Option(
            help="Of the arithmetic: fp32, tf32, bf16, fp16. Unset: bf16, or fp32 where there are CPUs.",
            rich_help_panel=_USE,
            show_default=False,
        ),
    ] = None,
    optimizer: Annotated[str, typer.Option(help="adam, momentum or sgd.", rich_help_panel=_USE)] = "adam",
    inference: Annotated[
        bool, typer.Option("--inference", help="Forward only.", rich_help_panel=_USE)
    ] = False,
    objective: Annotated[
        str,
        typer.Option(help="What makes a plan better: throughput, latency or cost.", rich_help_panel=_SEARCH),
    ] = "throughput",
    idle_weight: Annotated[
        float,
        typer.Option(
            help="With --objective latency: how much idle memory counts beside it.", rich_help_panel=_SEARCH
        ),
    ] = 0.0,
    schedule: Annotated[
        str | None,
        typer.Option(
            help="Of forward and backward passes: 1f1b or gpipe. Unset: the better.",
            rich_help_panel=_SEARCH,
            show_default=False,
        ),
    ] = None,
    microbatches: Annotated[
        int | None,
        typer.Option(
            help="Into how many a step is cut. Unset: the best.", rich_help_panel=_SEARCH, show_default=False
        ),
    ] = None,
    pipeline_only: Annotated[
        bool,
        typer.Option(
            "--pipeline-only", help="Neither replicas nor shared products.", rich_help_panel=_SEARCH
        ),
    ] = False,
    max_data: Annotated[
        int | None,
        typer.Option(help="At most this many replicas.", rich_help_panel=_SEARCH, show_default=False),
    ] = None,
    max_tensor: Annotated[
        int | None,
        typer.Option(
            help="At most this many devices share a product.", rich_help_panel=_SEARCH, show_default=False
        ),
    ] = None,
    sharding: Annotated[
        str | None,
        typer.Option(
            help="What replicas may keep a part of: none, optimizer, full; like none,optimizer.",
            rich_help_panel=_SEARCH,
            show_default=False,
        ),
    ] = None,
    recompute: Annotated[
        bool,
        typer.Option(
            "--recompute/--no-recompute",
            help="Whether activations may be computed again.",
            rich_help_panel=_SEARCH,
        ),
    ] = True,
    method: Annotated[
        str,
        typer.Option(help="ours, milp, or another way to compare with: equal, …", rich_help_panel=_SEARCH),
    ] = "ours",
    explain: Annotated[
        bool, typer.Option("--explain", help="Name all layers of every stage.", rich_help_panel=_OUTPUT)
    ] = False,
    as_json: Annotated[bool, json_option(_OUTPUT)] = False,
    html: Annotated[
        Path | None,
        html_option(_OUTPUT, "Write a page with pictures of the graph, the schedule and memory."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="PLAN.json", help="Write the plan.", rich_help_panel=_OUTPUT),
    ] = None,
    device_map: Annotated[
        Path | None,
        typer.Option(
            "--device-map", metavar="FILE", help="Write Accelerate's device map.", rich_help_panel=_OUTPUT
        ),
    ] = None,
    torchrun: Annotated[
        Path | None,
        typer.Option(
            "--torchrun",
            metavar="FOLDER",
            help="Write a script that trains with the plan, and how to start it.",
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    run: Annotated[
        bool,
        typer.Option(
            "--run",
            help="Train a few steps in local processes, and prove the loss is the same.",
            rich_help_panel=_RUN,
        ),
    ] = False,
    steps: Annotated[int, typer.Option(help="How many.", min=1, rich_help_panel=_RUN)] = 5,
) -> None:
    """Split a model over devices: which layers go where, what to expect of it, and why.

    `trimtab partition mymodel.py:build --devices a100-40:2,t4:4 --network 25Gbit`
    searches mixes of pipeline, data, sharded-data and tensor parallelism. The decision is written down;
    `trimtab outcome ID --time 0.42s` tells how long a step really took.
    """
    from trimtab.kernel import check_writable
    from trimtab.partition import Recipe, parse_devices

    told = parse_devices(devices, network, per_machine)
    recipe = Recipe(
        batch=batch,
        precision=_precision(precision, told.devices),
        optimizer=_one_of("--optimizer", optimizer, ("adam", "momentum", "sgd")),
        training=not inference,
    )
    settings = _settings(
        objective=_one_of("--objective", objective, ("throughput", "latency", "cost")),
        idle_weight=idle_weight,
        microbatches=microbatches,
        schedule=None if schedule is None else _one_of("--schedule", schedule, ("1f1b", "gpipe")),
        pipeline_only=pipeline_only,
        most_replicas=max_data,
        most_tensor=max_tensor,
        shardings=_shardings(sharding),
        recompute=recompute,
    )
    _check(target, told.devices, recipe, settings, run or torchrun is not None)
    for file in (html, output, device_map, torchrun / "plan.json" if torchrun else None):
        if file is not None:
            check_writable(file)
    check_place()
    graph, notes = _graph(target, batch)
    found = _plan(graph, told.devices, recipe, settings, method)
    assumed = (*told.assumed, *notes)
    decided = replace(found, placement=None) if run or torchrun else found
    ledger = Keeping()
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


def _one_of(option: str, told: str, known: tuple[str, ...]) -> Any:
    from trimtab.core import BadInputError, did_you_mean

    if told not in known:
        near = did_you_mean(told, known)
        raise BadInputError(f'{option} is "{told}"{near}; it should be one of {", ".join(known)}')
    return told


def _precision(told: str | None, devices: "Devices") -> str:
    if told is not None:
        return str(_one_of("--precision", told, _PRECISIONS))
    return "fp32" if any(device.cores for device in devices.devices) else "bf16"


def _shardings(told: str | None) -> tuple["Sharding", ...]:
    known = ("none", "optimizer", "full")
    names = [name.strip() for name in told.split(",")] if told is not None else known
    return tuple(dict.fromkeys(_one_of("--sharding", name, known) for name in names))


def _settings(**told: Any) -> "SearchSettings":
    """The settings, with the search's own defaults where nothing is told."""
    from trimtab.core import BadInputError
    from trimtab.partition import SearchSettings

    options = {"microbatches": "--microbatches", "most_replicas": "--max-data", "most_tensor": "--max-tensor"}
    for name, option in options.items():
        if told[name] is not None and told[name] < 1:
            raise BadInputError(f"{option} is {told[name]}; it should be at least 1")
    if not 0 <= told["idle_weight"] < math.inf:
        raise BadInputError(f"--idle-weight is {told['idle_weight']:g}; it should be a number from 0 upwards")
    if told["idle_weight"] and told["objective"] != "latency":
        raise BadInputError("--idle-weight counts beside latency; add --objective latency")
    return SearchSettings(**{name: value for name, value in told.items() if value is not None})


def _check(
    target: str, devices: "Devices", recipe: "Recipe", settings: "SearchSettings", trains: bool
) -> None:
    """What can be refused before any work."""
    from trimtab.catalog import find_accelerator
    from trimtab.core import BadInputError

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


def _graph(target: str, batch: int) -> tuple["Graph", tuple[str, ...]]:
    """The graph, and what to say about how it was taken. Only a builder needs PyTorch."""
    from importlib.util import find_spec

    from trimtab.core import MissingDependencyError
    from trimtab.partition import load_graph, load_target

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


def _plan(
    graph: "Graph", devices: "Devices", recipe: "Recipe", settings: "SearchSettings", method: str
) -> "Solution":
    """The plan with what others would give; one that does not fit is refused with what would help."""
    from trimtab.core import BadInputError
    from trimtab.partition import plan_by, why_not, with_usual_plans

    with working() as tell:
        found = plan_by(method, graph, devices, recipe, settings, tell)
        if found.forecast.fits:
            return with_usual_plans(found, settings)
        tell("finding out what would make it fit", 0, 0)
        sentence = why_not(found, settings, lambda *asked: plan_by(method, graph, *asked))
    raise BadInputError(sentence)


def _keep(
    ledger: Keeping,
    decided: "Solution",
    found: "Solution",
    target: str,
    assumed: tuple[str, ...],
    html: Path | None,
    output: Path | None,
    device_map: Path | None,
    torchrun: Path | None,
) -> tuple[str, list[Path]]:
    """Write down what is decided, and the files that are asked for; its id and their paths."""
    from trimtab import partition as room
    from trimtab.kernel import write_whole

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
    ledger: Keeping, found: "Solution", target: str, steps: int, decision_id: str
) -> tuple["RunReport", float | None]:
    """Train as planned; where the plan was made for this machine, the step is the decision's outcome.

    Then it comes with the seconds that a step should take by what was measured here.
    """
    from trimtab.partition import RunSettings, measure_link, predicted_here, run_plan

    with working() as tell:
        tell(f"training {steps} steps, as planned and in one piece", 0, 0)
        ran = run_plan(target, found.graph, found.plan, found.recipe, RunSettings(steps=steps))
        if not all(found.devices[use.device].cores for use in found.forecast.uses):
            return ran, None
        tell("measuring what joins the processes", 0, 0)
        here = predicted_here(found.graph, found.plan, found.recipe, ran, measure_link())
    ledger.record_outcome(decision_id, {"time": ran.seconds}, "measured by --run")
    return ran, here
