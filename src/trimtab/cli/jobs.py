"""`trimtab jobs`, `cancel`, `queue` and `logs`: what became of what was submitted."""

import json
import time
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.place import place

if TYPE_CHECKING:
    from rich.console import Console

    from trimtab.store import JobRecord

_LOOK = 0.3  # s between looks at a log that is followed
_MOST = 10_000  # jobs of the queue

Id = Annotated[str, typer.Argument(help="A job's id, or the start of it.", show_default=False)]


def jobs(
    tenant: Annotated[str | None, typer.Option(help="Only of this tenant.", show_default=False)] = None,
    state: Annotated[
        list[str] | None, typer.Option("--state", help="Only in this state; may come several times.")
    ] = None,
    limit: Annotated[int, typer.Option(help="How many to list, newest first.", min=1)] = 50,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON instead, in seconds and dollars.")
    ] = False,
) -> None:
    """List jobs, newest first: where they stand, what they have used, and why.

    A job waits, is starting, running or stopping; and then has ended, failed, been cancelled or refused.
    """
    from rich.console import Console

    from trimtab.core import BadInputError, RealClock, did_you_mean, to_plain
    from trimtab.store import JobState

    known = [each.value for each in JobState]
    for each in state or ():
        if each not in known:
            raise BadInputError(
                f'"{each}" is not a state{did_you_mean(each, known)}; they are {", ".join(known)}'
            )
    states = [JobState(each) for each in state or ()]
    with place() as at:
        found = at.jobs.page(limit, state=states, tenant=tenant).items
    if as_json:
        print(json.dumps([to_plain(record) for record in found]))
        return
    _print_jobs(Console(highlight=False), found, RealClock().now())


def cancel(
    ids: Annotated[
        list[str], typer.Argument(metavar="ID...", help="Jobs' ids, or starts of them.", show_default=False)
    ],
) -> None:
    """End jobs: those that wait at once, those that run as soon as the scheduler hears of it."""
    from trimtab.store import JobState

    with place() as at:
        for id in ids:
            record = at.jobs.cancel(id)
            if record.state is JobState.CANCELLED:
                typer.echo(f"job {record.id} ({record.name}) is cancelled")
                continue
            there = at.fleet.now().there
            when = "the scheduler stops it" if there else "it is stopped when trimtab up runs again"
            typer.echo(f"job {record.id} ({record.name}) runs; {when}")


def queue(
    id: Annotated[
        str | None, typer.Argument(help="A job's id, or the start of it.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Why does my job wait, and when will it start?

    The reason is the policy's own. The start is what would happen if nobody else came and everybody who runs
    took as long as is believed, with a range; policies may let others pass.
    """
    from rich.console import Console

    from trimtab.core import RealClock, to_plain
    from trimtab.store import JobState

    clock = RealClock()
    with place() as at:
        waiting = (JobState.WAITING,)
        shown = [at.jobs.get(id)] if id is not None else [*reversed(at.jobs.page(_MOST, state=waiting).items)]
        scheduler = at.fleet.now()
    if as_json:
        print(json.dumps([to_plain(record) for record in shown]))
        return
    console = Console(highlight=False)
    if id is not None:
        console.print(_fate(shown[0], clock.now()), markup=False, soft_wrap=True)
    elif shown:
        _print_queue(console, shown, clock.now())
    else:
        console.print("no job waits", markup=False)
    if not scheduler.there:
        typer.echo("no scheduler is running on this store; start one with trimtab up", err=True)


def logs(
    id: Id,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on until the job is over; Ctrl-C to end.")
    ] = False,
    engine: Annotated[
        str | None, typer.Option("--engine", help="Where it runs, if not where the scheduler last ran.")
    ] = None,
) -> None:
    """Print what a job's present or last run has written."""
    import sys

    from trimtab.core import BadInputError, NotFoundError
    from trimtab.serve import Service

    with place() as at:
        record = at.jobs.get(id)
        if not record.run.run_id and not follow:
            raise NotFoundError(f"job {record.id} ({record.name}) has written nothing: {record.state.value}")
        if engine is not None and not isinstance(at, Service):
            raise BadInputError("--engine is this machine's to ask; a server knows where its jobs run")
        shown, run = 0, ""
        while True:
            piece = at.jobs.log(record.id, shown, engine=engine)
            if piece.run != run:
                shown, run, again = 0, piece.run, shown > 0
                if again:
                    continue
            sys.stdout.buffer.write(piece.data)
            sys.stdout.buffer.flush()
            shown = piece.next
            if piece.data:
                continue
            if piece.over or not follow:
                return
            time.sleep(_LOOK)


def _print_jobs(console: "Console", found: "tuple[JobRecord, ...]", now: float) -> None:
    from rich.markup import escape
    from rich.table import Table

    from trimtab.core import format_duration, format_money

    if not found:
        console.print("no jobs; trimtab submit FILE hands one in", markup=False)
        return
    table = Table(box=None, pad_edge=False)
    for name in ("id", "name", "tenant", "state", "age", "ran", "workers", "done", "spent", "why"):
        table.add_column(name, no_wrap=name in ("id", "state", "age", "ran"), overflow="fold")
    for record in found:
        run = record.run
        ran = run.seconds + (max(0.0, now - run.since) if run.since is not None else 0.0)
        held = record.state.value in ("starting", "running", "stopping")
        workers = " ".join(f"{part.workers}@{part.node}" for part in run.parts) if held else ""
        table.add_row(
            record.id,
            escape(record.name),
            escape(record.tenant),
            record.state.value,
            format_duration(max(0.0, now - record.created)),
            format_duration(ran) if ran else "",
            escape(workers),
            f"{record.done:.4g}" if record.done else "",
            format_money(run.spent) if run.spent else "",
            escape(record.outlook.why or run.reason),
        )
    console.print(table)


def _print_queue(console: "Console", waiting: "list[JobRecord]", now: float) -> None:
    from rich.markup import escape
    from rich.table import Table

    from trimtab.core import format_duration

    table = Table(box=None, pad_edge=False)
    for name in ("id", "name", "tenant", "waits for", "starts in", "why"):
        table.add_column(name, no_wrap=name == "id", overflow="fold")
    for record in waiting:
        table.add_row(
            record.id,
            escape(record.name),
            escape(record.tenant),
            format_duration(max(0.0, now - record.created)),
            _when(record, now),
            escape(record.outlook.why or record.run.reason),
        )
    console.print(table)


def _when(record: "JobRecord", now: float) -> str:
    """In how long it starts, with the range."""
    from trimtab.core import format_duration

    outlook = record.outlook
    if outlook.start is None:
        return "not known"

    def shown(moment: float | None) -> str:
        return "not known" if moment is None else format_duration(max(0.0, moment - now))

    return f"{shown(outlook.start)} ({shown(outlook.low)} to {shown(outlook.high)})"


def _fate(record: "JobRecord", now: float) -> str:
    """One job in a sentence or two."""
    from trimtab.store import JobState

    named = f"job {record.id} ({record.name})"
    if record.state is not JobState.WAITING:
        why = f": {record.run.reason}" if record.run.reason else ""
        return f"{named} does not wait, it is {record.state.value}{why}"
    why = record.outlook.why or record.run.reason or "the scheduler has not looked at it yet"
    return f"{named} waits: {why}\nit is believed to start in: {_when(record, now)}"
