"""`trimtab models`: the weights that predictions come from."""

from pathlib import Path
from typing import Annotated

import typer

models_app = typer.Typer(
    no_args_is_help=True, help="The learned models: what they come from, how good they are."
)


@models_app.command("pretrain")
def pretrain(
    output: Annotated[Path, typer.Option("-o", "--output", help="The file of weights to write.")] = Path(
        "foundation.safetensors"
    ),
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            help="A folder with multicloud, scout, gpu-steps and gpu-throughput, to learn from them too.",
        ),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(help="Where to learn: local:// (this machine), ray://HOST:PORT or ray://auto."),
    ] = "local://",
    seed: Annotated[int, typer.Option(help="Where randomness starts.", min=0, max=2**32 - 1)] = 0,
) -> None:
    """Learn from the functions that came along and from public data; the shipped weights are these.

    One encoder learns from all data sets at once, then every data set gets a predictor of its own that may
    lean on it. All are tested on applications left out of their training; what they and the rules scored is
    kept in the file, and `trimtab predict` decides by it who answers. The same seed gives the same weights on
    any engine. It takes some minutes on two CPUs; Ctrl-C leaves everything as it was.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from trimtab.kernel import check_writable
    from trimtab.predict import pretrain as fit

    check_writable(output)
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=console,
        speed_estimate_period=3600.0,
    ) as bar:
        task = bar.add_task("learning", total=1.0)
        foundation = fit(
            data,
            seed,
            lambda what, part: bar.update(task, completed=part, description=f"learned: {what}"),
            engine,
        )
    foundation.save(output)
    console.print(f"{output}: {output.stat().st_size / 1e6:.1f} MB")


@models_app.command("ls")
def ls(
    weights: Annotated[
        Path | None,
        typer.Option("--weights", help="Other weights than those that came along.", show_default=False),
    ] = None,
) -> None:
    """What the weights were learned from, and how they and the rules did on applications left out."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from trimtab.predict import load_foundation, shipped_foundation

    foundation = load_foundation(weights) if weights else shipped_foundation()
    table = Table("learned from", "in", "mean error of", "1 run", "2 runs", "3 runs")
    sources = foundation.card.get("sources", {})
    for name, fitted in foundation.predictors.items():
        applications = sources.get(name, {}).get("applications")
        count = f", {applications} applications" if applications else ""
        first = (f"{name}{count}", ", ".join(sorted(fitted.environments)))
        for who, errors in fitted.errors.items() or [("never tested", {})]:
            cells = (f"{errors[runs]:.1%}" if runs in errors else "" for runs in (1, 2, 3))
            table.add_row(*(escape(text) for text in first), who, *cells)
            first = ("", "")
    Console(highlight=False).print(table)
