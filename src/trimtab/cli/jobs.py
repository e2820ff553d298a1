"""`trimtab submit`, `jobs`, `queue`, `logs` and `cancel`."""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import typer

from trimtab.cli.place import place
from trimtab.cli.terminal import Json, one_of, print_rows, say, warn
from trimtab.core import BadInputError, NotFoundError, format_bytes, format_duration, format_money, to_plain
from trimtab.schedule import read_job_documents
from trimtab.serve import Service
from trimtab.store import JobRecord, JobState

_LOOK = 0.3  # s between looks at a log that is followed
_MOST = 10_000  # jobs of the queue
_NO_SCHEDULER = "no scheduler is running on this store; start one with trimtab up"


def submit(
    file: Path = typer.Argument(..., help="A YAML file with one or more jobs."),
    settings: list[str] | None = typer.Option(
        None, "--set", metavar="KEY=VALUE", help="Replace a value of the file: resources.gpus=4."
    ),
    engine: str | None = typer.Option(
        None,
        metavar="URL",
        help="Check against this engine's nodes, not those of the scheduler's last round.",
    ),
    dry_run: bool = typer.Option(False, "--dry-run", help="Check the jobs, and submit none."),
    as_json: Json = False,
) -> None:
    """Submit the jobs of a file; `trimtab up` runs them.

    A job needs a `name` and a `command`. It may name how many accelerators of which kinds it needs
    (`resources: {gpus: 2..16, accelerators: [a100, t4]}`), its tenant, priority, deadline, how it saves
    checkpoints, and more: see docs/reference/job-files.md. A job that no node could ever run is refused, with
    the largest request that would be possible.
    """
    jobs = read_job_documents(file, settings or ())
    with place() as at:
        scheduler, groups = at.fleet.now(), None
        if engine and not isinstance(at, Service):
            raise BadInputError(
                "--engine is for this machine; leave it out with a server, which has its own engine"
            )
        if engine:
            from trimtab.engines import engine as open_engine
            from trimtab.schedule import Fleet

            groups = Fleet.of(open_engine(engine).nodes()).groups
        if isinstance(at, Service) and (engine or scheduler.engine or "local://").startswith("local:"):
            for job in jobs:
                if not Path(job["folder"]).is_dir():
                    raise BadInputError(
                        f"{file}: folder of {job['name']}: there is no folder {job['folder']}; create it"
                    )
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
        typer.echo(_NO_SCHEDULER, err=True)


def jobs(
    id: str = typer.Argument("ls", metavar="ID|ls", help="A job's id or the start of it; `ls` lists all."),
    tenant: str | None = typer.Option(None, metavar="NAME", help="Only jobs of this tenant."),
    state: list[str] | None = typer.Option(None, metavar="STATE", help="Only jobs in this state (repeat)."),
    limit: int = typer.Option(50, help="How many to list, newest first.", min=1),
    as_json: Json = False,
) -> None:
    """List jobs, newest first: state, run time, cost, and the reason for the state.

    States are waiting, starting, running, stopping; then ended, failed, cancelled or refused.
    """
    states = [JobState(one_of("--state", name, [item.value for item in JobState])) for name in state or ()]
    with place() as at:
        listed = at.jobs.page(limit, state=states, tenant=tenant).items if id == "ls" else (at.jobs.get(id),)
    if as_json:
        print(json.dumps([to_plain(record) for record in listed]))
    elif listed:
        _print_jobs(listed)
    else:
        say("no job matches" if tenant or states else "no jobs; trimtab submit FILE submits one")


def _print_jobs(records: Sequence[JobRecord]) -> None:
    now, rows = time.time(), []
    for record in records:
        run = record.run
        ran = run.seconds + (max(0.0, now - run.since) if run.since is not None else 0.0)
        on_nodes = record.state.value in ("starting", "running", "stopping")
        rows.append(
            (
                *(record.id, record.name, record.tenant, record.state.value),
                format_duration(max(0.0, now - record.created)),
                format_duration(ran) if ran else "",
                " ".join(f"{part.workers}@{part.node}" for part in run.parts) if on_nodes else "",
                f"{record.done:.4g}" if record.done else "",
                format_money(run.spent) if run.spent else "",
            )
        )
    heads = ("id", "name", "tenant", "state", ">age", ">ran", "workers", ">done", ">spent")
    reasons = [record.outlook.why or record.run.reason for record in records]
    print_rows(heads, rows, optional=(">done", "workers", "tenant", ">age", ">spent", ">ran"), notes=reasons)


