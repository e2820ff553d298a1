"""`trimtab profile`: run a command for a while and write down what it did."""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from trimtab.cli.place import place
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

SHORTEST_EVERY = 0.05


def profile(
    context: typer.Context,
    window: str = typer.Option("2m", "--for", help="How long to watch at most."),
    every: str = typer.Option("1s", "--every", help="How often to sample CPU, memory, disk, network, GPU."),
    name: str | None = typer.Option(None, "--name", help="A name for the workload; the script's otherwise."),
    output: Path | None = typer.Option(None, "-o", "--output", help="Where to write the profile."),
    steps: int | None = typer.Option(None, "--steps", min=1, help="Stop after this many undisturbed steps."),
    full: bool = typer.Option(
        False, "--full", help="Watch for the whole time even if enough was seen before."
    ),
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
        _seconds(window, "--for", 0.1), _seconds(every, "--every", SHORTEST_EVERY), name, steps, full
    )
    path = output or _default_path(settings.name or name_of(context.args))
    check_writable(path)
    with Interrupts() as interrupts, _progress_bar(settings.window) as show:
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
    plain = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in name)
    return home() / "profiles" / f"{plain}-{time.strftime('%Y%m%d-%H%M%S')}.json"


def _store(result: Profile) -> list[str]:
    """Keep it in the store too; the file is the profile, so a store that fails costs a note only."""
    try:
        with place() as at:
            at.profiles.save(result)
    except TrimtabError as error:
        return [f"not kept in the store: {error}"]
    return []


@contextmanager
def _progress_bar(window: float) -> Iterator[Callable[[Seen], None] | None]:
    """A bar on standard error where that is a terminal; the command's own output passes above it."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (BarColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        task = bar.add_task("starting", total=window)

        def show(seen: Seen) -> None:
            bar.update(
                task,
                completed=seen.elapsed,
                description=f"{format_duration(seen.elapsed)} of {format_duration(window)}, "
                f"{seen.cpu:.1f} cores, {format_bytes(seen.memory)}, {seen.steps} steps",
            )

        yield show


def _print_summary(result: Profile, notes: list[str], path: Path) -> None:
    console = Console(highlight=False, soft_wrap=True)
    rows = [*_run_rows(result), *_model_rows(result), *_step_rows(result)]
    width = max(len(label) for label, _ in rows)
    for label, text in rows:
        console.print(f"{label:<{width}}  {text}", markup=False)
    for note in notes:
        console.print(f"Note: {note}.", markup=False)
    missing = _missing(result)
    if missing:
        console.print(f"Not visible: {', '.join(missing)}; say it to trimtab recommend.", markup=False)
    console.print(f"Profile: {path}", markup=False)
    if result.model is not None:
        console.print(f"Next: trimtab recommend {path}", markup=False)


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
