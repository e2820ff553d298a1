"""`trimtab bench`: measure what the documentation claims."""

import json
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from trimtab.cli.options import Json
from trimtab.cli.terminal import print_table
from trimtab.core import MissingDependencyError


def bench(
    name: Annotated[str | None, typer.Argument(help="Which bench to run.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A shorter run with a rougher answer.")] = False,
    data: Annotated[Path | None, typer.Option(help="A folder of data instead of what is bundled.")] = None,
    shipped: Annotated[
        bool, typer.Option("--shipped", help="Score the shipped constants and weights; fit nothing.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Where randomness starts.")] = 0,
    workloads: Annotated[
        Path | None, typer.Option(metavar="FILE", help="schedule: other workloads to simulate.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure what the documentation claims; without NAME, list the benches.

    Each prints its figures beside rules, peers and published results:
    `trimtab bench gpu-steps`, `trimtab bench gpu-steps --shipped --data ../my-measurements --json`.
    """
    benchmarks = _benchmarks()
    console = Console()
    if name is None:
        for bench_name, (_, summary) in benchmarks.BENCHES.items():
            console.print(f"[bold]{bench_name:20}[/bold] {summary}")
        return
    result = benchmarks.run_bench(
        name, benchmarks.BenchOptions(quick, data, shipped, seed, workloads=workloads)
    )
    if as_json:
        print(json.dumps(result.as_json()))
        return
    for shown in result.tables:
        table = Table(*shown.columns, title=shown.title, title_justify="left")
        for row in shown.rows:
            table.add_row(*row)
        print_table(table)
    for key, value in result.figures.items():
        if not isinstance(value, dict):  # tables show those
            console.print(f"{key} = {value:.4g}" if isinstance(value, float) else f"{key} = {value}")
    for source, figures in result.published.items():
        told = ", ".join(f"{k} = {v}" for k, v in figures.items())
        console.print(f"[dim]published, {source}: {told}[/dim]")


def _benchmarks() -> Any:
    """The package of benchmarks, which is a distribution of its own."""
    for found in entry_points(group="trimtab.bench"):
        return found.load()
    raise MissingDependencyError(
        "trimtab bench needs the benchmarks, which are a distribution of their own;"
        " in a checkout, install them with: pip install --editable benchmarks"
    )
