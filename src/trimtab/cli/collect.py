"""`trimtab collect`: measure data sets on this machine."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from trimtab.cli.terminal import check_files, command_group, progress, say
from trimtab.collect import Collection, Effort, collect_functions, collect_shapes, read_spec, usual_seconds
from trimtab.core import format_duration, parse_memory_size
from trimtab.engines import collection_files
from trimtab.kernel import write_whole


class _SpecOrName(TyperGroup):
    """Takes a first argument that names no subcommand as the SPEC of `training`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        return super().resolve_command(ctx, args if args[0] in self.commands else ["training", *args])


collect_app = command_group(
    "Measure a data set for the models to learn from, on this machine: trimtab collect SPEC.yaml.",
    cls=_SpecOrName,
)


@collect_app.command("training")
def training(
    spec: Path = typer.Argument(..., help="A YAML file with jobs, shapes, workers and prices."),
    output: Path = typer.Option(
        Path("points.csv"), "-o", "--output", help="The CSV file to write or continue."
    ),
    jobs: list[str] | None = typer.Option(None, "--job", metavar="NAME", help="Only this job (repeat)."),
    plan: bool = typer.Option(
        False, "--plan", help="Print the number of measurements and their duration, and measure nothing."
    ),
    emit: str | None = typer.Option(
        None, metavar="TARGET", help="Write job files instead: vertex, skypilot, kubernetes or slurm."
    ),
    to: Path = typer.Option(Path("jobs"), help="The folder for job files."),
    image: str | None = typer.Option(None, metavar="IMAGE", help="Container image for job files."),
) -> None:
    """Time the steps of training jobs under shapes (CPU and memory limits): `trimtab collect SPEC.yaml`.

    Every job of the file runs as real processes, one worker per **machine**: a control group with a shape's
    CPU quota and memory, in its own network namespace. The workers of a job start once and the shapes take
    turns on them; a shape whose turns differ is measured again. Time and cost of the whole job are computed
    from the steps of a steady window. Runs that fail or run out of memory are recorded as such.

    Scripts must print `step 12 loss 0.43 time 1731712345.123` after every step. They get `RANK`,
    `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT` in the environment, as under torchrun. Needs root. To resume
    an interrupted run, run the same command again.

    `trimtab collect examples/jobs/collect.yaml -o points.csv`
    """
    chosen = read_spec(spec)
    if jobs:
        chosen = replace(chosen, jobs=tuple(chosen.job(name) for name in dict.fromkeys(jobs)))
    if emit is not None:
        files = list(collection_files(chosen, emit, image))  # refuses before anything is written
        for name, text in files:
            write_whole(to / name, text)
        say(f"{len(files)} job files are in {to}", error=True)
    elif plan:
        chosen.check_host()
        gangs = list(chosen.gangs())
        points = sum(len(chosen.shapes_of(gang.workers)) for gang in gangs)
        say(
            f"{points} points: {len(chosen.jobs)} jobs × {len(chosen.shapes)} shapes, workers "
            f"{', '.join(map(str, chosen.workers))}; about {format_duration(usual_seconds(chosen))}",
            error=True,
        )
        if left_out := len(chosen.shapes) * len(gangs) - points:
            say(f"{left_out} more need more CPUs at once than this machine has, and are left out", error=True)
    else:
        check_files(output)
        with _measuring() as show:
            count = collect_shapes(chosen, output, show)
        say(f"{count} points measured now; all are in {output}", error=True)


@contextmanager
def _measuring() -> Iterator[Callable[..., None]]:
    """A progress bar; yields `show(done, of, description)`."""
    with progress("measuring", counted=True, remaining=True) as update:
        try:
            yield lambda done, of, now="measuring": update(completed=done, total=of, description=now)
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one must not interrupt the clean-up
            raise


@collect_app.command("functions")
def functions(
    output: Path = typer.Option(
        Path("functions.csv"), "-o", "--output", help="The CSV file to write or continue."
    ),
    applications: int = typer.Option(
        240, min=0, help="Number of functions with CPU in proportion to memory, as on Lambda."
    ),
    openwhisk: int = typer.Option(80, min=0, help="Number of functions with CPU shares, as on OpenWhisk."),
    sizes: str = typer.Option(
        "128MB,256MB,512MB,1024MB,2048MB,3008MB",
        metavar="SIZES",
        help="Memory sizes, separated by commas; 1GB is 1024MB.",
    ),
    seconds: float = typer.Option(3.0, min=0.1, max=30.0, help="Seconds of invocations at each size."),
    least: int = typer.Option(8, min=2, help="Fewest invocations at each size."),
    lanes: int | None = typer.Option(
        None, min=1, help="Number of functions measured in parallel; default: by the number of CPUs."
    ),
    seed: int = typer.Option(0, help="Seed of the generated functions."),
) -> None:
    """Generate serverless functions and measure each at every memory size, with the CPU that size buys.

    A function combines one to four of sixteen kinds of work. It runs in a control group: with a quota of one
    CPU per 1,769 MB as on Lambda, or with CPU shares in proportion to memory beside busy processes as on
    OpenWhisk. Sizes take turns, so that a change of the host's speed does not change the ratios between
    sizes. Needs root. To resume an interrupted run, run the same command again.
    """
    collection = Collection(
        {"lambda": applications, "openwhisk": openwhisk},
        tuple(parse_memory_size(size) for size in sizes.split(",")),
        Effort(least=least, seconds=seconds),
        seed,
        lanes,
    )
    check_files(output)
    with _measuring() as show:
        count = collect_functions(collection, output, show)
    say(f"{count} measured now; all are in {output}", error=True)
