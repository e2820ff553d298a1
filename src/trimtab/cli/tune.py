"""`trimtab tune`: a few trials of a job or a measuring command; `trimtab recommend SPEC.yaml --job`: none."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from trimtab import tune as room
from trimtab.cli.options import Html, Json, LocalRuns, panel
from trimtab.cli.place import LedgerQueue, check_place
from trimtab.cli.terminal import check_files, ending_in_order, new_table, print_table, say, warn, write_file
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
from trimtab.tune import (
    Begun,
    Done,
    JobSource,
    Limits,
    News,
    Opinion,
    Ranking,
    SpaceSource,
    Trial,
    Tuned,
    TuneOptions,
    evidence_detail,
    explain_opinion,
    fits_words,
    rank,
    span,
    tune_job,
    tune_space,
)

_space, _trials = panel("Any space"), panel("Trials")
_JOB_TRIALS, _SPACE_TRIALS = 3, 10


def tune(
    spec: Annotated[
        Path | None,
        typer.Argument(
            metavar="[SPEC.yaml]", help="Training jobs, shapes and prices, as for `trimtab collect`."
        ),
    ] = None,
    job: Annotated[str | None, typer.Option(help="The job in SPEC.yaml.")] = None,
    objective: Annotated[str, typer.Option(help="What makes a configuration better: cost or time.")] = "cost",
    space: Annotated[
        Path | None,
        _space(
            metavar="SPACE.yaml|CSV",
            help="Configurations with prices, and the command that measures one, instead of a SPEC.",
        ),
    ] = None,
    command: Annotated[
        str | None,
        _space(help='For a CSV: the measuring command, as in "./run.sh {instance} {nodes}".'),
    ] = None,
    trials: Annotated[
        int | None, _trials(min=0, help="At most so many; 0 only predicts. 3 for a job, 10 for a space.")
    ] = None,
    budget: Annotated[str | None, _trials(help="At most so many dollars for all trials: 0.50.")] = None,
    deadline: Annotated[
        str | None,
        _trials(help="At most so long for all trials: 2h. None begins that is not expected to end in time."),
    ] = None,
    method: Annotated[str, _trials(help="trimtab, or random to compare with it.")] = "trimtab",
    engine: Annotated[
        str | None,
        _trials(
            metavar="URL",
            help="Where a job's trials run: local://, slurm://, …; else in control groups here.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        panel("What is known before")(
            metavar="CSV",
            help="What other jobs did, by `trimtab collect`; for a space, what other workloads did.",
        ),
    ] = None,
    local: LocalRuns = None,
    state: Annotated[
        Path | None, _trials(metavar="FILE", help="Where trials are kept; in Trimtab's home otherwise.")
    ] = None,
    as_json: Json = False,
    html: Html = None,
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
    ledger = LedgerQueue(first=True)

    def run(tell: Callable[[News], None]) -> Tuned:
        if space is not None:
            return tune_space(SpaceSource(space, command, data), options, ledger, state, tell)
        assert spec is not None
        assert job is not None
        return tune_job(JobSource(spec, job, engine, data, local, state), options, ledger, tell)

    check_files(html, state)
    tuned = _run_kept(run, ledger, quiet=as_json)
    written = write_file(html, lambda: room.tuning_report(tuned))
    if as_json:
        print(json.dumps(tuned_json(tuned, method)))
    else:
        print_tuned(tuned)
        print(*written, sep="\n", end="\n" if written else "")
    ledger.require()


def _run_kept(run: Callable[[Callable[[News], None]], Tuned], ledger: LedgerQueue, quiet: bool) -> Tuned:
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


_SHOWN = 5  # configurations below the recommended one


@contextmanager
def telling(quiet: bool) -> Iterator[Callable[[News], None]]:
    """Tells of trials as they go: on standard error beside JSON, else on standard output."""
    console = Console(stderr=quiet, highlight=False)
    with console.status("reading what is known") as line:

        def tell(news: News) -> None:
            if isinstance(news, Begun):
                line.update(f"trial {news.number}: {news.setup.name}")
                text = _begun(news)
            elif isinstance(news, Done):
                line.update("choosing")
                text = _done(news)
            else:
                line.update("running it here")
                text = news
            console.print(text, markup=False, soft_wrap=True)

        yield tell


def print_tuned(tuned: Tuned) -> None:
    """Everything a person wants to know at the end."""
    if tuned.trials:
        print_table(_trials_table(tuned))
    seconds = sum(trial.seconds for trial in tuned.trials)
    say(
        f"stopped: {tuned.stopped}. Trials took {format_duration(seconds)}, {format_money(tuned.spent)}."
        if tuned.trials
        else f"{tuned.stopped}."
    )
    print_table(_opinions(tuned))
    best = tuned.best
    say(f"rent {best.setup.name}: {_expectation(best)}, by {tuned.rests_on}")
    if tuned.decision:
        say(f"decision {tuned.decision}: trimtab decisions {tuned.decision}")


def tuned_json(tuned: Tuned, method: str) -> dict[str, Any]:
    """The same as plain data: seconds, bytes, dollars."""
    return {
        ("job" if tuned.is_job else "space"): tuned.task.name,
        "objective": tuned.objective,
        "method": method,
        "configurations": len(tuned.task.setups),
        "trials": to_plain(tuned.trials),
        "spent": {"dollars": tuned.spent, "seconds": sum(trial.seconds for trial in tuned.trials)},
        "stopped": tuned.stopped,
        "recommended": _plain(tuned.best),
        "rests_on": tuned.rests_on,
        "others": [_plain(each) for each in tuned.opinions[1:]],
        "decision": tuned.decision or None,
    }


def _plain(opinion: Opinion) -> dict[str, Any]:
    return {
        **opinion.setup.plain,
        "price_per_second": opinion.setup.price_per_second,
        "time": to_plain(opinion.time),
        "cost": to_plain(opinion.cost),
        "evidence": opinion.evidence,
    }


def _begun(news: Begun) -> str:
    expected = f"; expected {_expectation(news.expected)}" if news.expected else ""
    price = f", for about {format_money(news.price)}" if news.price is not None else ""
    return f"trial {news.number}: {news.setup.name}{price}: {news.reason}{expected}"


def _done(news: Done) -> str:
    trial = news.trial
    if news.result is None:
        found = f"{trial.status}: {trial.reason}"
    else:
        how = "the whole window" if trial.fidelity == 1 else "a short look, which was enough"
        step = f"{format_duration(trial.step_seconds or 0.0)} a step in {how}: " if trial.is_partial else ""
        found = f"{step}{_expectation(news.result)}"
    spent = f"{format_duration(trial.seconds)}, {format_money(trial.price)}"
    return f"  {found} (took {spent}); best now: {_best(news)}"


def _best(news: Done) -> str:
    best = news.best
    if best is None:
        return "none"
    if best.setup.name == news.trial.setup:
        return "this one"
    return f"{best.setup.name} by {best.evidence}, {_expectation(best)}"


def _expectation(opinion: Opinion) -> str:
    return f"{span(opinion.time)}, {span(opinion.cost)}"


def _trials_table(tuned: Tuned) -> Table:
    table = new_table(
        ">trial", "configuration", ">a step" if tuned.is_job else ">measured", ">looked", ">took", ">price"
    )
    for number, trial in enumerate(tuned.trials, start=1):
        table.add_row(
            str(number),
            trial.setup,
            format_duration(trial.step_seconds) if trial.step_seconds else trial.status,
            _looked(trial),
            format_duration(trial.seconds),
            format_money(trial.price),
        )
    return table


def _looked(trial: Trial) -> str:
    if not trial.ok:
        return ""
    return "in full" if trial.fidelity == 1 else "in short"


def _opinions(tuned: Tuned) -> Table:
    table = new_table(">#", "configuration", "time", "cost", "<by")
    for number, each in enumerate(tuned.opinions[: 1 + _SHOWN], start=1):
        table.add_row(str(number), each.setup.name, span(each.time), span(each.cost), each.evidence)
    return table


def recommend_job(
    source: JobSource, goal: Goal, explain: int | None, as_json: bool, html: Path | None
) -> None:
    """Rank, decide, and print or write what was asked for."""
    check_files(html)
    ledger = LedgerQueue()
    check_place()
    with ending_in_order("a local run that ended is kept"), telling(as_json) as tell:
        ranking = rank(source, goal, tell)
        _check_row(ranking, explain)
        ledger.record(ranking.decision)
        kept = replace(ranking.decision, id=ledger.id_of(ranking.decision.id))
        ranking = replace(ranking, decision=kept)
        written = write_file(html, lambda: room.ranking_report(ranking, tell))
    if as_json:
        print(json.dumps(ranking_json(ranking)))
    else:
        _print_ranking(ranking, explain)
        print(*written, sep="\n", end="\n" if written else "")
    ledger.require()


def _check_row(ranking: Ranking, number: int | None) -> None:
    if number is not None and not 1 <= number <= len(ranking.rows):
        raise BadInputError(f"there is no row {number}; there are {len(ranking.rows)}")


def ranking_json(ranking: Ranking) -> dict[str, Any]:
    """Plain data: seconds, bytes, dollars."""
    now = ranking.opinions
    return {
        "decision": ranking.decision.id or None,
        "job": ranking.job,
        "objective": ranking.goal.objective,
        "samples": ranking.space.job.length,
        "considered": len(ranking.space.setups),
        "price_date": ranking.price_date,
        "rows": [
            _plain_ranked(ranking, rank, row)
            for rank, row in enumerate(ranking.rows[: ranking.goal.top], start=1)
        ],
        "dropped": to_plain(ranking.dropped),
        "trials": to_plain(now.trials),
        "notes": [ranking.forecast.note],
    }


def _plain_ranked(ranking: Ranking, number: int, row: Opinion) -> dict[str, Any]:
    return {
        "rank": number,
        **row.setup.plain,
        "price_per_second": row.setup.price_per_second,
        "time": to_plain(row.time),
        "cost": to_plain(row.cost),
        "memory": row.memory,
        "memory_limit": ranking.memory(row)[1],
        "fits": row.fits,
        "evidence": row.evidence,
        "fidelity": row.fidelity,
        "rests_on": ranking.opinions.rests_on(row),
        "reason": row.why,
    }


def _print_ranking(ranking: Ranking, explain: int | None) -> None:
    console, space = Console(highlight=False), ranking.space
    console.print(
        f"[bold]{escape(ranking.job)}[/bold]: {space.job.length:,.0f} samples;"
        f" {len(space.setups)} configurations by {ranking.goal.objective},"
        f" prices of {ranking.price_date}"
    )
    print_table(_ranking_table(ranking))
    for each in ranking.dropped:
        console.print(f"[dim]left out {each.count:,}: {escape(each.reason)}[/dim]")
    if explain is not None:
        console.print()
        for line in explain_opinion(ranking, explain):
            say(line)
    if made := ranking.decision.id:
        say(f"decision {made}: trimtab decisions {made}")


def _ranking_table(ranking: Ranking) -> Table:
    table = new_table(">#", "configuration", ">time", ">cost", ">memory", "<evidence")
    for number, row in enumerate(ranking.rows[: ranking.goal.top], start=1):
        time, cost, setup = row.time, row.cost, ranking.space.setups[row.row]
        need, limit = ranking.memory(row)
        table.add_row(
            str(number),
            f"{setup.workers} × {setup.shape.name}\n"
            f"[dim]batch {setup.batch}, {format_price(setup.price_per_second)}[/dim]",
            f"{format_duration(time.value)}\n"
            f"[dim]{format_duration(time.low)}–{format_duration(time.high)}[/dim]",
            f"{format_money(cost.value)}\n[dim]{format_money(cost.low)}–{format_money(cost.high)}[/dim]",
            f"{format_bytes(need)} of {format_bytes(limit)}\n[dim]{fits_words(row)}[/dim]",
            f"{row.evidence}\n[dim]{evidence_detail(ranking, row)}[/dim]",
        )
    return table
