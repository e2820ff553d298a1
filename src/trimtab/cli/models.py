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
    seed: Annotated[int, typer.Option("--seed", help="Where randomness starts.")] = 0,
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
    from rich.table import Table

    from trimtab.predict import load_foundation, shipped_foundation

    foundation = load_foundation(weights) if weights else shipped_foundation()
    table = Table("data set", "applications", "environments", "who", "1 run", "2 runs", "3 runs")
    for name, fitted in foundation.predictors.items():
        source = foundation.card["sources"][name]
        for number, (who, errors) in enumerate(fitted.errors.items()):
            first = (
                (name, str(source["applications"]), ", ".join(source["environments"]))
                if not number
                else ("", "", "")
            )
            table.add_row(*first, who, *(f"{error:.1%}" for error in errors.values()))
    Console(highlight=False).print(table)
