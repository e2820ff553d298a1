"""`trimtab predict`: what an application that ran somewhere would take and cost elsewhere."""

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from trimtab import predict as room
from trimtab.cli.options import Json
from trimtab.cli.place import LedgerQueue, is_here
from trimtab.cli.terminal import check_files, new_table, warn, write_file
from trimtab.core import format_duration, format_money, to_plain
from trimtab.predict import (
    PredictedConfiguration,
    Prediction,
    cost_scale,
    current_foundation,
    explained,
    load_foundation,
    predict as ask,
)

_NARROW = 76  # columns; below, what belongs together stands on two lines


def predict(
    app: Annotated[
        Path, typer.Option(metavar="FILE", help="A YAML or JSON file: what was run, and what it showed.")
    ],
    at: Annotated[
        str,
        typer.Option(
            metavar="WHERE", help="Sizes or configurations, with commas between; all for all known."
        ),
    ] = "all",
    explain: Annotated[
        str | None,
        typer.Option(metavar="WHERE", help="Say what the answer for this one is made of; else for the best."),
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a report with charts.")] = None,
    as_json: Json = False,
    weights: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Other weights than the current version's.")
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
    check_files(html)
    places = at.split(",") + ([explain] if explain else [])
    answer = ask(app, places, load_foundation(weights) if weights else current_foundation(warn))
    ledger = LedgerQueue()
    decision = _keep(ledger, answer) if keep else ""
    written = write_file(html, lambda: room.prediction_report(answer, decision))
    if as_json:
        print(json.dumps(_plain(answer, decision or None)))
    else:
        _print(answer, explain, written, decision)
    ledger.require()


def _keep(ledger: LedgerQueue, answer: Prediction) -> str:
    """Keep it as a decision, and here what it was made from too; the id, "" where a server took nothing."""
    made = answer.decision()
    ledger.record(made)
    if is_here():
        from trimtab.predict import remember
        from trimtab.store import open_store

        with open_store() as store:
            remember(store, answer.request, answer.guarded, made)
    return ledger.id_of(made.id)


def _print(answer: Prediction, explain: str | None, written: list[str], decision: str) -> None:
    console = Console(highlight=False)
    _show(console, answer)
    for line in explained(answer, explain or answer.best.configuration):
        print(line)
    for line in written:
        print(line)
    what = f"{answer.best.configuration} is the {answer.best_is}"
    print(f"decision {decision}: {what}" if decision else what)


def _plain(answer: Prediction, decision: str | None) -> dict[str, Any]:
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


def _plain_line(answer: Prediction, line: PredictedConfiguration) -> dict[str, Any]:
    parts = {part.name: part.value for part in answer.contributions(line.configuration)}
    return {**to_plain(line), "contributions": parts}


def _show(console: Console, answer: Prediction) -> None:
    console.print(_narrow(answer) if console.width < _NARROW else _wide(answer))
    console.print(f"The {answer.chosen_by} answers: {answer.reason}.", soft_wrap=console.width >= _NARROW)


def _wide(answer: Prediction) -> Table:
    table = Table(*_heads(answer), title=escape(answer.application))
    for line in answer.ordered:
        table.add_row(*_cells(answer, line))
    return table


def _narrow(answer: Prediction) -> Table:
    """Range below time, and model below rule."""
    where, time, range_, cost, rule, model = _heads(answer)
    heads = (where, f"<{time}\n{range_}", f"<{cost}", f"<{rule}\n{model}")
    table = new_table(*heads, title=escape(answer.application))
    for line in answer.ordered:
        where, time, range_, cost, rule, model = _cells(answer, line)
        table.add_row(where, f"{time}\n[dim]{range_}[/dim]", cost, f"{rule}\n{model}")
    return table


def _heads(answer: Prediction) -> tuple[str, str, str, str, str, str]:
    _, what = cost_scale(answer)
    return "where", "time", f"{answer.request.fitted.coverage:.0%} range", f"cost of {what}", "rule", "model"


def _cells(answer: Prediction, line: PredictedConfiguration) -> tuple[str, str, str, str, str, str]:
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
