"""`trimtab profile`: run a command for a while and measure it."""

import re
import statistics
import time
from pathlib import Path

import typer

from trimtab.cli.place import place
from trimtab.cli.terminal import check_files, command_group, file_name, progress, say
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
    Progress,
    model_command,
    name_of,
    profile as observe,
    profile_by_threads,
    save_profile,
    usable_cpus,
)

profile_app = command_group(no_args_is_help=False)

_SHORTEST_EVERY = 0.05  # s
_INPUT = re.compile(r"[1-9]\d*(x[1-9]\d*)*(:\w+)?")


@profile_app.command(
    options_metavar="[OPTIONS] -- COMMAND...",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def profile(
    context: typer.Context,
    window: str = typer.Option(
        "auto",
        "--for",
        metavar="DURATION",
        help="How long to run it at most; auto: until its facts and at least three steps are measured.",
    ),
    every: str = typer.Option(
        "1s", metavar="DURATION", help="How often to sample CPU, memory, disk, network, GPU."
    ),
    name: str | None = typer.Option(
        None, metavar="NAME", help="A name for the workload; default: the script's name."
    ),
    output: Path | None = typer.Option(None, "-o", "--output", help="Where to write the profile."),
    steps: int | None = typer.Option(None, min=1, help="Stop after this many timed steps."),
    full: bool = typer.Option(
        False, "--full", help="Run for the whole time, even if enough steps were measured before."
    ),
    fake: bool = typer.Option(
        False,
        "--fake",
        help="Run the script without memory and arithmetic until its first optimizer step, for models"
        " that are too large to run here.",
    ),
    model: str | None = typer.Option(
        None,
        metavar="MODULE:FUNCTION|FILE",
        help="A model instead of a command: a function that builds it, or a Hugging Face config.json.",
    ),
    inputs: list[str] = typer.Option(
        [], "--input", metavar="SHAPE", help="With --model: its input, like 8x2048:int64; may be repeated."
    ),
    optimizer: str = typer.Option("AdamW", metavar="NAME", help="With --model: PyTorch's optimizer."),
    threads: str | None = typer.Option(
        None, metavar="N,N", help="Run it once for each number of CPUs, like 1,2, and record its steps."
    ),
) -> None:
    """Run a command, and measure its resource use and its model: `trimtab profile -- python train.py`.

    The command needs no change. If it trains with PyTorch, the profile also holds the model's size,
    operators, FLOP, batch size and step times. Facts come from the first optimizer step. The run is stopped
    (SIGINT, after 5 s SIGTERM, after 5 more seconds SIGKILL) when `--for` has passed, or once 50 steps have
    been timed and 5 s have passed; without `--for` also once three steps have been timed over 10 s. The exit
    status is 0 if Trimtab stopped the command, otherwise the command's own.

    A model that is too large for this machine runs without numbers: `trimtab profile --fake -- python
    finetune.py`, or without a script `trimtab profile --model config.json --input 8x2048:int64`.
    """
    command = tuple(context.args)
    if model is not None:
        command, fake = _model_command(command, model, optimizer, inputs), True
        name = name or Path(model.partition(":")[2] or model).parent.name or model.partition(":")[2]
    elif inputs:
        raise BadInputError(f"--input {inputs[0]} belongs to --model; a script has its own input")
    if not command:
        raise BadInputError(
            "no command to profile; write it after --, like: trimtab profile -- python train.py"
        )
    counts = _thread_counts(threads)
    if fake and counts:
        raise BadInputError("--threads measures steps, which a run with --fake or --model does not have")
    if full and window == "auto":
        raise BadInputError("--full runs for the whole --for; give a duration, like --for 2m --full")
    settings = ProfilerSettings(
        None if window == "auto" else _seconds(window, "--for", 0.1),
        _seconds(every, "--every", _SHORTEST_EVERY),
        name,
        steps,
        full,
        fake,
    )
    name = file_name(settings.name or name_of(command))
    path = output or home() / "profiles" / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}.json"
    check_files(output) if output else check_writable(path)
    with Interrupts() as interrupts, progress("starting", settings.window) as update:

        def show(now: Progress) -> None:
            use = f"{now.cpu:.1f} cores, {format_bytes(now.memory)}, {now.steps} steps"
            span = f"{format_duration(now.elapsed)} of at most {format_duration(now.window)}"
            waiting = f", waiting for {now.waits_for or 'the command to import PyTorch'}"
            update(completed=now.elapsed, total=now.window, description=f"{span}, {use}{waiting}")

        if counts:
            result = profile_by_threads(command, counts, settings, show, interrupts)
        else:
            result = observe(command, settings, show, interrupts)
    save_profile(result, path)
    notes = [*result.notes]
    try:
        with place() as at:
            at.profiles.save(result)
    except TrimtabError as error:  # the file has everything
        notes.append(f"the profile could not be saved in the store: {error}")
    _print_summary(result, notes, path)
    if interrupts.received is not None:
        raise typer.Exit(128 + interrupts.received)
    raise typer.Exit(result.status if result.ended == "exited" else 0)


