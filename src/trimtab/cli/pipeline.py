"""`trimtab pipeline`: what each stage of a machine-learning pipeline should ask for."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from trimtab import pipelines
from trimtab.catalog import accelerator
from trimtab.cli.options import OUTPUT, Json, panel
from trimtab.cli.place import LedgerQueue, check_place, place
from trimtab.cli.terminal import check_files, new_table, print_table, progress, say, warn, write_file
from trimtab.core import (
    GIB,
    BadInputError,
    Profile,
    TrimtabError,
    format_bytes,
    format_duration,
    parse_duration,
    to_plain,
)
from trimtab.observe import load_profile
from trimtab.pipelines import (
    InterruptedRunError,
    Pipeline,
    ProfilingSettings,
    Reserved,
    Sized,
    SizingRule,
    StageProgress,
    format_cpu,
    format_memory,
    parse_accelerators,
    profile_stages,
    read_pipeline,
    reserved_ways,
    size,
    stage_decision,
    work_folder,
    write_requests,
)

_run, _size, _output = panel("Running the stages"), panel("How they are sized"), panel(OUTPUT)


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
        _run(
            "--run/--no-run",
            help="Run stages that have no profile yet on this machine, or say which lack one.",
        ),
    ] = True,
    again: Annotated[bool, _run("--again", help="Run all stages anew, also those profiled before.")] = False,
    given: Annotated[
        list[str] | None,
        _run(
            "--profile",
            metavar="STAGE=FILE",
            help="A stage's profile, as `trimtab profile -o FILE` made it elsewhere (repeat).",
        ),
    ] = None,
    parameters: Annotated[
        list[str] | None,
        _run("--parameter", metavar="NAME=VALUE", help="A parameter of a Kubeflow pipeline (repeat)."),
    ] = None,
    work: Annotated[
        Path | None,
        _run(
            metavar="FOLDER",
            help="Where profiles, logs and files between stages are kept; in Trimtab's home otherwise.",
        ),
    ] = None,
    window: Annotated[str, _run("--for", help="How long one stage may take.")] = "1h",
    every: Annotated[str, _run(help="How often a stage is looked at.")] = "100ms",
    headroom: Annotated[float, _size(help="CPU on top of what was enough for 95 % of the time.")] = 0.15,
    margin: Annotated[float, _size(help="Memory on top of the peak.")] = 0.25,
    accelerators: Annotated[
        list[str] | None,
        _size(
            "--accelerator",
            metavar="STAGE=KIND:N",
            help="Ask for accelerators: train=T4:1; train=none asks for none any more (repeat).",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        _output("-o", "--output", metavar="SIZED.yaml", help="Write the same file with the new requests."),
    ] = None,
    in_place: Annotated[bool, _output("--in-place", help="Write them into PIPELINE.yaml itself.")] = False,
    html: Annotated[
        Path | None,
        _output("--html", metavar="FILE", help="Write a page with charts of CPU and memory over time."),
    ] = None,
    as_json: Json = False,
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
    rule = SizingRule(headroom, margin)
    settings = ProfilingSettings(
        _at_least(parse_duration(window), 0.1, "--for"),
        _at_least(parse_duration(every), 0.05, "--every"),
        again,
        run,
    )
    target = _target(path, output, in_place)
    folder = (work or work_folder(path)).resolve()
    told = read_pipeline(path, folder, _pairs(parameters, "--parameter", "NAME=VALUE"))
    wanted = _wanted(told, accelerators)
    check_files(target, html, folder / "profiles" / "x")
    check_place()
    profiles = _profiles(told, folder, given, settings)
    sized = size(told, profiles, wanted, rule)
    reserved = reserved_ways(sized)
    written = _write(told, sized, reserved, target, html)
    ledger = LedgerQueue()
    decisions = _record(ledger, told, sized)
    if as_json:
        print(json.dumps(sized_json(told, sized, decisions, reserved)))
        for line in written:
            typer.echo(line, err=True)
    else:
        print_sized(told, sized, decisions, reserved, written)
    ledger.require()


def _at_least(seconds: float, least: float, option: str) -> float:
    if seconds < least:
        raise BadInputError(f"{option} is too short; {format_duration(least)} is the least")
    return seconds


def _target(path: Path, output: Path | None, in_place: bool) -> Path | None:
    if in_place and output is not None:
        raise BadInputError("-o and --in-place name two places to write to; give one of them")
    if output is not None and output.exists() and path.exists() and output.samefile(path):
        raise BadInputError(f"{output} is the pipeline itself; --in-place writes into it")
    return path if in_place else output


def _pairs(told: list[str] | None, option: str, form: str) -> dict[str, str]:
    pairs = {}
    for text in told or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise BadInputError(f'{option} is "{text}"; write it like {option} {form}')
        pairs[name] = value
    return pairs


def _wanted(told: Pipeline, accelerators: list[str] | None) -> dict[str, tuple[str, int]]:
    wanted = {}
    for name, text in _pairs(accelerators, "--accelerator", "train=T4:1").items():
        told.stage(name)
        kind, count = parse_accelerators("--accelerator", text)
        wanted[name] = (accelerator(kind).name if count else "", count)
    return wanted


def _profiles(
    told: Pipeline, folder: Path, given: list[str] | None, settings: ProfilingSettings
) -> dict[str, Profile]:
    files = _pairs(given, "--profile", "train=profile.json")
    for name in files:
        told.stage(name)
    loaded = {name: load_profile(Path(file)) for name, file in files.items()}
    try:
        with progress("starting", counted=True) as update:
            profiles, made = profile_stages(
                told, folder, loaded, settings, lambda at: update(**_described(at))
            )
    except InterruptedRunError as end:
        kept = f"kept: {', '.join(end.done)}; " if end.done else ""
        warn(f"interrupted while {end.stage} ran; {kept}the same command goes on from there")
        raise typer.Exit(128 + end.number) from None
    _store([profiles[name] for name in made])
    return profiles


def _store(profiles: Sequence[Profile]) -> None:
    """Keep them in the store too, where `trimtab recommend` finds them; a store that fails costs a note."""
    if not profiles:
        return
    try:
        with place() as at:
            for each in profiles:
                at.profiles.save(each)
    except TrimtabError as error:
        warn(f"the profiles are not kept in the store: {error}")


def _described(at: StageProgress) -> dict[str, Any]:
    """A progress bar's state: which stage runs, for how long, with what."""
    seen, use = at.seen, ""
    if seen is not None:
        use = f" {format_duration(seen.elapsed)}, {seen.cpu:.1f} cores, {format_bytes(seen.memory)}"
    return {"description": f"{at.stage}{use}", "completed": at.number - 1, "total": at.stages}


