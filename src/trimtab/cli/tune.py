"""`trimtab tune`: real trials of a training job, as few as are worth their price."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.interrupts import ending_in_order
from trimtab.cli.keeping import Keeping
from trimtab.cli.options import html_option, json_option, local_option, points_option
from trimtab.cli.place import check_place
from trimtab.cli.tune_output import print_tuned, telling, tuned_json
from trimtab.cli.warning import warn

if TYPE_CHECKING:
    from trimtab.tune import Asked, Tuned

_TRIALS, _KNOWN, _OUTPUT = "Trials", "What is known before", "What to print and write"


def tune(
    spec: Annotated[
        Path,
        typer.Argument(
            metavar="SPEC.yaml", help="Jobs, shapes and prices, as for `trimtab collect`.", show_default=False
        ),
    ],
    job: Annotated[str, typer.Option("--job", help="The job in it.", show_default=False)],
    objective: Annotated[
        str, typer.Option("--objective", help="What makes a configuration better: cost or time.")
    ] = "cost",
    trials: Annotated[
        int,
        typer.Option("--trials", min=0, help="At most so many; 0 only predicts.", rich_help_panel=_TRIALS),
    ] = 3,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            help="At most so many dollars for all trials: 0.50.",
            rich_help_panel=_TRIALS,
            show_default=False,
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            "--method",
            help="How they are chosen: trimtab, or to compare with it cherrypick, random, …",
            rich_help_panel=_TRIALS,
        ),
    ] = "trimtab",
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            metavar="URL",
            help="Where they run: local://, slurm://, ray://HOST:PORT, …; else in control groups here.",
            rich_help_panel=_TRIALS,
            show_default=False,
        ),
    ] = None,
    data: Annotated[Path | None, points_option(_KNOWN)] = None,
    local: Annotated[Path | None, local_option(_KNOWN)] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            "--state",
            metavar="FILE",
            help="Where trials are kept; in Trimtab's home otherwise.",
            rich_help_panel=_TRIALS,
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, json_option(_OUTPUT)] = False,
    html: Annotated[Path | None, html_option(_OUTPUT)] = None,
) -> None:
    """Find the configuration to rent for a training job, by a few short trials of it.

    `trimtab tune examples/jobs/collect.yaml --job news-topics --trials 3`

    A short local run, and what other jobs did, say what to try. Each trial looks for a third of the SPEC's
    window, and for all of it only where the configuration could still be the best. It ends when another
    trial costs more than it can be expected to save. Trials are kept: after Ctrl-C or a kill the same command
    goes on.
    """
    from trimtab.core import parse_money
    from trimtab.kernel import check_writable
    from trimtab.tune import Asked, JobSource, Limits, tuning_report

    limits = Limits(trials) if budget is None else Limits(trials, parse_money(budget))
    asked = Asked(JobSource(spec, job, engine, data, local, state), objective, limits, method)
    for file in (html, state):
        if file is not None:
            check_writable(file)
    ledger = Keeping(first=True)
    tuned = _tuned(asked, ledger, quiet=as_json)
    if html is not None:
        from trimtab.kernel import write_whole

        write_whole(html, tuning_report(tuned))
    if as_json:
        print(json.dumps(tuned_json(tuned, method)))
    else:
        print_tuned(tuned)
        if html is not None:
            typer.echo(f"report: {html.resolve()}")
    ledger.require()


def _tuned(asked: "Asked", ledger: Keeping, quiet: bool) -> "Tuned":
    from trimtab.tune import tune as run

    kept = "finished trials are kept, and the same command goes on from there"
    check_place()
    with ending_in_order(kept), telling(quiet) as tell:
        try:
            tuned = run(asked, ledger, tell)
        except BaseException:
            if ledger.left:
                warn(ledger.left)
            raise
    return replace(tuned, decision=ledger.id_of(tuned.decision))
