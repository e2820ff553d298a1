"""`trimtab predict`: time and cost of an application elsewhere, from one to three runs."""

import json
import math
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from trimtab import predict as room
from trimtab.cli.place import LedgerQueue, is_here
from trimtab.cli.terminal import Html, Json, check_files, print_rows, say, warn, write_file
from trimtab.core import format_duration, format_money, to_plain
from trimtab.predict import (
    Prediction,
    cost_scale,
    current_foundation,
    explained,
    load_foundation,
    predict as ask,
)


def predict(
    app: Path = typer.Option(
        ..., metavar="FILE", help="A YAML or JSON file with the runs and their measurements."
    ),
    at: str = typer.Option(
        "all", metavar="WHERE", help="Sizes or configurations, separated by commas; or all."
    ),
    explain: str | None = typer.Option(
        None,
        metavar="WHERE",
        help="Explain the prediction for this size or configuration; default: the best one.",
    ),
    html: Html = None,
    as_json: Json = False,
    weights: Path | None = typer.Option(
        None, metavar="FILE", help="A file of weights; default: the current version."
    ),
    keep: bool = typer.Option(True, "--keep/--no-keep", help="Record the prediction in the ledger."),
) -> None:
    """Predict time and cost of an application elsewhere, from one to three runs of it.

    **A function**: thumbnailer.yaml has a run at one memory size; 1GB is 1024MB, as platforms count.

        application: thumbnailer
        environment: lambda
        observations:
          - memory: 512MB
            time: 240ms
            cpu_user: 60ms
            memory_used: 80MB

    `trimtab predict --app thumbnailer.yaml --at 128MB,1GB,2GB`

    **A job on clusters**: join.yaml has two runs; which of the other configurations is cheapest, and why?

        environment: ec2
        observations:
          - configuration: c4.large nodes=10
            time: 20m
          - configuration: m4.2xlarge nodes=10
            time: 11m

    `trimtab predict --app join.yaml --html report.html`

    Environments are **lambda** and **openwhisk** (functions), **ec2** and **cloud** (clusters), **H200** and
    **gavel** (a model's step on GPUs). Only `memory` (or `configuration`) and `time` are needed. More
    measurements per invocation make the answer better: cpu_user, cpu_system, throttled, memory_used,
    context_switches, involuntary_switches, bytes_read, bytes_written, bytes_received, bytes_sent, and min,
    median, deviation of its times. A rule answers beside the model, and instead of it where the guard does
    not trust the model.
    """
    check_files(html)
    places = at.split(",") + ([explain] if explain else [])
    answer = ask(app, places, load_foundation(weights) if weights else current_foundation(warn))
    ledger, id = LedgerQueue(), ""
    if keep:
        decision = answer.decision()
        ledger.record(decision)
        id = ledger.id_of(decision.id)
        if is_here():
            from trimtab.predict import remember
            from trimtab.store import open_store

            with open_store() as store:
                remember(store, answer.request, answer.guarded, decision)
    written = write_file(html, lambda: room.prediction_report(answer, id))
    if as_json:
        print(json.dumps(_plain(answer, id or None)))
    else:
        _print_table(answer)
        best = f"{answer.best.configuration} is the {answer.best_is}"
        for line in (*explained(answer, explain or answer.best.configuration), *written):
            print(line)
        print(f"decision {id}: {best}" if id else best)
    ledger.require()


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
        "predictions": [
            {
                **to_plain(line),
                "contributions": {part.name: part.value for part in answer.contributions(line.configuration)},
            }
            for line in answer.lines
        ],
    }


def _print_table(answer: Prediction) -> None:
    runs, priced = cost_scale(answer)
    rows = []
    for line in answer.ordered:
        low, high = format_duration(line.time.low), format_duration(line.time.high)
        rows.append(
            (
                *(line.configuration, format_duration(line.time.value)),
                "measured" if line.known else f"{low} to {high}",
                format_money(line.cost.value * runs) if line.cost else "",
                "" if line.known else format_duration(line.rule_seconds),
                "" if line.known else format_duration(line.model_seconds),
            )
        )
    say(answer.application, style="bold")
    span = f"{answer.request.fitted.coverage:.0%} range"
    heads = ("where", ">time", span, f">cost of {priced}", ">rule", ">model")
    print_rows(heads, rows, optional=(">rule", ">model"))
    Console(highlight=False).print(f"The {answer.chosen_by} answers: {answer.reason}.", markup=False)
