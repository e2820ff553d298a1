"""`trimtab tune`: search by trials; `trimtab recommend SPEC.yaml --job`: rank without any."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape

from trimtab import tune as room
from trimtab.cli.place import LedgerQueue, check_place
from trimtab.cli.terminal import (
    Html,
    Json,
    LocalRuns,
    check_files,
    ending_in_order,
    panel,
    print_rows,
    say,
    warn,
    write_file,
)
from trimtab.core import (
    BadInputError,
    Goal,
    format_bytes,
    format_duration,
    format_money,
    format_price,
    parse_duration,
    parse_money,
    to_plain,
)

_space, _trials = panel("Any space"), panel("Trials")
_JOB_TRIALS, _SPACE_TRIALS = 3, 10


def tune(
    spec: Path | None = typer.Argument(
        None, metavar="SPEC.yaml", help="Training jobs, shapes and prices, as for `trimtab collect`."
    ),
    job: str | None = typer.Option(None, metavar="NAME", help="The job in SPEC.yaml."),
    objective: str = typer.Option(
        "cost", metavar="NAME", help="What makes a configuration better: cost or time."
    ),
    space: Path | None = _space(
        None,
        metavar="SPACE.yaml|CSV",
        help="Configurations with prices, and the command that measures one, instead of a SPEC.",
    ),
    command: str | None = _space(
        None, help='For a CSV: the measuring command, as in "./run.sh {instance} {nodes}".'
    ),
    trials: int | None = _trials(
        None, min=0, help="Maximum number of trials; 0 only predicts. Default: 3 for a job, 10 for a space."
    ),
    budget: str | None = _trials(None, metavar="DOLLARS", help="Dollars for all trials, at most: 0.50."),
    deadline: str | None = _trials(
        None,
        metavar="DURATION",
        help="Time for all trials, at most: 2h. No trial starts that is expected to end later.",
    ),
    method: str = _trials(
        "trimtab", metavar="NAME", help="Search method: trimtab, or random for comparison."
    ),
    engine: str | None = _trials(
        None,
        metavar="URL",
        help="Engine of a job's trials: local://, slurm://, …; default: control groups on this machine.",
    ),
    data: Path | None = panel("Earlier measurements")(
        None,
        metavar="CSV",
        help="Measurements of other jobs by `trimtab collect`; with --space, of other workloads.",
    ),
    local: LocalRuns = None,
    state: Path | None = _trials(
        None, metavar="FILE", help="The file in which trials are kept; default: a file in Trimtab's home."
    ),
    as_json: Json = False,
    html: Html = None,
) -> None:
    """Find the configuration to rent for a workload, by a few trials of it.

    `trimtab tune examples/jobs/collect.yaml --job news-topics --trials 3`

    A training job: trials are chosen from a short local run and other jobs' measurements. Each trial runs for
    a third of the SPEC's window, and for all of it only where the configuration could still be the best. The
    search ends when another trial costs more than it is expected to save.

    `trimtab tune --space configurations.csv --command "./benchmark.sh {instance} {nodes}"`

    Anything else: a CSV with a row per configuration, columns for its settings and price (dollars per hour).
    The command runs with {column} replaced; its run time is measured. A SPACE.yaml has settings with lists of
    values, a rule for the price, the command, a timeout, and whether the command prints the seconds itself.
    --data names measurements of other workloads (columns workload, seconds and the settings), from which the
    search learns where to begin.

    Trials are kept: after Ctrl-C or a kill the same command goes on.
    """
    if (spec is None) == (space is None):
        raise BadInputError("give either a SPEC.yaml with --job, or a space with --space")
    for name, value in (("--job", job), ("--engine", engine), ("--local", local)):
        if space is not None and value is not None:
            raise BadInputError(f"{name} is for a SPEC.yaml; leave it out with --space")
    if spec is not None and (job is None or command is not None):
        raise BadInputError(
            "--command is for --space; leave it out with a SPEC.yaml"
            if job
            else "name the job in SPEC.yaml with --job"
        )
    limits = room.Limits(
        trials if trials is not None else _SPACE_TRIALS if spec is None else _JOB_TRIALS,
        parse_money(budget) if budget is not None else math.inf,
        parse_duration(deadline) if deadline is not None else math.inf,
    )
    options = room.TuneOptions(objective, limits, method)
    ledger = LedgerQueue(first=True)
    check_files(html, state)
    check_place()
    note = "finished trials are kept, and the same command goes on from there"
    with ending_in_order(note), reporting(as_json) as report:
        try:
            if space is not None:
                tuned = room.tune_space(
                    room.SpaceSource(space, command, data), options, ledger, state, report
                )
            else:
                assert spec is not None
                assert job is not None
                tuned = room.tune_job(
                    room.JobSource(spec, job, engine, data, local, state), options, ledger, report
                )
        except BaseException:
            if ledger.unsent:
                warn(ledger.unsent)
            raise
    tuned = replace(tuned, decision=ledger.id_of(tuned.decision))
    written = write_file(html, lambda: room.tuning_report(tuned))
    if as_json:
        print(json.dumps(_plain_tuned(tuned, method)))
    else:
        _print_tuned(tuned)
        for line in written:
            print(line)
    ledger.require()


_SHOWN = 5  # configurations below the recommended one


@contextmanager
def reporting(quiet: bool) -> Iterator[Callable[[room.News], None]]:
    """Prints the progress of trials: on standard error beside JSON, else on standard output."""
    console = Console(stderr=quiet, highlight=False)
    with console.status("reading earlier measurements") as line:

        def report(news: room.News) -> None:
            if isinstance(news, room.Begun):
                line.update(f"trial {news.number}: {news.setup.name}")
                expected = f"; expected {_expectation(news.expected)}" if news.expected else ""
                price = f", for about {format_money(news.price)}" if news.price is not None else ""
                text = f"trial {news.number}: {news.setup.name}{price}: {news.reason}{expected}"
            elif isinstance(news, room.Done):
                line.update("choosing")
                text = _done(news)
            else:
                line.update("running it here")
                text = news
            console.print(text, markup=False, soft_wrap=True)

        yield report


def _done(news: room.Done) -> str:
    trial, best = news.trial, news.best
    if news.result is None:
        result = f"{trial.status}: {trial.reason}"
    else:
        extent = "the whole window" if trial.fidelity == 1 else "a short trial, which was enough"
        step = (
            f"{format_duration(trial.step_seconds or 0.0)} a step in {extent}: " if trial.is_partial else ""
        )
        result = f"{step}{_expectation(news.result)}"
    leader = "none"
    if best is not None:
        other = f"{best.setup.name} by {best.evidence}, {_expectation(best)}"
        leader = "this one" if best.setup.name == trial.setup else other
    spent = f"{format_duration(trial.seconds)}, {format_money(trial.price)}"
    return f"  {result} (took {spent}); best now: {leader}"


def _expectation(opinion: room.Opinion) -> str:
    return f"{room.span(opinion.time)}, {room.span(opinion.cost)}"


def _print_tuned(tuned: room.Tuned) -> None:
    if tuned.trials:
        rows = [
            (
                *(str(number), trial.setup),
                format_duration(trial.step_seconds) if trial.step_seconds else trial.status,
                "" if not trial.ok else "full" if trial.fidelity == 1 else "short",
                *(format_duration(trial.seconds), format_money(trial.price)),
            )
            for number, trial in enumerate(tuned.trials, start=1)
        ]
        measured = ">a step" if tuned.is_job else ">measured"
        print_rows((">trial", "configuration", measured, "extent", ">took", ">price"), rows)
        seconds = sum(trial.seconds for trial in tuned.trials)
        say(f"stopped: {tuned.stopped}. Trials took {format_duration(seconds)}, {format_money(tuned.spent)}.")
    else:
        say(f"{tuned.stopped}.")
    best = tuned.opinions[: 1 + _SHOWN]
    ranking = [
        (str(number), opinion.setup.name, room.span(opinion.time), room.span(opinion.cost), opinion.evidence)
        for number, opinion in enumerate(best, start=1)
    ]
    print_rows((">#", "configuration", "time", "cost", "by"), ranking, optional=("by", "time"))
    say(f"rent {tuned.best.setup.name}: {_expectation(tuned.best)}, by {tuned.rests_on}")
    if tuned.decision:
        say(f"decision {tuned.decision}: trimtab decisions {tuned.decision}")


def _plain_tuned(tuned: room.Tuned, method: str) -> dict[str, Any]:
    """Plain data in seconds, bytes and dollars."""
    recommended, *others = [_plain(opinion) for opinion in tuned.opinions]
    return {
        ("job" if tuned.is_job else "space"): tuned.task.name,
        "objective": tuned.objective,
        "method": method,
        "configurations": len(tuned.task.setups),
        "trials": to_plain(tuned.trials),
        "spent": {"dollars": tuned.spent, "seconds": sum(trial.seconds for trial in tuned.trials)},
        "stopped": tuned.stopped,
        "recommended": recommended,
        "rests_on": tuned.rests_on,
        "others": others,
        "decision": tuned.decision or None,
    }


def _plain(opinion: room.Opinion) -> dict[str, Any]:
    return {
        **opinion.setup.plain,
        "price_per_second": opinion.setup.price_per_second,
        "time": to_plain(opinion.time),
        "cost": to_plain(opinion.cost),
        "evidence": opinion.evidence,
    }


def recommend_job(
    source: room.JobSource, goal: Goal, explain: int | None, as_json: bool, html: Path | None
) -> None:
    """Rank a job's configurations, record the decision, and print or write the result."""
    check_files(html)
    ledger = LedgerQueue()
    check_place()
    with ending_in_order("a local run that ended is kept"), reporting(as_json) as report:
        ranking = room.rank(source, goal, report)
        if explain is not None and not 1 <= explain <= len(ranking.rows):
            raise BadInputError(f"--explain is {explain}; it should be a row from 1 to {len(ranking.rows)}")
        ledger.record(ranking.decision)
        decision = replace(ranking.decision, id=ledger.id_of(ranking.decision.id))
        ranking = replace(ranking, decision=decision)
        written = write_file(html, lambda: room.ranking_report(ranking, report))
    if as_json:
        print(json.dumps(_plain_ranking(ranking)))
    else:
        _print_ranking(ranking, explain)
        for line in written:
            print(line)
    ledger.require()


