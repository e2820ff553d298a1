"""`trimtab config`: settings in force and their sources. `trimtab doctor`: checks of this machine."""

import json
import os
from pathlib import Path

import typer
from rich.markup import escape

from trimtab import serve
from trimtab.cli.terminal import Json, command_group, new_table, print_table, say, warn, with_settings
from trimtab.core import to_plain

config_app = command_group("The settings of `trimtab up`, and where each comes from.")


@config_app.command()
@with_settings
def show(loaded: serve.LoadedSettings, as_json: Json = False) -> None:
    """Show every setting, its value, and the source of the value; passwords are struck out.

    The precedence is: flag, environment variable such as `TRIMTAB_LISTEN`, file, default.
    `trimtab up` takes the same flags.
    """
    for sentence in serve.near_misses(os.environ):
        warn(sentence)
    rows = [
        (setting, serve.plain_value(loaded.settings, setting.name), loaded.origins[setting.name])
        for setting in serve.settings_list()
    ]
    if as_json:
        settings = {setting.name: {"value": value, "from": origin} for setting, value, origin in rows}
        print(json.dumps({"file": None if loaded.file is None else str(loaded.file), "settings": settings}))
        return
    table = new_table("setting", "value", "from", padding=(0, 2, 0, 0))
    for setting, value, origin in rows:
        table.add_row(setting.name, escape(setting.text(value)), escape(origin))
    print_table(table)


@config_app.command()
def check(path: Path = typer.Argument(..., metavar="FILE", help="A YAML file of settings.")) -> None:
    """Check a file of settings; an invalid file gets an error message and exit status 2."""
    loaded = serve.read_file(path)
    serve.check_names(loaded.settings)
    count = sum(origin != "default" for origin in loaded.origins.values())
    typer.echo(f"{path} is right: it has {count} {'setting' if count == 1 else 'settings'}")


_COLOURS = {"ok": "green", "warning": "yellow", "missing": "red"}


@with_settings
def doctor(
    loaded: serve.LoadedSettings,
    as_json: Json = False,
    only: list[str] | None = typer.Option(None, metavar="GROUP", help="Check this group only (repeat)."),
    running: bool = typer.Option(
        False, "--running", help="Check instead that a `trimtab up` with these settings answers."
    ),
) -> None:
    """Check this machine: what is there, what is missing, what that disables, and how to fix it.

    Groups are python, settings, store, ports, permissions, cgroups, network, programs, gpu and clock. Checks
    use files, groups and ports of their own and remove them. The exit status is 0 if nothing is missing that
    `trimtab up` needs with these settings, else 2; most of what is listed is optional.
    """
    if running:
        serve.check_serving(loaded.settings)
        typer.echo(f"a Trimtab serves at {loaded.settings.listen}")
        return
    examined = list(serve.examine(loaded.settings, only or ()))
    if as_json:
        checks = [
            {"group": checked.group, **to_plain(finding)}
            for checked in examined
            for finding in checked.findings
        ]
        print(json.dumps({"fit": serve.fit(examined), "checks": checks}))
    else:
        _print_findings(examined, serve.fit(examined))
    if not serve.fit(examined):
        raise typer.Exit(2)


def _print_findings(examined: list[serve.Examined], is_fit: bool) -> None:
    table = new_table("<group", "check", "<state", padding=(0, 2, 0, 0))
    table.add_column("result", overflow="fold", ratio=1)
    for checked in examined:
        for row, finding in enumerate(checked.findings):
            state, lines = finding.state.value, [finding.seen]
            if finding.disables:
                lines += [f"disables: {finding.disables}", f"fix: {finding.mend}"]
            colored = f"[{_COLOURS[state]}]{state}[/]"
            table.add_row(
                "" if row else checked.group, escape(finding.what), colored, escape("\n".join(lines))
            )
    print_table(table)
    states = [finding.state.value for checked in examined for finding in checked.findings]
    counts = ", ".join(f"{states.count(name)} {name}" for name in _COLOURS)
    verdict = "nothing is missing that trimtab up needs" if is_fit else "trimtab up needs what is missing"
    say(f"{counts}; {verdict}")
