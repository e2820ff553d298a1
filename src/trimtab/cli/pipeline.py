"""`trimtab pipeline`: what each stage of a machine-learning pipeline should ask for."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.keeping import Keeping
from trimtab.cli.options import html_option
from trimtab.cli.pipeline_table import print_sized, sized_json
from trimtab.cli.place import check_place, place
from trimtab.cli.warning import warn

if TYPE_CHECKING:
    from trimtab.core import Profile
    from trimtab.pipelines import Pipeline, Reserved, RunSettings, Sized, StageProgress

_RUN, _SIZE, _OUTPUT = "Running the stages", "How they are sized", "What to print and write"


def pipeline(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PIPELINE.yaml",
            help="Stages in YAML, or a compiled Kubeflow pipeline.",
            show_default=False,
        ),
    ],
    run: Annotated[
        bool,
        typer.Option(
            "--run/--no-run",
            help="Run stages that have no profile yet on this machine, or say which lack one.",
            rich_help_panel=_RUN,
        ),
    ] = True,
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="Run all stages anew, also those profiled before.", rich_help_panel=_RUN
        ),
    ] = False,
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--profile",
            metavar="STAGE=FILE",
            help="A stage's profile, as `trimtab profile -o FILE` made it elsewhere (repeat).",
            rich_help_panel=_RUN,
        ),
    ] = None,
    parameters: Annotated[
        list[str] | None,
        typer.Option(
            "--parameter",
            metavar="NAME=VALUE",
            help="A parameter of a Kubeflow pipeline (repeat).",
            rich_help_panel=_RUN,
        ),
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(
            "--work",
            metavar="FOLDER",
            help="Where profiles, logs and files between stages are kept; in Trimtab's home otherwise.",
            show_default=False,
            rich_help_panel=_RUN,
        ),
    ] = None,
    window: Annotated[
        str, typer.Option("--for", help="How long one stage may take.", rich_help_panel=_RUN)
    ] = "1h",
    every: Annotated[
        str, typer.Option("--every", help="How often a stage is looked at.", rich_help_panel=_RUN)
    ] = "100ms",
    headroom: Annotated[
        float,
        typer.Option(help="CPU on top of what was enough for 95 % of the time.", rich_help_panel=_SIZE),
    ] = 0.15,
    margin: Annotated[float, typer.Option(help="Memory on top of the peak.", rich_help_panel=_SIZE)] = 0.25,
    accelerators: Annotated[
        list[str] | None,
        typer.Option(
            "--accelerator",
            metavar="STAGE=KIND:N",
            help="Ask for accelerators: train=T4:1; train=none asks for none any more (repeat).",
            rich_help_panel=_SIZE,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="SIZED.yaml",
            help="Write the same file with the new requests.",
            show_default=False,
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    in_place: Annotated[
        bool,
        typer.Option("--in-place", help="Write them into PIPELINE.yaml itself.", rich_help_panel=_OUTPUT),
    ] = False,
    html: Annotated[
        Path | None, html_option(_OUTPUT, "Write a page with charts of CPU and memory over time.")
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print JSON: seconds, cores, bytes.", rich_help_panel=_OUTPUT),
    ] = False,
) -> None:
    """Give each stage of a pipeline the CPU, memory and accelerators it needs, from a run of each.

    `trimtab pipeline pipeline.yaml -o sized.yaml --html report.html`

    Stages run here one after the other, each watched by itself. Their profiles are kept: the next call runs
    only what changed, and after Ctrl-C it goes on where it stopped. The file is our own YAML

        stages:
          - {name: load, command: python load.py, outputs: [raw.npz]}
          - {name: train, command: python train.py, inputs: [raw.npz], resources: {cpu: 4, memory: 16Gi}}

    or a compiled Kubeflow pipeline: version 2 (`root`, `deploymentSpec`) or 1 (an Argo Workflow). Stages
    whose image holds programs that are not here need `--profile`. Only resources change in what is written.
    """
    from trimtab.core import parse_duration
    from trimtab.kernel import check_writable
    from trimtab.pipelines import (
        Rule,
        RunSettings,
        read_pipeline,
        reserved_ways,
        size,
        work_folder,
    )

    rule = Rule(headroom, margin)
    settings = RunSettings(
        _at_least(parse_duration(window), 0.1, "--for"),
        _at_least(parse_duration(every), 0.05, "--every"),
        again,
        run,
    )
    target = _target(path, output, in_place)
    folder = (work or work_folder(path)).resolve()
    told = read_pipeline(path, folder, _pairs(parameters, "--parameter", "NAME=VALUE"))
    wanted = _wanted(told, accelerators)
    for file in (target, html, folder / "profiles" / "x"):
        if file is not None:
            check_writable(file)
    check_place()
    profiles = _profiles(told, folder, given, settings)
    sized = size(told, profiles, wanted, rule)
    reserved = reserved_ways(sized)
    written = _write(told, sized, reserved, target, html)
    ledger = Keeping()
    decisions = _record(ledger, told, sized)
    if as_json:
        print(json.dumps(sized_json(told, sized, decisions, reserved)))
        for line in written:
            typer.echo(line, err=True)
    else:
        print_sized(told, sized, decisions, reserved, written)
    ledger.require()


def _at_least(seconds: float, least: float, option: str) -> float:
    from trimtab.core import BadInputError, format_duration

    if seconds < least:
        raise BadInputError(f"{option} is too short; {format_duration(least)} is the least")
    return seconds


def _target(path: Path, output: Path | None, in_place: bool) -> Path | None:
    from trimtab.core import BadInputError

    if in_place and output is not None:
        raise BadInputError("-o and --in-place name two places to write to; give one of them")
    if output is not None and output.exists() and path.exists() and output.samefile(path):
        raise BadInputError(f"{output} is the pipeline itself; --in-place writes into it")
    return path if in_place else output


def _pairs(told: list[str] | None, option: str, form: str) -> dict[str, str]:
    from trimtab.core import BadInputError

    pairs = {}
    for text in told or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise BadInputError(f'{option} is "{text}"; write it like {option} {form}')
        pairs[name] = value
    return pairs


def _wanted(told: "Pipeline", accelerators: list[str] | None) -> dict[str, tuple[str, int]]:
    from trimtab.catalog import accelerator
    from trimtab.pipelines import parse_accelerators

    wanted = {}
    for name, text in _pairs(accelerators, "--accelerator", "train=T4:1").items():
        told.stage(name)
        kind, count = parse_accelerators("--accelerator", text)
        wanted[name] = (accelerator(kind).name if count else "", count)
    return wanted


def _profiles(
    told: "Pipeline", folder: Path, given: list[str] | None, settings: "RunSettings"
) -> "dict[str, Profile]":
    from trimtab.observe import load_profile
    from trimtab.pipelines import InterruptedRunError, profile_stages

    files = _pairs(given, "--profile", "train=profile.json")
    for name in files:
        told.stage(name)
    loaded = {name: load_profile(Path(file)) for name, file in files.items()}
    try:
        with _bar() as tell:
            profiles, made = profile_stages(told, folder, loaded, settings, tell)
    except InterruptedRunError as end:
        kept = f"kept: {', '.join(end.done)}; " if end.done else ""
        warn(f"interrupted while {end.stage} ran; {kept}the same command goes on from there")
        raise typer.Exit(128 + end.number) from None
    _store([profiles[name] for name in made])
    return profiles


def _store(profiles: "Sequence[Profile]") -> None:
    """Keep them in the store too, where `trimtab recommend` finds them; a store that fails costs a note."""
    from trimtab.core import TrimtabError

    if not profiles:
        return
    try:
        with place() as at:
            for each in profiles:
                at.profiles.save(each)
    except TrimtabError as error:
        warn(f"the profiles are not kept in the store: {error}")


@contextmanager
def _bar() -> "Iterator[Callable[[StageProgress], None]]":
    """A line on standard error, where that is a terminal: which stage runs, for how long, with what."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from trimtab.core import format_bytes, format_duration

    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=None)

        def tell(progress: "StageProgress") -> None:
            seen = progress.seen
            use = (
                f" {format_duration(seen.elapsed)}, {seen.cpu:.1f} cores, {format_bytes(seen.memory)}"
                if seen is not None
                else ""
            )
            bar.update(
                task,
                total=progress.stages,
                completed=progress.number - 1,
                description=f"{progress.stage}{use}",
            )

        yield tell


def _write(
    told: "Pipeline",
    sized: "Sequence[Sized]",
    reserved: "Mapping[str, Reserved]",
    target: Path | None,
    html: Path | None,
) -> list[str]:
    """Write what was asked for; what to tell the user about it."""
    from trimtab.kernel import write_whole
    from trimtab.pipelines import pipeline_report, write_requests

    written = []
    if target is not None:
        text, comments = write_requests(told, {each.stage.name: each.request for each in sized})
        write_whole(target, text)
        written.append(f"pipeline: {target.resolve()}")
        if not comments and "#" in told.text:
            warn(f"{told.path} uses aliases around its resources, so {target} was written without comments")
    if html is not None:
        write_whole(html, pipeline_report(told.name, sized, reserved))
        written.append(f"report: {html.resolve()}")
    return written


def _record(ledger: Keeping, told: "Pipeline", sized: "Sequence[Sized]") -> dict[str, str]:
    """A decision for every stage; their ids, of those that are kept."""
    from trimtab.pipelines import stage_decision

    made = {each.stage.name: stage_decision(told.name, each) for each in sized}
    for decision in made.values():
        ledger.record(decision)
    return {name: id for name, decision in made.items() if (id := ledger.id_of(decision.id))}
