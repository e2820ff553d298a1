"""`trimtab pipeline`: resource requests for each stage of a machine-learning pipeline."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from trimtab import pipelines
from trimtab.catalog import accelerator
from trimtab.cli.place import LedgerQueue, check_place, place
from trimtab.cli.terminal import (
    OUTPUT,
    Html,
    Json,
    check_files,
    panel,
    print_rows,
    progress,
    say,
    warn,
    write_file,
)
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
from trimtab.kernel import check_writable
from trimtab.observe import load_profile

_RESERVED_KEYS = {"as the file requests": "as_the_file_asked"}  # a published JSON field keeps its name
_run, _size, _output = panel("Running the stages"), panel("Sizing"), panel(OUTPUT)


def pipeline(
    path: Path = typer.Argument(
        ..., metavar="PIPELINE.yaml", help="Stages in YAML, or a compiled Kubeflow pipeline."
    ),
    run: bool = _run(
        True, "--run/--no-run", help="Run stages that have no profile yet; with --no-run only list them."
    ),
    again: bool = _run(False, "--again", help="Run all stages, also those profiled before."),
    profile_files: list[str] | None = _run(
        None,
        "--profile",
        metavar="STAGE=FILE",
        help="A stage's profile that `trimtab profile -o FILE` made elsewhere (repeat).",
    ),
    parameters: list[str] | None = _run(
        None, "--parameter", metavar="NAME=VALUE", help="A parameter of a Kubeflow pipeline (repeat)."
    ),
    work: Path | None = _run(
        None,
        metavar="FOLDER",
        help="Folder for profiles, logs and files between stages; default: in Trimtab's home.",
    ),
    window: str = _run("1h", "--for", metavar="DURATION", help="How long one stage may take."),
    every: str = _run("100ms", metavar="DURATION", help="Time between samples of a stage."),
    headroom: float = _size(0.15, help="CPU headroom, as a share of the 95th percentile of use."),
    margin: float = _size(0.25, help="Memory margin, as a share of the peak."),
    accelerators: list[str] | None = _size(
        None,
        "--accelerator",
        metavar="STAGE=KIND:N",
        help="Request accelerators: train=T4:1; train=none removes a request (repeat).",
    ),
    output: Path | None = _output(
        None, "-o", "--output", metavar="SIZED.yaml", help="Write a copy of the file with the new requests."
    ),
    in_place: bool = _output(False, "--in-place", help="Write the new requests into PIPELINE.yaml itself."),
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Size CPU, memory and accelerators of each stage of a pipeline, from a run of each.

    `trimtab pipeline pipeline.yaml -o sized.yaml --html report.html`

    Stages run here one after the other, each profiled by itself. Profiles are kept: the next call runs only
    stages that changed, and after Ctrl-C it goes on where it stopped. The file is Trimtab's own YAML

        stages:
          - {name: load, command: python load.py, outputs: [raw.npz]}
          - {name: train, command: python train.py, inputs: [raw.npz], resources: {cpu: 4, memory: 16Gi}}

    or a compiled Kubeflow pipeline: version 2 (`root`, `deploymentSpec`) or 1 (an Argo Workflow). Stages
    whose image holds programs that are not here need `--profile`. Only resources change in what is written.
    """
    rule = pipelines.SizingRule(headroom, margin)
    settings = pipelines.ProfilingSettings(
        _at_least(parse_duration(window), 0.1, "--for"),
        _at_least(parse_duration(every), 0.05, "--every"),
        again,
        run,
    )
    if in_place and output is not None:
        raise BadInputError("-o and --in-place name two places to write to; give only one of them")
    if output is not None and output.exists() and path.exists() and output.samefile(path):
        raise BadInputError(f"{output} is the pipeline itself; --in-place writes into it")
    target = path if in_place else output
    folder = (work or pipelines.work_folder(path)).resolve()
    stages = pipelines.read_pipeline(path, folder, _pairs(parameters, "--parameter", "NAME=VALUE"))
    requested = {}
    for name, text in _pairs(accelerators, "--accelerator", "train=T4:1").items():
        stages.stage(name)
        kind, count = pipelines.parse_accelerators("--accelerator", text)
        requested[name] = (accelerator(kind).name if count else "", count)
    check_files(target, html)
    check_writable(folder / "profiles" / "x")
    check_place()
    sized = pipelines.size(stages, _profiles(stages, folder, profile_files, settings), requested, rule)
    reserved = pipelines.reserved_ways(sized)
    written: list[str] = []
    if target is not None:
        text, comments = pipelines.write_requests(stages, {item.stage.name: item.request for item in sized})
        written += write_file(target, lambda: text, "pipeline")
        if not comments and "#" in stages.text:
            warn(f"{stages.path} uses aliases around its resources, so {target} was written without comments")
    written += write_file(html, lambda: pipelines.pipeline_report(stages.name, sized, reserved))
    ledger, decisions = LedgerQueue(), dict[str, str]()
    for item in sized:
        decision = pipelines.stage_decision(stages.name, item)
        ledger.record(decision)
        decisions[item.stage.name] = ledger.id_of(decision.id)
    if as_json:
        print(json.dumps(_plain(stages, sized, decisions, reserved)))
        for line in written:
            typer.echo(line, err=True)
    else:
        _print(stages, sized, decisions, reserved, written)
    ledger.require()


