"""`trimtab tune`: trials of a training job or of any measuring command, as few as are worth their price."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.interrupts import ending_in_order
from trimtab.cli.keeping import Keeping
from trimtab.cli.options import html_option, json_option, local_option
from trimtab.cli.place import check_place
from trimtab.cli.tune_output import print_tuned, telling, tuned_json
from trimtab.cli.warning import warn

if TYPE_CHECKING:
    from collections.abc import Callable

    from trimtab.tune import News, Tuned

_SPACE, _TRIALS, _KNOWN, _OUTPUT = "Any space", "Trials", "What is known before", "What to print and write"
_JOB_TRIALS, _SPACE_TRIALS = 3, 10


def tune(
    spec: Annotated[
        Path | None,
        typer.Argument(
            metavar="[SPEC.yaml]",
            help="Training jobs, shapes and prices, as for `trimtab collect`.",
            show_default=False,
        ),
    ] = None,
    job: Annotated[
        str | None, typer.Option("--job", help="The job in SPEC.yaml.", show_default=False)
    ] = None,
    objective: Annotated[
        str, typer.Option("--objective", help="What makes a configuration better: cost or time.")
    ] = "cost",
    space: Annotated[
        Path | None,
        typer.Option(
            "--space",
            metavar="SPACE.yaml|CSV",
            help="Configurations with prices, and the command that measures one, instead of a SPEC.",
            rich_help_panel=_SPACE,
            show_default=False,
        ),
    ] = None,
    command: Annotated[
        str | None,
        typer.Option(
            "--command",
            help='For a CSV: the measuring command, as in "./run.sh {instance} {nodes}".',
            rich_help_panel=_SPACE,
            show_default=False,
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            "--trials",
            min=0,
            help="At most so many; 0 only predicts. 3 for a job, 10 for a space.",
            rich_help_panel=_TRIALS,
            show_default=False,
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            help="At most so many dollars for all trials: 0.50.",
            rich_help_panel=_TRIALS,
            show_default=False,
        ),
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(
            "--deadline",
            help="At most so long for all trials: 2h. None begins that is not expected to end in time.",
            rich_help_panel=_TRIALS,
            show_default=False,
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option("--method", help="trimtab, or random to compare with it.", rich_help_panel=_TRIALS),
    ] = "trimtab",
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            metavar="URL",
            help="Where a job's trials run: local://, slurm://, …; else in control groups here.",
            rich_help_panel=_TRIALS,
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="CSV",
            help="What other jobs did, by `trimtab collect`; for a space, what other workloads did.",
            rich_help_panel=_KNOWN,
            show_default=False,
        ),
    ] = None,
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
    """Find the configuration to rent for a workload, by a few trials of it.

    `trimtab tune examples/jobs/collect.yaml --job news-topics --trials 3`

    A training job: a short local run and what other jobs did say what to try. Each trial looks for a third
    of the SPEC's window, and for all of it only where the configuration could still be the best. It ends when
    another trial costs more than it can be expected to save.

    `trimtab tune --space configurations.csv --command "./benchmark.sh {instance} {nodes}"`

    Anything else: a CSV with a row per configuration, columns for its settings and price (dollars per hour).
    The command runs with {column} replaced; how long it takes is what is measured. A SPACE.yaml has settings
    with lists of values, a rule for the price, the command, a timeout, and whether the command prints the
    seconds itself. --data names measurements of other workloads (columns workload, seconds and the settings),
    from which it learns where to begin.

    Trials are kept: after Ctrl-C or a kill the same command goes on.
    """
    from trimtab.core import BadInputError, parse_duration, parse_money
    from trimtab.kernel import check_writable, write_whole
    from trimtab.tune import JobSource, Limits, SpaceSource, TuneOptions, tune_job, tune_space, tuning_report

    if (spec is None) == (space is None):
        raise BadInputError("name a SPEC.yaml with --job, or a space with --space; one of the two")
    for name, value in (("--job", job), ("--engine", engine), ("--local", local)):
        if space is not None and value is not None:
            raise BadInputError(f"{name} goes with a SPEC.yaml, and this is about a space")
    if spec is not None and (job is None or command is not None):
        raise BadInputError("--command goes with --space" if job else "name the job in SPEC.yaml with --job")
    most = trials if trials is not None else _SPACE_TRIALS if spec is None else _JOB_TRIALS
    limits = Limits(
        most,
        *([parse_money(budget)] if budget is not None else [float("inf")]),
        *([parse_duration(deadline)] if deadline is not None else []),
    )
    options = TuneOptions(objective, limits, method)
    ledger = Keeping(first=True)

    def run(tell: "Callable[[News], None]") -> "Tuned":
        if space is not None:
            return tune_space(SpaceSource(space, command, data), options, ledger, state, tell)
        assert spec is not None
        assert job is not None
        return tune_job(JobSource(spec, job, engine, data, local, state), options, ledger, tell)

    for file in (html, state):
        if file is not None:
            check_writable(file)
    tuned = _run_kept(run, ledger, quiet=as_json)
    if html is not None:
        write_whole(html, tuning_report(tuned))
    if as_json:
        print(json.dumps(tuned_json(tuned, method)))
    else:
        print_tuned(tuned)
        if html is not None:
            typer.echo(f"report: {html.resolve()}")
    ledger.require()


def _run_kept(run: "Callable[[Callable[[News], None]], Tuned]", ledger: Keeping, quiet: bool) -> "Tuned":
    """Run a session; its end by a signal says that trials are kept."""
    kept = "finished trials are kept, and the same command goes on from there"
    check_place()
    with ending_in_order(kept), telling(quiet) as tell:
        try:
            tuned = run(tell)
        except BaseException:
            if ledger.left:
                warn(ledger.left)
            raise
    return replace(tuned, decision=ledger.id_of(tuned.decision))
