"""`trimtab collect`: measure data sets of our own."""

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from trimtab.collect import Collected, Spec


class _SpecOrName(TyperGroup):
    """What is not the name of a data set is the file that says what to measure."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        return super().resolve_command(ctx, args if args[0] in self.commands else ["training", *args])


collect_app = typer.Typer(
    no_args_is_help=True,
    cls=_SpecOrName,
    help="Measure a data set for the models to learn from, on this machine: trimtab collect SPEC.yaml.",
)


@collect_app.command("training")
def training(
    spec: Annotated[Path, typer.Argument(help="A YAML file with jobs, shapes, workers and prices.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The CSV file to write or go on with.")
    ] = Path("points.csv"),
    jobs: Annotated[
        list[str] | None, typer.Option("--job", help="Only this job; may be repeated.", show_default=False)
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Say what would be measured, and for how long.")
    ] = False,
    emit: Annotated[
        str | None,
        typer.Option("--emit", help="Write job files instead: vertex, skypilot, kubernetes or slurm."),
    ] = None,
    to: Annotated[Path, typer.Option("--to", help="The folder for job files.")] = Path("jobs"),
    image: Annotated[str | None, typer.Option("--image", help="Container image for job files.")] = None,
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
    from dataclasses import replace

    from rich.console import Console

    from trimtab.collect import collect_shapes, read_spec

    wanted = read_spec(spec)
    if jobs:
        wanted = replace(wanted, jobs=tuple(wanted.job(name) for name in dict.fromkeys(jobs)))
    console = Console(stderr=True)
    if emit is not None:
        count = _emit(wanted, emit, to, image)
        console.print(f"{count} job files are in {to}")
        return
    if plan:
        _say_plan(wanted, console)
        return
    with _Bar(console) as bar:
        count = collect_shapes(wanted, output, bar.show)
    console.print(f"{count} points measured now; all are in {output}")


def _emit(spec: "Spec", target: str, folder: Path, image: str | None) -> int:
    from trimtab.engines import collection_files
    from trimtab.kernel import write_whole

    files = list(collection_files(spec, target, image))  # all of them can be written, or none is
    for name, text in files:
        write_whole(folder / name, text)
    return len(files)


def _say_plan(spec: "Spec", console: Any) -> None:
    from trimtab.collect import usual_seconds
    from trimtab.core import format_duration

    spec.check_host()
    points = sum(len(spec.shapes_of(lane.workers)) for lane in spec.lanes())
    left_out = len(spec.shapes) * len(list(spec.lanes())) - points
    console.print(
        f"{points} points: {len(spec.jobs)} jobs × {len(spec.shapes)} shapes, workers "
        f"{', '.join(map(str, spec.workers))}; about {format_duration(usual_seconds(spec))}"
    )
    if left_out:
        console.print(f"{left_out} more need more CPUs at a time than this machine has, and are left out")


class _Bar:
    """A progress bar that appears with the first thing to show: a refusal stays one sentence."""

    def __init__(self, console: Any) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
        )
        self._task = self._bar.add_task("measuring", total=None)

    def __enter__(self) -> "_Bar":
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        if kind is KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is cleaned up; a second one adds nothing
        if self._bar.live.is_started:
            self._bar.stop()

    def update(self, done: int, of: int, now: str = "measuring") -> None:
        """So many are done."""
        self._bar.start()
        self._bar.update(self._task, completed=done, total=of, description=now)

    def show(self, state: "Collected") -> None:
        """How far a collection is."""
        self.update(state.done, state.of, state.now)


@collect_app.command("functions")
def functions(
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The CSV file to write or go on with.")
    ] = Path("functions.csv"),
    applications: Annotated[
        int, typer.Option("--applications", min=0, help="How many under Lambda's law.")
    ] = 240,
    openwhisk: Annotated[int, typer.Option("--openwhisk", min=0, help="How many under OpenWhisk's.")] = 80,
    sizes: Annotated[
        str, typer.Option("--sizes", help="Memory sizes, with commas between; 1GB is 1024MB.")
    ] = "128MB,256MB,512MB,1024MB,2048MB,3008MB",
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, max=30.0, help="How long to go on invoking at each size.")
    ] = 3.0,
    least: Annotated[int, typer.Option("--least", min=2, help="Invocations at each size, at least.")] = 8,
    lanes: Annotated[
        int | None, typer.Option("--lanes", min=1, help="How many at a time; by the CPUs otherwise.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Other applications for another number.")] = 0,
) -> None:
    """Make up serverless functions and measure each at every memory size, with the CPU that size buys.

    A function is one to four of sixteen kinds of work, each with its own inputs. It runs in a real control
    group: under **Lambda's law** with a quota of one CPU per 1,769 MB, under **OpenWhisk's** with shares in
    proportion to its memory beside neighbours that never rest. Sizes take turns: a host that is faster at
    one time than at another does not change the ratios between them. Needs root. An interrupted run goes on
    where it stopped: run the same command again.
    """
    from rich.console import Console

    from trimtab.collect import Collection, Effort, collect_functions
    from trimtab.core import parse_memory_size

    collection = Collection(
        {"lambda": applications, "openwhisk": openwhisk},
        tuple(parse_memory_size(size) for size in sizes.split(",")),
        Effort(least=least, seconds=seconds),
        seed,
        lanes,
    )
    console = Console(stderr=True)
    with _Bar(console) as bar:
        count = collect_functions(collection, output, bar.update)
    console.print(f"{count} measured now; all are in {output}")
