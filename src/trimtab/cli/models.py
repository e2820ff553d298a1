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
        typer.Option("--data", help="A folder with multicloud and scout, to learn from them too."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Where randomness starts.", min=0, max=2**32 - 1)] = 0,
) -> None:
    """Fit the predictors to the functions that came along and to public data; the shipped weights are these.

    Every predictor is first tested on applications left out of its training; what it and the rules scored is
    kept in the file, and `trimtab predict` decides by it who answers.
    """
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from trimtab.kernel import check_writable
    from trimtab.predict import pretrain as fit

    check_writable(output)
    console = Console(stderr=True)
    with Progress(
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console
    ) as bar:
        task = bar.add_task("reading")
        foundation = fit(data, seed, lambda name: bar.update(task, description=f"learning from {name}"))
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