def _at_least(seconds: float, least: float, option: str) -> float:
    if seconds < least:
        raise BadInputError(
            f"{option} is {format_duration(seconds)}; it should be at least {format_duration(least)}"
        )
    return seconds


def _pairs(texts: list[str] | None, option: str, form: str) -> dict[str, str]:
    pairs = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise BadInputError(f'{option} is "{text}"; write it like {option} {form}')
        pairs[name] = value
    return pairs


def _profiles(
    stages: pipelines.Pipeline,
    folder: Path,
    profile_files: list[str] | None,
    settings: pipelines.ProfilingSettings,
) -> dict[str, Profile]:
    """Profiles by stage: from the files, from earlier calls, or measured now; new ones are saved."""
    files = _pairs(profile_files, "--profile", "train=profile.json")
    for name in files:
        stages.stage(name)
    loaded = {name: load_profile(Path(file)) for name, file in files.items()}
    try:
        with progress("starting", counted=True) as update:

            def show(at: pipelines.StageProgress) -> None:
                now, use = at.progress, ""
                if now is not None:
                    use = f" {format_duration(now.elapsed)}, {now.cpu:.1f} cores, {format_bytes(now.memory)}"
                update(description=f"{at.stage}{use}", completed=at.number - 1, total=at.stages)

            profiles, new = pipelines.profile_stages(stages, folder, loaded, settings, show)
    except pipelines.InterruptedRunError as end:
        saved = f"kept: {', '.join(end.done)}; " if end.done else ""
        warn(f"interrupted while {end.stage} ran; {saved}the same command goes on from there")
        raise typer.Exit(128 + end.number) from None
    try:
        if new:
            with place() as at:
                for name in new:
                    at.profiles.save(profiles[name])
    except TrimtabError as error:
        warn(f"the profiles are not saved in the store: {error}")
    return profiles


def _plain(
    stages: pipelines.Pipeline,
    sized: Sequence[pipelines.Sized],
    decisions: Mapping[str, str],
    reserved: Mapping[str, pipelines.Reserved],
) -> dict[str, Any]:
    """Plain data in seconds, cores and bytes."""
    return {
        "pipeline": stages.name,
        "format": stages.format,
        "stages": [
            {
                "stage": item.stage.name,
                "decision": decisions[item.stage.name] or None,
                "use": to_plain(item.use),
                "asked": to_plain(item.stage.current),
                "request": to_plain(item.request),
                "memory": to_plain(item.memory),
                "time": to_plain(item.time),
                "profile": item.profile.id,
                "reason": item.reason,
            }
            for item in sized
        ],
        "reserved": {
            _RESERVED_KEYS.get(name, name.replace(" ", "_")): to_plain(way) for name, way in reserved.items()
        },
    }


def _print(
    stages: pipelines.Pipeline,
    sized: Sequence[pipelines.Sized],
    decisions: Mapping[str, str],
    reserved: Mapping[str, pipelines.Reserved],
    written: Sequence[str],
) -> None:
    rows = []
    for item in sized:
        use, current, request = item.use, item.stage.current, item.request
        cpu = "none" if current.cpu is None else pipelines.format_cpu(current.cpu)
        memory = "none" if current.memory is None else pipelines.format_memory(current.memory)
        rows.append(
            (
                *(item.stage.name, format_duration(use.seconds), f"{use.cpu_peak:.2f}, {use.cpu_mean:.2f}"),
                format_bytes(use.memory_peak),
                f"{cpu} → {pipelines.format_cpu(request.cpu)}",
                f"{memory} → {pipelines.format_memory(request.memory)}",
            )
        )
    say(f"{stages.name}: {len(sized)} stages ({stages.format})")
    heads = ("stage", ">time", ">CPU peak, mean", ">memory peak", "CPU request", "memory request")
    print_rows(heads, rows, optional=(">time", ">CPU peak, mean", ">memory peak"))
    for item in sized:
        id = decisions[item.stage.name]
        say(f"{item.stage.name}: {item.reason}{f' (decision {id})' if id else ''}", style="dim")
    own = reserved["each its own"]
    for name, way in reserved.items():
        line = f"reserved, {name}: {way.core_seconds:,.1f} core·s, {way.byte_seconds / GIB:,.1f} GiB·s"
        if way is not own and way.core_seconds and way.byte_seconds:
            cpu_share, memory_share = own.core_seconds / way.core_seconds, own.byte_seconds / way.byte_seconds
            line += f" (each its own takes {cpu_share:.0%} of its CPU and {memory_share:.0%} of its memory)"
        say(line)
    for line in written or ("Next: the same with -o SIZED.yaml writes these requests into the file.",):
        say(line)