def _model_command(
    command: tuple[str, ...], model: str, optimizer: str, inputs: list[str]
) -> tuple[str, ...]:
    if command:
        raise BadInputError(f"--model {model} takes no command, but there is one: {' '.join(command)}")
    if model.endswith(".json"):
        if not Path(model).is_file():
            raise BadInputError(f"--model {model}: there is no such file")
        model = str(Path(model).resolve())
    elif not all(model.partition(":")):
        raise BadInputError(f"--model is {model}; write MODULE:FUNCTION or the path of a config.json")
    for text in inputs:
        if not _INPUT.fullmatch(text):
            raise BadInputError(f"--input is {text}; write a shape and a number format, like 8x2048:int64")
    return model_command(model, optimizer, inputs)


def _thread_counts(text: str | None) -> list[int]:
    if text is None:
        return []
    most = max(1, int(usable_cpus()))
    counts = [int(word) if word.strip().isdigit() else 0 for word in text.split(",")]
    if not all(1 <= count <= most for count in counts):
        raise BadInputError(f"--threads is {text}; write whole numbers from 1 to {most}, like 1,{most}")
    return counts


def _seconds(text: str, option: str, least: float) -> float:
    seconds = parse_duration(text)
    if seconds < least:
        raise BadInputError(f"{option} is {text}; it should be at least {format_duration(least)}")
    return seconds


def _print_summary(result: Profile, notes: list[str], path: Path) -> None:
    series, model, steps = result.series, result.model, result.steps
    cpu = statistics.fmean(series.cpu) if series.cpu else 0.0
    memory = format_bytes(max(series.memory, default=0.0))
    rows = {
        "Run": f"{result.workload.name}, {format_duration(result.window)}, {result.ended} ({result.method})",
    }
    if series.cpu:
        rows["Used"] = f"{cpu:.1f} of {result.host.cores:.3g} cores, {memory} of memory at most"
    if model is not None:
        size = f"{model.parameters:,} parameters in {model.modules} modules"
        rows["Model"] = f"{size}, {model.optimizer}, {model.precision}"
    if model is not None and model.operators:
        calls = sum(operators.calls for operators in model.operators)
        rows["Work"] = (
            f"{format_flop(model.step_flop_per_sample)} per sample, {calls:,.0f} operators per step"
        )
    if steps is not None and steps.seconds:
        median = format_duration(statistics.median(steps.seconds))
        workers = f" on each of {steps.workers} workers" if steps.workers > 1 else ""
        rows["Steps"] = (
            f"{len(steps.seconds)} of {median} (median), {_samples(result)}{workers},"
            f" {format_duration(steps.input_wait)} of it waiting for data"
        )
    elif steps is not None:
        rows["Steps"] = f"not timed, {_samples(result)}"
    if steps is not None and steps.by_threads:
        medians = ", ".join(
            f"{format_duration(statistics.median(run.seconds))} with {run.threads}"
            for run in steps.by_threads
        )
        rows["CPUs"] = f"a step takes {medians}"
    for label, text in rows.items():
        say(f"{label:<5}  {text}")
    for note in notes:
        say(f"Note: {note}.")
    if steps is not None and steps.total_steps is None:
        lengths = {"the number of epochs": steps.epochs, "the size of the dataset": steps.dataset_length}
        unknown = [name for name, value in lengths.items() if value is None]
        if unknown:
            say(f"Not visible: {' and '.join(unknown)}; give recommend --epochs, --steps or --samples.")
    say(f"Profile: {path}")
    if model is not None:
        say(f"Next: trimtab recommend {path}")


def _samples(result: Profile) -> str:
    """Samples per optimizer step, and how gradients accumulate to them."""
    model, steps = result.model, result.steps
    if model is None or steps is None:
        return ""
    if model.micro_batches < 2:
        return f"{steps.batch_size} samples"
    return f"{steps.batch_size} samples in {model.micro_batches} accumulated micro-batches"
