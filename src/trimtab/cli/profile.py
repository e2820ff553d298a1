"""`trimtab profile`: run a command for a while and write down what it did."""

import statistics
import time
from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.options import command_group
from trimtab.cli.place import place
from trimtab.cli.terminal import file_name, progress, say
from trimtab.core import (
    BadInputError,
    Profile,
    TrimtabError,
    format_bytes,
    format_duration,
    format_flop,
    home,
    parse_duration,
)
from trimtab.kernel import check_writable
from trimtab.observe import (
    Interrupts,
    ProfilerSettings,
    Progress as Seen,
    name_of,
    profile as observe,
    save_profile,
)

profile_app = command_group(no_args_is_help=False)

_SHORTEST_EVERY = 0.05  # s


@profile_app.command(
    options_metavar="[OPTIONS] -- COMMAND...",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def profile(
    context: typer.Context,
    window: Annotated[str, typer.Option("--for", help="How long to watch at most.")] = "2m",
    every: Annotated[str, typer.Option(help="How often to sample CPU, memory, disk, network, GPU.")] = "1s",
    name: Annotated[str | None, typer.Option(help="A name for the workload; the script's otherwise.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Where to write the profile.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Stop after this many undisturbed steps.")] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Watch for the whole time even if enough was seen before.")
    ] = False,
) -> None:
    """Run a command, watch what it uses, and learn its model's facts: `trimtab profile -- python train.py`.

    The command needs no change. If it trains with PyTorch, the profile also holds the model's size,
    operators, FLOP, batch size and step times. It is stopped (interrupt, after 5 s terminate, after 5 s kill)
    at the end of the time, or as soon as 50 undisturbed training steps and 5 s have been seen. The exit
    status is 0 when Trimtab stopped the command, and the command's own when it ended by itself.
    """
    if not context.args:
        raise BadInputError(
            "no command to profile; write it after --, like: trimtab profile -- python train.py"
        )
    settings = ProfilerSettings(
        _seconds(window, "--for", 0.1), _seconds(every, "--every", _SHORTEST_EVERY), name, steps, full
    )
    path = output or _default_path(settings.name or name_of(context.args))
    check_writable(path)
    with Interrupts() as interrupts, progress("starting", settings.window) as update:

        def show(seen: Seen) -> None:
            use = f"{seen.cpu:.1f} cores, {format_bytes(seen.memory)}, {seen.steps} steps"
            span = f"{format_duration(seen.elapsed)} of {format_duration(settings.window)}"
            update(completed=seen.elapsed, description=f"{span}, {use}")

        result = observe(context.args, settings, show, interrupts)
    save_profile(result, path)
    notes = [*result.notes, *_store(result)]
    _print_summary(result, notes, path)
    if interrupts.received is not None:
        raise typer.Exit(128 + interrupts.received)
    raise typer.Exit(result.status if result.ended == "exited" else 0)


def _seconds(text: str, option: str, least: float) -> float:
    seconds = parse_duration(text)
    if seconds < least:
        raise BadInputError(f"{option} {text} is too short; {format_duration(least)} is the least")
    return seconds


def _default_path(name: str) -> Path:
    return home() / "profiles" / f"{file_name(name)}-{time.strftime('%Y%m%d-%H%M%S')}.json"


def _store(result: Profile) -> list[str]:
    """Keep it in the store too; the file is the profile, so a store that fails costs a note only."""
    try:
        with place() as at:
            at.profiles.save(result)
    except TrimtabError as error:
        return [f"not kept in the store: {error}"]
    return []


def _print_summary(result: Profile, notes: list[str], path: Path) -> None:
    rows = [*_run_rows(result), *_model_rows(result), *_step_rows(result)]
    width = max(len(label) for label, _ in rows)
    for label, text in rows:
        say(f"{label:<{width}}  {text}")
    for note in notes:
        say(f"Note: {note}.")
    missing = _missing(result)
    if missing:
        say(f"Not visible: {', '.join(missing)}; say it to trimtab recommend.")
    say(f"Profile: {path}")
    if result.model is not None:
        say(f"Next: trimtab recommend {path}")


def _run_rows(result: Profile) -> list[tuple[str, str]]:
    series = result.series
    cpu = statistics.fmean(series.cpu) if series.cpu else 0.0
    memory = max(series.memory, default=0.0)
    return [
        (
            "Run",
            f"{result.workload.name}, {format_duration(result.window)}, {result.ended} ({result.method})",
        ),
        ("Used", f"{cpu:.1f} of {result.host.cores:.3g} cores, {format_bytes(memory)} of memory at most"),
    ]


def _model_rows(result: Profile) -> list[tuple[str, str]]:
    model = result.model
    if model is None:
        return []
    size = f"{model.parameters:,} parameters in {model.modules} modules"
    rows = [("Model", f"{size}, {model.optimizer}, {model.precision}")]
    if model.operators:
        calls = sum(operators.calls for operators in model.operators)
        flop = format_flop(model.step_flop_per_sample)
        rows.append(("Work", f"{flop} per sample, {calls:,.0f} operators per step"))
    return rows


def _step_rows(result: Profile) -> list[tuple[str, str]]:
    steps = result.steps
    if steps is None or not steps.seconds:
        return []
    median = format_duration(statistics.median(steps.seconds))
    workers = f" on each of {steps.workers} workers" if steps.workers > 1 else ""
    wait = f"{format_duration(steps.input_wait)} of it waiting for data"
    return [
        ("Steps", f"{len(steps.seconds)} of {median} (median), {steps.batch_size} samples{workers}, {wait}")
    ]


def _missing(result: Profile) -> list[str]:
    steps = result.steps
    if steps is None or steps.total_steps is not None:
        return []
    wanted = {"the number of epochs": steps.epochs, "the size of the dataset": steps.dataset_length}
    return [what for what, value in wanted.items() if value is None]
