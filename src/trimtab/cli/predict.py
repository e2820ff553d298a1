"""`trimtab predict`: what an application that ran somewhere would take and cost elsewhere."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer


def predict(
    app: Annotated[
        Path, typer.Option("--app", help="A YAML or JSON file: what was run, and what it showed.")
    ],
    at: Annotated[
        str, typer.Option("--at", help="Sizes or configurations, with commas between; all for all known.")
    ] = "all",
    weights: Annotated[
        Path | None,
        typer.Option("--weights", help="Other weights than those that came along.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
    keep: Annotated[bool, typer.Option("--keep/--no-keep", help="Write it into the ledger.")] = True,
) -> None:
    """Predict how long something takes elsewhere, and what it costs there, from one to three runs of it.

    The file names the environment (**lambda**, **openwhisk**, **ec2** clusters, **cloud**) and the runs:

        application: thumbnails
        environment: lambda
        observations:
          - memory: 512MB
            time: 240ms
            cpu_user: 60ms
            memory_used: 80MB

    Only `memory` (or `configuration`) and `time` are needed; what a run showed per invocation makes the
    answer better: cpu_user, cpu_system, throttled, memory_used, context_switches, involuntary_switches,
    bytes_read, bytes_written, bytes_received, bytes_sent, and min, median, deviation of its times. A rule
    answers beside the model, and instead of it where the model has nothing to go by.
    """
    from rich.console import Console

    from trimtab.predict import (
        guarded,
        load_foundation,
        prediction_decision,
        prediction_lines,
        read_request,
        shipped_foundation,
    )

    foundation = load_foundation(weights) if weights else shipped_foundation()
    request = read_request(app, [text.strip() for text in at.split(",") if text.strip()], foundation)
    found = guarded(request.fitted, request.case, request.known)
    lines = prediction_lines(request, found, request.fitted.coverage)
    made = prediction_decision(request, found, lines)
    if keep:
        from trimtab.store import open_store

        with open_store() as store:
            store.ledger.record(made)
    if as_json:
        print(json.dumps(_plain(made, found, lines)))
        return
    _show(Console(highlight=False), request, found, lines)
    _explain(made)
    if keep:
        (best,) = made.action.values()
        print(f"decision {made.id}: {best} is the {made.reason.split(' of ')[0]}")


def _plain(made: Any, found: Any, lines: Any) -> dict[str, Any]:
    from trimtab.core import to_plain

    return {
        "decision": made.id,
        "chosen_by": found.chosen_by,
        "reason": found.reason,
        "unlikeness": found.unlike,
        "rule": found.rule_name,
        "predictions": [to_plain(line) for line in lines],
        "contributions": {part.name: part.value for part in made.contributions},
    }


def _explain(made: Any) -> None:
    """The parts of the best place's time, in words; nothing where it was measured."""
    from trimtab.core.units import format_duration

    if made.contributions:
        (best,) = made.action.values()
        print(f"{best} takes {format_duration(made.estimates['time'].value)}:")
        for part in made.contributions:
            sign = "-" if part.value < 0 else "+"
            print(f"  {part.name:32} {sign}{format_duration(abs(part.value))}")


def _show(console: Any, request: Any, found: Any, lines: Any) -> None:
    from rich.markup import escape
    from rich.table import Table

    from trimtab.core.units import format_duration, format_money

    # One invocation of a function costs too little to read.
    times, cost = (1e6, "cost of 1M") if request.of_function else (1.0, "cost")
    coverage = f"{request.fitted.coverage:.0%} range"
    table = Table("where", "time", coverage, cost, "rule", "model", title=escape(request.case.application))
    for line in lines:
        span = f"{format_duration(line.time.low)} to {format_duration(line.time.high)}"
        both = (format_duration(line.rule_seconds), format_duration(line.model_seconds))
        table.add_row(
            line.configuration,
            format_duration(line.time.value),
            "measured" if line.known else span,
            format_money(line.cost.value * times) if line.cost else "",
            *(("", "") if line.known else both),
        )
    console.print(table)
    console.print(f"The {found.chosen_by} answers: {found.reason}.", soft_wrap=True)
