"""`trimtab submit`, `jobs`, `queue`, `logs` and `cancel`."""

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from trimtab.cli.options import Json
from trimtab.cli.place import place
from trimtab.cli.terminal import new_table, one_of, print_table, say
from trimtab.core import (
    BadInputError,
    NotFoundError,
    RealClock,
    format_duration,
    format_money,
    to_plain,
)
from trimtab.schedule import read_job_documents
from trimtab.serve import Service
from trimtab.store import JobRecord, JobState


def submit(
    file: Annotated[Path, typer.Argument(help="A YAML file with one or more jobs.", show_default=False)],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Instead of what the file says: resources.gpus=4."),
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="Check against this engine's nodes, not those the scheduler last saw.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the jobs, and submit none.")] = False,
    as_json: Json = False,
) -> None:
    """Submit the jobs of a file; `trimtab up` runs them.

    A job needs a `name` and a `command`. It may say how many accelerators of which kinds it wants
    (`resources: {gpus: 2..16, accelerators: [a100, t4]}`), its tenant, priority, deadline, how it saves its
    work, and more: see docs/schedule.md. What no node could ever run is refused, with what would be possible.
    """
    jobs = read_job_documents(file, settings or ())
    with place() as at:
        scheduler = at.fleet.now()
        if engine and not isinstance(at, Service):
            raise BadInputError("--engine is this machine's to ask; a server knows its own nodes")
        groups = _groups(engine) if engine else None
        records = at.jobs.submit(jobs, dry_run=dry_run, fleet=groups)
    if as_json:
        print(json.dumps([to_plain(record) for record in records]))
        return
    for record in records:
        if dry_run:
            typer.echo(f"{record.name} could be submitted")
        else:
            typer.echo(f"job {record.id} ({record.name}) waits; trimtab queue {record.id}")
    if not scheduler.there and not dry_run:
        typer.echo("no scheduler is running on this store; start one with trimtab up", err=True)


_LOOK = 0.3  # s between looks at a log that is followed
_MOST = 10_000  # jobs of the queue

Id = Annotated[str, typer.Argument(help="A job's id, or the start of it.", show_default=False)]


def _groups(url: str) -> Any:
    """Groups of nodes of the engine at a URL."""
    from trimtab.engines import engine
    from trimtab.schedule import Fleet

    return Fleet.of(engine(url).nodes()).groups


def jobs(
    tenant: Annotated[str | None, typer.Option(help="Only of this tenant.")] = None,
    state: Annotated[
        list[str] | None, typer.Option(help="Only in this state; may come several times.")
    ] = None,
    limit: Annotated[int, typer.Option(help="How many to list, newest first.", min=1)] = 50,
    as_json: Json = False,
) -> None:
    """List jobs, newest first: where they stand, what they have used, and why.

    A job waits, is starting, running or stopping; and then has ended, failed, been cancelled or refused.
    """
    known = tuple(each.value for each in JobState)
    states = [JobState(one_of("--state", each, known)) for each in state or ()]
    with place() as at:
        found = at.jobs.page(limit, state=states, tenant=tenant).items
    if as_json:
        print(json.dumps([to_plain(record) for record in found]))
        return
    _print_jobs(found, RealClock().now())


def cancel(
    ids: Annotated[
        list[str], typer.Argument(metavar="ID...", help="Jobs' ids, or starts of them.", show_default=False)
    ],
) -> None:
    """End jobs: those that wait at once, those that run as soon as the scheduler hears of it."""
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
    id: Annotated[str | None, typer.Argument(help="A job's id, or the start of it.")] = None,
    as_json: Json = False,
) -> None:
    """Why does my job wait, and when will it start?

    The reason is the policy's own. The start is what would happen if nobody else came and everybody who runs
    took as long as is believed, with a range; policies may let others pass.
    """
    clock = RealClock()
    with place() as at:
        waiting = (JobState.WAITING,)
        shown = [at.jobs.get(id)] if id is not None else [*reversed(at.jobs.page(_MOST, state=waiting).items)]
        scheduler = at.fleet.now()
    if as_json:
        print(json.dumps([to_plain(record) for record in shown]))
        return
    if id is not None:
        say(_fate(shown[0], clock.now()))
    elif shown:
        _print_queue(shown, clock.now())
    else:
        say("no job waits")
    if not scheduler.there:
        typer.echo("no scheduler is running on this store; start one with trimtab up", err=True)


def logs(
    id: Id,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on until the job is over; Ctrl-C to end.")
    ] = False,
    engine: Annotated[
        str | None, typer.Option(help="Where it runs, if not where the scheduler last ran.")
    ] = None,
) -> None:
    """Print what a job's present or last run has written."""
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


def _print_jobs(found: tuple[JobRecord, ...], now: float) -> None:
    if not found:
        say("no jobs; trimtab submit FILE hands one in")
        return
    table = new_table("<id", "name", "tenant", "<state", "<age", "<ran", "workers", "done", "spent", "why")
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
    print_table(table)


def _print_queue(waiting: list[JobRecord], now: float) -> None:
    table = new_table("<id", "name", "tenant", "waits for", "starts in", "why")
    for record in waiting:
        table.add_row(
            record.id,
            escape(record.name),
            escape(record.tenant),
            format_duration(max(0.0, now - record.created)),
            _when(record, now),
            escape(record.outlook.why or record.run.reason),
        )
    print_table(table)


def _when(record: JobRecord, now: float) -> str:
    """In how long it starts, with the range."""
    outlook = record.outlook
    if outlook.start is None:
        return "not known"

    def shown(moment: float | None) -> str:
        return "not known" if moment is None else format_duration(max(0.0, moment - now))

    return f"{shown(outlook.start)} ({shown(outlook.low)} to {shown(outlook.high)})"


def _fate(record: JobRecord, now: float) -> str:
    """One job in a sentence or two."""
    named = f"job {record.id} ({record.name})"
    if record.state is not JobState.WAITING:
        why = f": {record.run.reason}" if record.run.reason else ""
        return f"{named} does not wait, it is {record.state.value}{why}"
    why = record.outlook.why or record.run.reason or "the scheduler has not looked at it yet"
    return f"{named} waits: {why}\nit is believed to start in: {_when(record, now)}"
