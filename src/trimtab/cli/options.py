"""Options that several commands have; each command says under which heading."""

from typing import Any

import typer


def points_option(panel: str) -> Any:
    """Where the measurements of training jobs are."""
    return typer.Option(
        "--data",
        metavar="POINTS.csv",
        help="What other jobs did, by `trimtab collect`; else what Trimtab comes with.",
        rich_help_panel=panel,
        show_default=False,
    )


def local_option(panel: str) -> Any:
    """Where the local runs of those jobs are."""
    return typer.Option(
        "--local",
        metavar="LOCAL.json",
        help="Their local runs; else the file beside POINTS.csv.",
        rich_help_panel=panel,
        show_default=False,
    )


def json_option(panel: str) -> Any:
    """For programs that read along."""
    return typer.Option("--json", help="Print one JSON object instead.", rich_help_panel=panel)


def seconds_option() -> Any:
    """For what stays until it is ended."""
    return typer.Option(
        "--seconds", min=0.1, help="End after so long; otherwise at Ctrl-C.", show_default=False
    )


def html_option(panel: str, help: str = "Write a report with charts.") -> Any:
    """For people who would rather look."""
    return typer.Option("--html", metavar="FILE", help=help, rich_help_panel=panel, show_default=False)
