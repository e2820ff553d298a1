"""`trimtab up` runs the system; `trimtab token` lets one more node join its controller of pools."""

import contextlib
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.options import EndAfter, with_settings
from trimtab.cli.terminal import until_stopped
from trimtab.core import MissingDependencyError
from trimtab.serve import (
    LoadedSettings,
    SchedulerProcess,
    Settings,
    log_to_stderr,
    require_installed,
    scheduler_process,
    serving,
)
from trimtab.store import Store, open_store


@with_settings
def up(
    loaded: LoadedSettings,
    no_api: Annotated[
        bool, typer.Option("--no-api", help="Schedule, and serve neither API nor dashboard.")
    ] = False,
    seconds: EndAfter = None,
) -> None:
    """Run the system: the scheduler, its API and dashboard, and with `--pools` the controller of pools.

    `trimtab submit` hands jobs in; they run on an engine when and where a policy decides. Ctrl-C ends this
    and leaves its jobs running; started again, it goes on from there. It may be killed at any moment: no job
    is lost, and none runs twice. Where the store is PostgreSQL, a second one waits and takes over.

    The API and the dashboard are at `--listen`; see docs/api.md. Until `trimtab access make` has made a
    token, only this machine is listened to, and whoever is on it may do everything; then all need one.

    With `--pools`, it is also the controller of pools whose containers may run on many nodes and share their
    caps across all of them. It prints a token. On a node, `trimtab agent join TOKEN` gets a certificate for
    it, and `trimtab agent` then sizes its containers as this controller decides. A token is for one node and
    one hour; `trimtab token` prints another. When the controller has been silent for two seconds, every node
    goes back to safe limits; when it starts again before that, they go on. `trimtab top` shows all nodes. To
    be reached from other machines it must listen there: `--agents-listen 0.0.0.0:7433`. If they know this
    machine by another name than its own, give that with `--agents-join NAME:7434`.
    """
    settings = loaded.settings
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(open_store(settings.store or None))
        stack.enter_context(log_to_stderr(settings))
        scheduler = stack.enter_context(scheduler_process(settings))
        if not no_api:
            _serve_api(stack, store, settings, scheduler)
        scheduler.wait()
        if not settings.pools:
            _wait(seconds)
        else:
            _control(stack, store, settings, seconds)
    if settings.pools:
        typer.echo("the controller has ended; every node goes back to safe limits, and jobs run on", err=True)
    else:
        typer.echo(
            "the scheduler has ended; its jobs run on, and it goes on with them when it is started again",
            err=True,
        )


def _serve_api(stack: ExitStack, store: Store, settings: Settings, scheduler: SchedulerProcess) -> None:
    """Serve it too; who has not installed what it needs has a scheduler alone."""
    try:
        require_installed(settings)
    except MissingDependencyError as error:
        typer.echo(f"no API: {error}", err=True)
        return
    address = stack.enter_context(serving(store, settings, scheduler))
    pages = " and dashboard" if settings.dashboard else ""
    typer.echo(f"API{pages} at {address}", err=True)


def _wait(seconds: float | None) -> None:
    """Until it is told to end, or the time is over."""
    end = threading.Event()
    until_stopped(end.set)
    typer.echo(
        "scheduling; trimtab submit FILE hands a job in; Ctrl-C ends this and leaves jobs running", err=True
    )
    end.wait(seconds)


def _control(stack: ExitStack, store: Store, settings: Settings, seconds: float | None) -> None:
    """The controller of pools, until it is told to end."""
    from trimtab.resize import GrantJournal, RunningController, metrics_server, new_token, read_pools, serve

    wanted = read_pools(Path(settings.pools))
    journal = stack.enter_context(GrantJournal(store.ledger.record))

    def ready(serving: RunningController) -> None:
        until_stopped(serving.stop)
        if settings.agents_metrics:
            port = stack.enter_context(metrics_server(settings.agents_metrics, serving.status))
            typer.echo(f"metrics at port {port}, /metrics", err=True)
        typer.echo(
            f"sizing {', '.join(pool.name for pool in wanted)} for agents at port {serving.port}", err=True
        )
        typer.echo(
            "on a node: trimtab agent join TOKEN, then trimtab agent; Ctrl-C to end. The token:", err=True
        )
        typer.echo(new_token())

    listen, join = settings.agents_listen, settings.agents_join or None
    serve(wanted, ready, listen=listen, join=join, seconds=seconds, notice=journal)


def token(
    minutes: Annotated[float, typer.Option(min=1, help="How long it can be used.")] = 60.0,
) -> None:
    """Print a token that lets one more node join the controller which runs here.

    It is one word for `trimtab agent join`. It can be used once, and holds the address, the fingerprint by
    which the node knows the controller, and a secret: give it only to who may add a node.
    """
    from trimtab.resize import new_token

    typer.echo(new_token(lifetime=60.0 * minutes))
