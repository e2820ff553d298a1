"""`trimtab config`: which settings hold and why, and whether a file of them is right."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.options import json_option
from trimtab.cli.settings_options import with_settings
from trimtab.cli.warning import warn

if TYPE_CHECKING:
    from trimtab.serve import Told

config_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode="markdown", help="How `trimtab up` is set, and by what."
)


@config_app.command()
@with_settings
def show(told: "Told", as_json: Annotated[bool, json_option("Output")] = False) -> None:
    """Show every setting, its value, and where that comes from; passwords are struck out.

    A flag counts before a variable such as `TRIMTAB_LISTEN`, that before the file, and that before the
    default. `trimtab up` takes the same flags: what is shown with them here is what it would do.
    """
    from trimtab.serve import near_misses, plain_value, settings_list

    for sentence in near_misses(os.environ):
        warn(sentence)
    names = [each.name for each in settings_list()]
    rows = [(name, plain_value(told.settings, name), told.origins[name]) for name in names]
    if as_json:
        print(
            json.dumps(
                {
                    "file": None if told.file is None else str(told.file),
                    "settings": {name: {"value": value, "from": origin} for name, value, origin in rows},
                }
            )
        )
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("setting", "value", "from"):
        table.add_column(name, overflow="fold")
    for setting, value, origin in rows:
        table.add_row(setting, escape(_shown(value)), escape(origin))
    Console(highlight=False).print(table)


@config_app.command()
def check(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A YAML file of settings.")],
) -> None:
    """Say whether a file of settings can be used, by itself; exit status 2 and one sentence if not."""
    from trimtab.serve import check_names, read_file

    told = read_file(path)
    check_names(told.settings)
    count = sum(origin != "default" for origin in told.origins.values())
    typer.echo(f"{path} is right: it has {count} {'setting' if count == 1 else 'settings'}")


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value)
