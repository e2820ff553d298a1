"""`trimtab doctor`: what this machine lacks, what that disables, and how to mend it."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimtab.cli.options import json_option
from trimtab.cli.settings_options import with_settings

if TYPE_CHECKING:
    from trimtab.serve import Examined, Told

_COLOURS = {"ok": "green", "warning": "yellow", "missing": "red"}


@with_settings
def doctor(
    told: "Told",
    as_json: Annotated[bool, json_option("Output")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="GROUP", help="Look at this group alone; may be given again."),
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
    from trimtab.serve import check_serving, examine, fit

    if running:
        check_serving(told.settings)
        typer.echo(f"a Trimtab serves at {told.settings.listen}")
        return
    examined = list(examine(told.settings, only or ()))
    if as_json:
        print(json.dumps(_plain(examined, fit(examined))))
    else:
        _print(examined, fit(examined))
    if not fit(examined):
        raise typer.Exit(2)


def _plain(examined: "list[Examined]", is_fit: bool) -> dict[str, Any]:
    from trimtab.core import to_plain

    checks = [{"group": each.group, **to_plain(finding)} for each in examined for finding in each.findings]
    return {"fit": is_fit, "checks": checks}


def _print(examined: "list[Examined]", is_fit: bool) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("group", no_wrap=True)
    table.add_column("looked at", overflow="fold")
    table.add_column("state", no_wrap=True)
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
    console.print(table)
    states = [finding.state.value for each in examined for finding in each.findings]
    counts = ", ".join(f"{states.count(name)} {name}" for name in _COLOURS)
    verdict = "nothing is missing that trimtab up needs" if is_fit else "trimtab up needs what is missing"
    console.print(f"{counts}; {verdict}", markup=False)