def cancel(
    ids: list[str] = typer.Argument(..., metavar="ID...", help="Jobs' ids, or starts of them."),
) -> None:
    """End jobs: waiting ones at once, running ones in the scheduler's next round."""
    with place() as at:
        for id in ids:
            record = at.jobs.cancel(id)
            job = f"job {record.id} ({record.name})"
            if record.state is JobState.CANCELLED:
                typer.echo(f"{job} is cancelled")
            elif at.fleet.now().there:
                typer.echo(f"{job} runs; the scheduler stops it")
            else:
                typer.echo(f"{job} runs; it is stopped when trimtab up runs again")


def queue(
    id: str | None = typer.Argument(None, help="A job's id, or the start of it."), as_json: Json = False
) -> None:
    """Why does my job wait, and when will it start?

    Prints the policy's reason, and the predicted start with its range. The prediction assumes that no job is
    submitted after this one and that running jobs take as long as estimated; policies may let other jobs
    pass.
    """
    with place() as at:
        records = (
            [at.jobs.get(id)]
            if id is not None
            else [*reversed(at.jobs.page(_MOST, state=(JobState.WAITING,)).items)]
        )
        scheduler = at.fleet.now()
    if as_json:
        print(json.dumps([to_plain(record) for record in records]))
        return
    now = time.time()
    if id is not None:
        _print_one(records[0], now)
    elif records:
        rows = [
            (
                *(record.id, record.name, record.tenant),
                format_duration(max(0.0, now - record.created)),
                _start(record, now),
            )
            for record in records
        ]
        reasons = [record.outlook.why or record.run.reason for record in records]
        heads = ("id", "name", "tenant", ">waits for", "starts in")
        print_rows(heads, rows, optional=("tenant", ">waits for"), notes=reasons)
    else:
        say("no job waits")
    if not scheduler.there:
        typer.echo(_NO_SCHEDULER, err=True)


def _start(record: JobRecord, now: float) -> str:
    """Time until the predicted start, with the range."""
    outlook = record.outlook
    start, low, high = (
        "not known" if moment is None else format_duration(max(0.0, moment - now))
        for moment in (outlook.start, outlook.low, outlook.high)
    )
    return start if outlook.start is None else f"{start} ({low} to {high})"


def _print_one(record: JobRecord, now: float) -> None:
    job = f"job {record.id} ({record.name})"
    if record.state is not JobState.WAITING:
        reason = f": {record.run.reason}" if record.run.reason else ""
        say(f"{job} does not wait, it is {record.state.value}{reason}")
        return
    say(f"{job} waits: {record.outlook.why or record.run.reason or 'the scheduler has not looked at it yet'}")
    say(
        f"predicted start: in {_start(record, now)}" if record.outlook.start else "predicted start: not known"
    )


def logs(
    id: str = typer.Argument(..., help="A job's id, or the start of it."),
    follow: bool = typer.Option(
        False, "-f", "--follow", help="Print new output until the job ends or Ctrl-C."
    ),
    engine: str | None = typer.Option(
        None, metavar="URL", help="The engine it runs on, if not the scheduler's last one."
    ),
) -> None:
    """Print the output of a job's current or last run."""
    with place() as at:
        record = at.jobs.get(id)
        if not record.run.run_id and not follow:
            raise NotFoundError(f"job {record.id} ({record.name}) has no output yet: {record.state.value}")
        if engine is not None and not isinstance(at, Service):
            raise BadInputError(
                "--engine is for this machine; leave it out with a server, which has its own engine"
            )
        shown, run = 0, ""
        while True:
            piece = at.jobs.log(record.id, shown, engine=engine)
            if piece.run != run:
                shown, run, again = 0, piece.run, shown > 0
                if again:
                    continue
            if piece.offset > shown:
                warn(f"{format_bytes(piece.offset - shown)} of output before this were dropped")
            sys.stdout.buffer.write(piece.data)
            sys.stdout.buffer.flush()
            shown = piece.next
            if piece.data:
                continue
            if piece.over or not follow:
                return
            time.sleep(_LOOK)
