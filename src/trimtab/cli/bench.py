"""`trimtab bench`: measure the figures of the documentation."""

import json
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from trimtab.cli.terminal import Json, print_table, say
from trimtab.core import MissingDependencyError


def bench(
    name: str | None = typer.Argument(None, help="The bench to run; ls lists them."),
    quick: bool = typer.Option(False, "--quick", help="A shorter run with a rougher answer."),
    data: Path | None = typer.Option(None, help="A folder of data instead of the bundled one."),
    shipped: bool = typer.Option(
        False, "--shipped", help="Score the shipped constants and weights; fit nothing."
    ),
    seed: int = typer.Option(0, help="Seed of random numbers."),
    workloads: Path | None = typer.Option(
        None, metavar="FILE", help="schedule: other workloads to simulate."
    ),
    minutes: float | None = typer.Option(
        None, min=0.1, help="chaos: how long faults are injected, on each store; default: 10."
    ),
    store: str | None = typer.Option(
        None, metavar="sqlite|postgresql", help="chaos: the store; default: one after the other."
    ),
    as_json: Json = False,
) -> None:
    """Measure the figures of the documentation; without NAME, list the benches.

    Each prints its figures beside rules, peers and published results:
    `trimtab bench gpu-steps`, `trimtab bench gpu-steps --shipped --data ../my-measurements --json`.
    `trimtab bench chaos` is a test: it ends with status 1 if the system has lost or doubled anything.
    """
    entries = tuple(entry_points(group="trimtab.bench"))
    if not entries:
        raise MissingDependencyError(
            "trimtab bench needs the benchmarks, which are a distribution of their own;"
            " in a checkout, install them with: pip install --editable benchmarks"
        )
    benchmarks, console = entries[0].load(), Console()
    if name in (None, "ls"):
        for bench_name, (_, summary) in benchmarks.BENCHES.items():
            console.print(f"[bold]{bench_name:20}[/bold] {summary}")
        return
    result = benchmarks.run_bench(
        name,
        benchmarks.BenchOptions(
            quick, data, shipped, seed, workloads=workloads, minutes=minutes, store=store
        ),
    )
    if as_json:
        print(json.dumps(result.as_json()))
    else:
        _print_result(result, console)
    if result.failure:
        say(result.failure, error=True)
        raise typer.Exit(1)


def _print_result(result: Any, console: Console) -> None:
    for shown in result.tables:
        table = Table(*shown.columns, title=shown.title, title_justify="left")
        for row in shown.rows:
            table.add_row(*row)
        print_table(table)
    for key, value in result.figures.items():
        if not isinstance(value, dict):  # tables show those
            console.print(f"{key} = {value:.4g}" if isinstance(value, float) else f"{key} = {value}")
    for source, figures in result.published.items():
        text = ", ".join(f"{name} = {value}" for name, value in figures.items())
        console.print(f"[dim]published, {source}: {text}[/dim]")
