"""`trimtab predict`: what an application that ran somewhere would take and cost elsewhere."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimtab.cli.keeping import Keeping
from trimtab.cli.place import is_here

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from trimtab.predict import Line, Prediction

_NARROW = 76  # columns; below, what belongs together stands on two lines


def predict(
    app: Annotated[
        Path,
        typer.Option("--app", metavar="FILE", help="A YAML or JSON file: what was run, and what it showed."),
    ],
    at: Annotated[
        str,
        typer.Option(
            "--at", metavar="WHERE", help="Sizes or configurations, with commas between; all for all known."
        ),
    ] = "all",
    explain: Annotated[
        str | None,
        typer.Option(
            "--explain",
            metavar="WHERE",
            help="Say what the answer for this one is made of; else for the best.",
            show_default=False,
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write a report with charts.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
    weights: Annotated[
        Path | None,
        typer.Option(
            "--weights",
            metavar="FILE",
            help="Other weights than the current version's.",
            show_default=False,
        ),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep/--no-keep", help="Write it into the ledger.")] = True,
) -> None:
    """Predict how long something takes elsewhere, and what it costs there, from one to three runs of it.

    **A function**: thumbnailer.yaml says how it ran at one memory size; 1GB is 1024MB, as platforms count.

        application: thumbnailer
        environment: lambda
        observations:
          - memory: 512MB
            time: 240ms
            cpu_user: 60ms
            memory_used: 80MB

    `trimtab predict --app thumbnailer.yaml --at 128MB,1GB,2GB`

    **A job on clusters**: join.yaml says where it ran; which of the others is cheapest, and why?

        environment: ec2
        observations:
          - configuration: c4.large nodes=10
            time: 20m
          - configuration: m4.2xlarge nodes=10
            time: 11m

    `trimtab predict --app join.yaml --html report.html`

    Environments are **lambda** and **openwhisk** (functions), **ec2** and **cloud** (clusters), **H200** and
    **gavel** (a model's step on GPUs). Only `memory` (or `configuration`) and `time` are needed. What a run
    showed per invocation makes the answer better: cpu_user, cpu_system, throttled, memory_used,
    context_switches, involuntary_switches, bytes_read, bytes_written, bytes_received, bytes_sent, and min,
    median, deviation of its times. A rule answers beside the model, and instead of it where the model has
    nothing to go by.
    """
    from trimtab.cli.warning import warn
    from trimtab.kernel import check_writable, write_whole
    from trimtab.predict import current_foundation, load_foundation, predict as ask, prediction_report

    if html:
        check_writable(html)
    places = at.split(",") + ([explain] if explain else [])
    answer = ask(app, places, load_foundation(weights) if weights else current_foundation(warn))
    ledger = Keeping()
    decision = _keep(ledger, answer) if keep else ""
    if html:
        write_whole(html, prediction_report(answer, decision))
    if as_json:
        print(json.dumps(_plain(answer, decision or None)))
    else:
        _print(answer, explain, html, decision)
    ledger.require()


def _keep(ledger: Keeping, answer: "Prediction") -> str:
    """Keep it as a decision, and here what it was made from too; the id, "" where a server took nothing."""
    made = answer.decision()
    ledger.record(made)
    if is_here():
        from trimtab.predict import remember
        from trimtab.store import open_store

        with open_store() as store:
            remember(store, answer.request, answer.guarded, made)
    return ledger.id_of(made.id)


def _print(answer: "Prediction", explain: str | None, html: Path | None, decision: str) -> None:
    from rich.console import Console

    from trimtab.predict import explained

    console = Console(highlight=False)
    _show(console, answer)
    for line in explained(answer, explain or answer.best.configuration):
        print(line)
    if html:
        print(f"report: {html.resolve()}")
    what = f"{answer.best.configuration} is the {answer.best_is}"
    print(f"decision {decision}: {what}" if decision else what)


def _plain(answer: "Prediction", decision: str | None) -> dict[str, Any]:
    unlike = answer.guarded.unlike
    return {
        "decision": decision,
        "application": answer.application,
        "environment": answer.environment,
        "chosen_by": answer.chosen_by,
        "reason": answer.reason,
        "unlikeness": unlike if math.isfinite(unlike) else None,
        "distance_score": answer.guarded.score,
        "most_alike": list(answer.guarded.alike),
        "rule": answer.rule_name,
        "best": answer.best.configuration,
        "predictions": [_plain_line(answer, line) for line in answer.lines],
    }


def _plain_line(answer: "Prediction", line: "Line") -> dict[str, Any]:
    from trimtab.core import to_plain

    parts = {part.name: part.value for part in answer.contributions(line.configuration)}
    return {**to_plain(line), "contributions": parts}


def _show(console: "Console", answer: "Prediction") -> None:
    console.print(_narrow(answer) if console.width < _NARROW else _wide(answer))
    console.print(f"The {answer.chosen_by} answers: {answer.reason}.", soft_wrap=console.width >= _NARROW)


def _wide(answer: "Prediction") -> "Table":
    from rich.markup import escape
    from rich.table import Table

    table = Table(*_heads(answer), title=escape(answer.application))
    for line in answer.ordered:
        table.add_row(*_cells(answer, line))
    return table


def _narrow(answer: "Prediction") -> "Table":
    """Range below time, and model below rule."""
    from rich.markup import escape
    from rich.table import Table

    where, time, range_, cost, rule, model = _heads(answer)
    table = Table(box=None, pad_edge=False, title=escape(answer.application))
    table.add_column(where, overflow="fold")
    for head in (f"{time}\n{range_}", cost, f"{rule}\n{model}"):
        table.add_column(head, no_wrap=True)
    for line in answer.ordered:
        where, time, range_, cost, rule, model = _cells(answer, line)
        table.add_row(where, f"{time}\n[dim]{range_}[/dim]", cost, f"{rule}\n{model}")
    return table


def _heads(answer: "Prediction") -> tuple[str, str, str, str, str, str]:
    from trimtab.predict import cost_scale

    _, what = cost_scale(answer)
    return "where", "time", f"{answer.request.fitted.coverage:.0%} range", f"cost of {what}", "rule", "model"


def _cells(answer: "Prediction", line: "Line") -> tuple[str, str, str, str, str, str]:
    from trimtab.core import format_duration, format_money
    from trimtab.predict import cost_scale

    runs, _ = cost_scale(answer)
    return (
        line.configuration,
        format_duration(line.time.value),
        "measured"
        if line.known
        else f"{format_duration(line.time.low)} to {format_duration(line.time.high)}",
        format_money(line.cost.value * runs) if line.cost else "",
        "" if line.known else format_duration(line.rule_seconds),
        "" if line.known else format_duration(line.model_seconds),
    )
