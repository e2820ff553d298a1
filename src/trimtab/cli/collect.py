"""`trimtab collect`: measure data sets of our own."""

import signal
from pathlib import Path
from typing import Annotated

import typer

collect_app = typer.Typer(
    no_args_is_help=True, help="Measure a data set for the models to learn from, on this machine."
)


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
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from trimtab.core.units import parse_memory_size
    from trimtab.observe import Collection, Effort, collect_functions

    collection = Collection(
        {"lambda": applications, "openwhisk": openwhisk},
        tuple(parse_memory_size(size) for size in sizes.split(",")),
        Effort(least=least, seconds=seconds),
        seed,
        lanes,
    )
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("measuring"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=console
    )
    task = bar.add_task("")

    def show(done: int, of: int) -> None:
        bar.start()  # not before there is something to show: a refusal is one sentence
        bar.update(task, completed=done, total=of)

    try:
        count = collect_functions(collection, output, show)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is cleaned up; a second one has nothing to add
        raise
    finally:
        if bar.live.is_started:
            bar.stop()
    console.print(f"{count} measured now; all are in {output}")