def _write(
    told: Pipeline,
    sized: Sequence[Sized],
    reserved: Mapping[str, Reserved],
    target: Path | None,
    html: Path | None,
) -> list[str]:
    """Write what was asked for; what to tell the user about it."""
    written: list[str] = []
    if target is not None:
        text, comments = write_requests(told, {each.stage.name: each.request for each in sized})
        written += write_file(target, lambda: text, "pipeline")
        if not comments and "#" in told.text:
            warn(f"{told.path} uses aliases around its resources, so {target} was written without comments")
    return written + write_file(html, lambda: pipelines.pipeline_report(told.name, sized, reserved))


def _record(ledger: LedgerQueue, told: Pipeline, sized: Sequence[Sized]) -> dict[str, str]:
    """A decision for every stage; their ids, of those that are kept."""
    made = {each.stage.name: stage_decision(told.name, each) for each in sized}
    for decision in made.values():
        ledger.record(decision)
    return {name: id for name, decision in made.items() if (id := ledger.id_of(decision.id))}


def sized_json(
    told: Pipeline,
    sized: Sequence[Sized],
    decisions: Mapping[str, str],
    reserved: Mapping[str, Reserved],
) -> dict[str, Any]:
    """Seconds, cores, bytes; decisions by stage, where they are kept."""
    return {
        "pipeline": told.name,
        "format": told.format,
        "stages": [
            {
                "stage": each.stage.name,
                "decision": decisions.get(each.stage.name),
                "use": to_plain(each.use),
                "asked": to_plain(each.stage.current),
                "request": to_plain(each.request),
                "memory": to_plain(each.memory),
                "time": to_plain(each.time),
                "profile": each.profile.id,
                "reason": each.reason,
            }
            for each in sized
        ],
        "reserved": {name.replace(" ", "_"): to_plain(each) for name, each in reserved.items()},
    }


def print_sized(
    told: Pipeline,
    sized: Sequence[Sized],
    decisions: Mapping[str, str],
    reserved: Mapping[str, Reserved],
    written: Sequence[str],
) -> None:
    """Everything a person wants to know, `written` last: the files that were."""
    table = new_table("stage", ">time", ">CPU peak, mean", ">memory peak", "<CPU request", "<memory request")
    table.columns[0].min_width = 10
    for each in sized:
        use = each.use
        table.add_row(
            each.stage.name,
            format_duration(use.seconds),
            f"{use.cpu_peak:.2f}, {use.cpu_mean:.2f}",
            format_bytes(use.memory_peak),
            *_before_and_after(each),
        )
    say(f"{told.name}: {len(sized)} stages ({told.format})")
    print_table(table)
    for each in sized:
        kept = decisions.get(each.stage.name)
        decision = f" (decision {kept})" if kept else ""
        say(f"{each.stage.name}: {each.reason}{decision}", style="dim")
    _print_reserved(reserved)
    for line in written:
        say(line)
    if not written:
        say("Next: the same with -o SIZED.yaml writes these requests into the file.")


def _before_and_after(each: Sized) -> tuple[str, str]:
    asked, request = each.stage.current, each.request
    cpu = "none" if asked.cpu is None else format_cpu(asked.cpu)
    memory = "none" if asked.memory is None else format_memory(asked.memory)
    return f"{cpu} → {format_cpu(request.cpu)}", f"{memory} → {format_memory(request.memory)}"


def _print_reserved(reserved: Mapping[str, Reserved]) -> None:
    own = reserved["each its own"]
    for name, each in reserved.items():
        line = f"reserved, {name}: {each.core_seconds:,.1f} core·s, {each.byte_seconds / GIB:,.1f} GiB·s"
        if each is not own and each.core_seconds and each.byte_seconds:
            cpu, memory = own.core_seconds / each.core_seconds, own.byte_seconds / each.byte_seconds
            line += f" (each its own takes {cpu:.0%} of the CPU and {memory:.0%} of the memory of it)"
        say(line)
