"""`trimtab config`: which settings hold and why. `trimtab doctor`: whether this machine is fit for them."""

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from trimtab.cli.options import Json, command_group, with_settings
from trimtab.cli.terminal import new_table, print_table, say, warn
from trimtab.core import to_plain
from trimtab.serve import (
    Examined,
    LoadedSettings,
    check_names,
    check_serving,
    examine,
    fit,
    near_misses,
    plain_value,
    read_file,
    settings_list,
)

config_app = command_group("How `trimtab up` is set, and by what.")


@config_app.command()
@with_settings
def show(loaded: LoadedSettings, as_json: Json = False) -> None:
    """Show every setting, its value, and where that comes from; passwords are struck out.

    A flag counts before a variable such as `TRIMTAB_LISTEN`, that before the file, and that before the
    default. `trimtab up` takes the same flags: what is shown with them here is what it would do.
    """
    for sentence in near_misses(os.environ):
        warn(sentence)
    names = [each.name for each in settings_list()]
    rows = [(name, plain_value(loaded.settings, name), loaded.origins[name]) for name in names]
    if as_json:
        print(
            json.dumps(
                {
                    "file": None if loaded.file is None else str(loaded.file),
                    "settings": {name: {"value": value, "from": origin} for name, value, origin in rows},
                }
            )
        )
        return
    table = new_table("setting", "value", "from", padding=(0, 2, 0, 0))
    for setting, value, origin in rows:
        table.add_row(setting, escape(_shown(value)), escape(origin))
    print_table(table)


@config_app.command()
def check(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A YAML file of settings.")],
) -> None:
    """Say whether a file of settings can be used, by itself; exit status 2 and one sentence if not."""
    loaded = read_file(path)
    check_names(loaded.settings)
    count = sum(origin != "default" for origin in loaded.origins.values())
    typer.echo(f"{path} is right: it has {count} {'setting' if count == 1 else 'settings'}")


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


_COLOURS = {"ok": "green", "warning": "yellow", "missing": "red"}


@with_settings
def doctor(
    loaded: LoadedSettings,
    as_json: Json = False,
    only: Annotated[
        list[str] | None, typer.Option(metavar="GROUP", help="Look at this group alone; may be given again.")
    ] = None,
    running: Annotated[
        bool,
        typer.Option("--running", help="Ask instead whether a `trimtab up` with these settings answers."),
    ] = False,
) -> None:
    """Look at this machine: what is there, what is missing, what that disables, and how to mend it.

    Groups are python, settings, store, ports, permissions, cgroups, network, programs, gpu and clock. What
    has to be tried is tried on things of its own, which are removed. The exit status is 0 if nothing is
    missing that `trimtab up` needs with these settings, else 2; most of what is listed, it can do without.
    """
    if running:
        check_serving(loaded.settings)
        typer.echo(f"a Trimtab serves at {loaded.settings.listen}")
        return
    examined = list(examine(loaded.settings, only or ()))
    if as_json:
        print(json.dumps(_plain_findings(examined, fit(examined))))
    else:
        _print_findings(examined, fit(examined))
    if not fit(examined):
        raise typer.Exit(2)


def _plain_findings(examined: list[Examined], is_fit: bool) -> dict[str, Any]:
    checks = [{"group": each.group, **to_plain(finding)} for each in examined for finding in each.findings]
    return {"fit": is_fit, "checks": checks}


def _print_findings(examined: list[Examined], is_fit: bool) -> None:
    table = new_table("<group", "looked at", "<state", padding=(0, 2, 0, 0))
    table.add_column("found", overflow="fold", ratio=1)
    for each in examined:
        for row, finding in enumerate(each.findings):
            state = finding.state.value
            found = [finding.seen]
            if finding.disables:
                found += [f"disables: {finding.disables}", f"mend: {finding.mend}"]
            table.add_row(
                each.group if not row else "",
                escape(finding.what),
                f"[{_COLOURS[state]}]{state}[/]",
                escape("\n".join(found)),
            )
    print_table(table)
    states = [finding.state.value for each in examined for finding in each.findings]
    counts = ", ".join(f"{states.count(name)} {name}" for name in _COLOURS)
    verdict = "nothing is missing that trimtab up needs" if is_fit else "trimtab up needs what is missing"
    say(f"{counts}; {verdict}")
