"""`trimtab collect`: measure data sets of our own."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from trimtab.cli.options import command_group
from trimtab.cli.terminal import progress, say
from trimtab.collect import (
    Collection,
    Effort,
    Spec,
    collect_functions,
    collect_shapes,
    read_spec,
    usual_seconds,
)
from trimtab.core import format_duration, parse_memory_size
from trimtab.engines import collection_files
from trimtab.kernel import write_whole


class _SpecOrName(TyperGroup):
    """What is not the name of a data set is the file that says what to measure."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        return super().resolve_command(ctx, args if args[0] in self.commands else ["training", *args])


collect_app = command_group(
    "Measure a data set for the models to learn from, on this machine: trimtab collect SPEC.yaml.",
    cls=_SpecOrName,
)


@collect_app.command("training")
def training(
    spec: Annotated[Path, typer.Argument(help="A YAML file with jobs, shapes, workers and prices.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The CSV file to write or go on with.")
    ] = Path("points.csv"),
    jobs: Annotated[list[str] | None, typer.Option("--job", help="Only this job; may be repeated.")] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Say what would be measured, and for how long.")
    ] = False,
    emit: Annotated[
        str | None, typer.Option(help="Write job files instead: vertex, skypilot, kubernetes or slurm.")
    ] = None,
    to: Annotated[Path, typer.Option(help="The folder for job files.")] = Path("jobs"),
    image: Annotated[str | None, typer.Option(help="Container image for job files.")] = None,
) -> None:
    """Run training jobs under shapes of machines and time their steps: `trimtab collect SPEC.yaml`.

    Every job of the file runs as real processes, one worker per **machine**: a control group with a shape's
    CPU quota and memory, all in a network of their own. The workers of a job start once; the shapes take
    turns, and a shape whose turns do not agree is measured again. The steps of a steady window say what the
    whole job would take and cost. What runs out of memory or fails is noted as such.

    Scripts print `step 12 loss 0.43 time 1731712345.123` after every step and find RANK, WORLD_SIZE,
    MASTER_ADDR and MASTER_PORT in their environment, as under torchrun. Needs root. An interrupted run goes
    on where it stopped: run the same command again.

    `trimtab collect examples/jobs/collect.yaml -o points.csv`
    """
    wanted = read_spec(spec)
    if jobs:
        wanted = replace(wanted, jobs=tuple(wanted.job(name) for name in dict.fromkeys(jobs)))
    if emit is not None:
        count = _emit(wanted, emit, to, image)
        say(f"{count} job files are in {to}", error=True)
        return
    if plan:
        _say_plan(wanted)
        return
    with _measuring() as show:
        count = collect_shapes(wanted, output, lambda state: show(state.done, state.of, state.now))
    say(f"{count} points measured now; all are in {output}", error=True)


def _emit(spec: Spec, target: str, folder: Path, image: str | None) -> int:
    files = list(collection_files(spec, target, image))  # all of them can be written, or none is
    for name, text in files:
        write_whole(folder / name, text)
    return len(files)


def _say_plan(spec: Spec) -> None:
    spec.check_host()
    points = sum(len(spec.shapes_of(lane.workers)) for lane in spec.lanes())
    left_out = len(spec.shapes) * len(list(spec.lanes())) - points
    say(
        f"{points} points: {len(spec.jobs)} jobs × {len(spec.shapes)} shapes, workers "
        f"{', '.join(map(str, spec.workers))}; about {format_duration(usual_seconds(spec))}",
        error=True,
    )
    if left_out:
        say(f"{left_out} more need more CPUs at a time than this machine has, and are left out", error=True)


@contextmanager
def _measuring() -> Iterator[Callable[..., None]]:
    """A progress bar; yields `show(done, of, description)`."""
    with progress("measuring", counted=True, remaining=True) as update:
        try:
            yield lambda done, of, now="measuring": update(completed=done, total=of, description=now)
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is cleaned up; a second one adds nothing
            raise


@collect_app.command("functions")
def functions(
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The CSV file to write or go on with.")
    ] = Path("functions.csv"),
    applications: Annotated[int, typer.Option(min=0, help="How many under Lambda's law.")] = 240,
    openwhisk: Annotated[int, typer.Option(min=0, help="How many under OpenWhisk's.")] = 80,
    sizes: Annotated[
        str, typer.Option(help="Memory sizes, with commas between; 1GB is 1024MB.")
    ] = "128MB,256MB,512MB,1024MB,2048MB,3008MB",
    seconds: Annotated[
        float, typer.Option(min=0.1, max=30.0, help="How long to go on invoking at each size.")
    ] = 3.0,
    least: Annotated[int, typer.Option(min=2, help="Invocations at each size, at least.")] = 8,
    lanes: Annotated[
        int | None, typer.Option(min=1, help="How many at a time; by the CPUs otherwise.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Other applications for another number.")] = 0,
) -> None:
    """Make up serverless functions and measure each at every memory size, with the CPU that size buys.

    A function is one to four of sixteen kinds of work, each with its own inputs. It runs in a real control
    group: under **Lambda's law** with a quota of one CPU per 1,769 MB, under **OpenWhisk's** with shares in
    proportion to its memory beside neighbours that never rest. Sizes take turns: a host that is faster at
    one time than at another does not change the ratios between them. Needs root. An interrupted run goes on
    where it stopped: run the same command again.
    """
    collection = Collection(
        {"lambda": applications, "openwhisk": openwhisk},
        tuple(parse_memory_size(size) for size in sizes.split(",")),
        Effort(least=least, seconds=seconds),
        seed,
        lanes,
    )
    with _measuring() as show:
        count = collect_functions(collection, output, show)
    say(f"{count} measured now; all are in {output}", error=True)
