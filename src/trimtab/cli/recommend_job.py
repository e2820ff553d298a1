"""`trimtab recommend SPEC.yaml --job NAME`: a training job's configurations by what is known of it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from trimtab.cli.interrupts import ending_in_order
from trimtab.cli.keeping import Keeping
from trimtab.cli.place import check_place
from trimtab.cli.tune_output import telling

if TYPE_CHECKING:
    from rich.table import Table

    from trimtab.core import Goal
    from trimtab.tune import JobSource, Opinion, Ranking

_OF_JOBS = ("job", "data", "local", "state", "engine")
_OF_BOTH = ("subject", "objective", "deadline", "budget", "top", "explain", "as_json", "html")


def recommend_job(
    source: "JobSource", goal: "Goal", explain: int | None, as_json: bool, html: Path | None
) -> None:
    """Rank, decide, and print or write what was asked for."""
    from trimtab.kernel import check_writable, write_whole
    from trimtab.tune import rank, ranking_report

    if html is not None:
        check_writable(html)
    ledger = Keeping()
    check_place()
    with ending_in_order("a local run that ended is kept"), telling(as_json) as tell:
        ranking = rank(source, goal, tell)
        _check_row(ranking, explain)
        ledger.record(ranking.decision)
        kept = replace(ranking.decision, id=ledger.id_of(ranking.decision.id))
        ranking = replace(ranking, decision=kept)
        page = ranking_report(ranking, tell) if html is not None else ""
    if html is not None:
        write_whole(html, page)
    if as_json:
        print(json.dumps(ranking_json(ranking)))
    else:
        _print(ranking, explain)
        if html is not None:
            typer.echo(f"report: {html.resolve()}")
    ledger.require()


def check_subject(context: typer.Context, subject: str | None, job: str | None) -> None:
    """A SPEC goes with --job and a profile without; each has options that say nothing of the other."""
    from trimtab.collect import read_spec
    from trimtab.core import BadInputError

    is_spec = subject is not None and subject.endswith((".yaml", ".yml"))
    if subject is not None and is_spec and job is None:
        names = ", ".join(each.name for each in read_spec(Path(subject)).jobs)
        raise BadInputError(f"{subject} is a SPEC; say with --job which of its jobs is meant: {names}")
    if job is not None and not is_spec:
        which = "no file is named" if subject is None else f"{subject} is not one"
        raise BadInputError(f"--job names a job of a SPEC, a .yaml file with jobs and shapes, and {which}")
    others = set(context.params) - {*_OF_JOBS, *_OF_BOTH} if is_spec else set(_OF_JOBS)
    for option in context.command.params:
        name = option.name or ""
        said = context.get_parameter_source(name)
        if name in others and said is not None and said.name == "COMMANDLINE":
            kind, other = ("a profile", "a SPEC") if is_spec else ("a SPEC", "a profile")
            raise BadInputError(f"{option.opts[-1]} goes with {kind}, and this is about {other}")


def _check_row(ranking: "Ranking", number: int | None) -> None:
    from trimtab.core import BadInputError

    if number is not None and not 1 <= number <= len(ranking.rows):
        raise BadInputError(f"there is no row {number}; there are {len(ranking.rows)}")


def ranking_json(ranking: "Ranking") -> dict[str, Any]:
    """Plain data: seconds, bytes, dollars."""
    from trimtab.core import to_plain

    now = ranking.opinions
    return {
        "decision": ranking.decision.id or None,
        "job": ranking.job,
        "objective": ranking.goal.objective,
        "samples": ranking.space.job.length,
        "considered": len(ranking.space.setups),
        "price_date": ranking.price_date,
        "rows": [
            _plain(ranking, rank, row) for rank, row in enumerate(ranking.rows[: ranking.goal.top], start=1)
        ],
        "dropped": to_plain(ranking.dropped),
        "trials": to_plain(now.trials),
        "notes": [ranking.forecast.note],
    }


def _plain(ranking: "Ranking", rank: int, row: "Opinion") -> dict[str, Any]:
    from trimtab.core import to_plain

    return {
        "rank": rank,
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


def _print(ranking: "Ranking", explain: int | None) -> None:
    from rich.console import Console
    from rich.markup import escape

    from trimtab.tune import explain_opinion

    console, space = Console(highlight=False), ranking.space
    console.print(
        f"[bold]{escape(ranking.job)}[/bold]: {space.job.length:,.0f} samples;"
        f" {len(space.setups)} configurations by {ranking.goal.objective},"
        f" prices of {ranking.price_date}"
    )
    console.print(_table(ranking))
    for each in ranking.dropped:
        console.print(f"[dim]left out {each.count:,}: {escape(each.reason)}[/dim]")
    if explain is not None:
        console.print()
        for line in explain_opinion(ranking, explain):
            console.print(line, markup=False)
    if made := ranking.decision.id:
        console.print(f"decision {made}: trimtab decisions {made}", markup=False, soft_wrap=True)


def _table(ranking: "Ranking") -> "Table":
    from rich.table import Table

    from trimtab.core import format_bytes, format_duration, format_money, format_price
    from trimtab.tune import evidence_detail, fits_words

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("#", justify="right")
    table.add_column("configuration", overflow="fold")
    for name in ("time", "cost", "memory"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("evidence", no_wrap=True)
    for rank, row in enumerate(ranking.rows[: ranking.goal.top], start=1):
        time, cost, setup = row.time, row.cost, ranking.space.setups[row.row]
        need, limit = ranking.memory(row)
        table.add_row(
            str(rank),
            f"{setup.workers} × {setup.shape.name}\n"
            f"[dim]batch {setup.batch}, {format_price(setup.price_per_second)}[/dim]",
            f"{format_duration(time.value)}\n"
            f"[dim]{format_duration(time.low)}–{format_duration(time.high)}[/dim]",
            f"{format_money(cost.value)}\n[dim]{format_money(cost.low)}–{format_money(cost.high)}[/dim]",
            f"{format_bytes(need)} of {format_bytes(limit)}\n[dim]{fits_words(row)}[/dim]",
            f"{row.evidence}\n[dim]{evidence_detail(ranking, row)}[/dim]",
        )
    return table