def _plain_ranking(ranking: room.Ranking) -> dict[str, Any]:
    """Plain data in seconds, bytes and dollars."""
    return {
        "decision": ranking.decision.id or None,
        "job": ranking.job,
        "objective": ranking.goal.objective,
        "samples": ranking.space.job.length,
        "considered": len(ranking.space.setups),
        "price_date": ranking.price_date,
        "rows": [
            {
                "rank": number,
                **_plain(row),
                "memory": row.memory,
                "memory_limit": ranking.memory(row)[1],
                "fits": row.fits,
                "fidelity": row.fidelity,
                "rests_on": ranking.opinions.rests_on(row),
                "reason": row.why,
            }
            for number, row in enumerate(ranking.rows[: ranking.goal.top], start=1)
        ],
        "dropped": to_plain(ranking.dropped),
        "trials": to_plain(ranking.opinions.trials),
        "notes": [ranking.forecast.note],
    }


def _print_ranking(ranking: room.Ranking, explain: int | None) -> None:
    console, space = Console(highlight=False), ranking.space
    console.print(
        f"[bold]{escape(ranking.job)}[/bold]: {space.job.length:,.0f} samples;"
        f" {len(space.setups)} configurations by {ranking.goal.objective},"
        f" prices of {ranking.price_date}"
    )
    rows = []
    for number, row in enumerate(ranking.rows[: ranking.goal.top], start=1):
        time, cost, setup, (need, limit) = row.time, row.cost, space.setups[row.row], ranking.memory(row)
        rows.append(
            (
                str(number),
                f"{setup.workers} × {setup.shape.name}\n"
                f"batch {setup.batch}, {format_price(setup.price_per_second)}",
                f"{format_duration(time.value)}\n{format_duration(time.low)}–{format_duration(time.high)}",
                f"{format_money(cost.value)}\n{format_money(cost.low)}–{format_money(cost.high)}",
                f"{format_bytes(need)} of {format_bytes(limit)}\n{room.fits_words(row)}",
                f"{row.evidence}\n{room.evidence_detail(ranking, row)}",
            )
        )
    heads = (">#", "configuration", ">time", ">cost", ">memory", "evidence")
    print_rows(heads, rows, optional=(">memory", "evidence"))
    for dropped in ranking.dropped:
        console.print(f"[dim]left out {dropped.count:,}: {escape(dropped.reason)}[/dim]")
    if explain is not None:
        console.print()
        for line in room.explain_opinion(ranking, explain):
            say(line)
    if decision := ranking.decision.id:
        say(f"decision {decision}: trimtab decisions {decision}")
