"""`trimtab submit`: hand in jobs."""

import json
from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.place import place


def submit(
    file: Annotated[Path, typer.Argument(help="A YAML file with one or more jobs.", show_default=False)],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Instead of what the file says: resources.gpus=4."),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option("--engine", help="Check against this engine's nodes, not those the scheduler last saw."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the jobs, and submit none.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the jobs as JSON.")] = False,
) -> None:
    """Submit the jobs of a file; `trimtab up` runs them.

    A job needs a `name` and a `command`. It may say how many accelerators of which kinds it wants
    (`resources: {gpus: 2..16, accelerators: [a100, t4]}`), its tenant, priority, deadline, how it saves its
    work, and more: see docs/schedule.md. What no node could ever run is refused, with what would be possible.
    """
    from trimtab.core import BadInputError, to_plain
    from trimtab.engines import engine as open_engine
    from trimtab.schedule import Fleet, read_job_documents
    from trimtab.serve import Service

    jobs = read_job_documents(file, settings or ())
    with place() as at:
        scheduler = at.fleet.now()
        if engine and not isinstance(at, Service):
            raise BadInputError("--engine is this machine's to ask; a server knows its own nodes")
        groups = Fleet.of(open_engine(engine).nodes()).groups if engine else None
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
