"""`trimtab up` runs the system; `trimtab token` makes a join token for its controller of pools."""

import threading
from contextlib import ExitStack
from pathlib import Path

import typer

from trimtab.cli.terminal import EndAfter, say, until_stopped, with_settings
from trimtab.core import MissingDependencyError
from trimtab.serve import (
    LoadedSettings,
    Settings,
    log_to_stderr,
    require_installed,
    scheduler_process,
    serving,
)
from trimtab.store import Store, open_store, wait_for_server

_CHECK_SECONDS = 10.0


@with_settings
def up(
    loaded: LoadedSettings,
    no_api: bool = typer.Option(False, "--no-api", help="Run the scheduler without API and dashboard."),
    new_store: bool = typer.Option(
        False,
        "--new-store",
        help="Begin with an empty store where the one served before is missing or empty.",
    ),
    seconds: EndAfter = None,
) -> None:
    """Run the system: the scheduler, its API and dashboard, and with `--pools` the controller of pools.

    Jobs that `trimtab submit` submits run on the engine, when and where the policy decides. Ctrl-C ends the
    scheduler and leaves jobs running; started again, it continues with them. It may be killed at any moment:
    no job is lost, and none runs twice. With PostgreSQL, a second `trimtab up` stands by and takes over.

    A damaged store is refused, and so is one that is missing or empty where one was served before. A
    PostgreSQL that is starting or recovering is waited for.

    The API and the dashboard are at `--listen`; see docs/reference/api.md. Until `trimtab access make` has
    made a token, requests from this machine need none and others are refused; then every request needs one.

    With `--pools`, it is also the controller of pools whose containers run on many nodes. It prints a token.
    On each node, `trimtab agent join TOKEN` gets a certificate, and `trimtab agent` then sizes containers as
    the controller decides. A token is valid for one node and one hour; `trimtab token` prints another. If the
    controller does not answer for two seconds, nodes restore safe limits. `trimtab top` shows all nodes.
    Agents on other machines need `--agents-listen 0.0.0.0:7433`, and `--agents-join NAME:7434` if they reach
    this machine by another name than its own.
    """
    settings = loaded.settings
    with ExitStack() as stack:
        url = settings.store or None
        wait_for_server(url, lambda sentence: say(sentence, error=True))
        store = stack.enter_context(open_store(url, new_store))
        if not store.find_damage(_CHECK_SECONDS):
            say(
                f"the store is large, and {_CHECK_SECONDS:.0f} s of checking found no damage; "
                f"trimtab store check does all of it",
                error=True,
            )
        store.mark_served(new_store)
        stack.enter_context(log_to_stderr(settings))
        scheduler = stack.enter_context(scheduler_process(settings))
        if not no_api:
            try:
                require_installed(settings)
            except MissingDependencyError as error:
                typer.echo(f"no API: {error}", err=True)
            else:
                address = stack.enter_context(serving(store, settings, scheduler))
                pages = " and dashboard" if settings.dashboard else ""
                typer.echo(f"API{pages} at {address}", err=True)
        scheduler.wait()
        if settings.pools:
            _control(stack, store, settings, seconds)
        else:
            end = threading.Event()
            until_stopped(end.set)
            say(
                "scheduling; trimtab submit FILE submits a job; Ctrl-C ends this and leaves jobs running",
                error=True,
            )
            end.wait(seconds)
    if settings.pools:
        say("the controller has ended; every node goes back to safe limits, and jobs run on", error=True)
    else:
        say("the scheduler has ended; its jobs run on, and it takes them up when it starts again", error=True)


def _control(stack: ExitStack, store: Store, settings: Settings, seconds: float | None) -> None:
    """Run the controller of pools until a signal or the end of `seconds`."""
    from trimtab.resize import GrantJournal, RunningController, metrics_server, new_token, read_pools, serve

    pools = read_pools(Path(settings.pools))
    journal = stack.enter_context(GrantJournal(store.ledger.record))

    def ready(serving: RunningController) -> None:
        until_stopped(serving.stop)
        if settings.agents_metrics:
            port = stack.enter_context(metrics_server(settings.agents_metrics, serving.status))
            typer.echo(f"metrics at port {port}, /metrics", err=True)
        say(f"sizing {', '.join(pool.name for pool in pools)} for agents at port {serving.port}", error=True)
        say("on a node: trimtab agent join TOKEN, then trimtab agent; Ctrl-C to end. The token:", error=True)
        typer.echo(new_token())

    listen, join = settings.agents_listen, settings.agents_join or None
    serve(pools, ready, listen=listen, join=join, seconds=seconds, notice=journal)


def token(minutes: float = typer.Option(60.0, min=1, help="Minutes for which the token is valid.")) -> None:
    """Print a token with which one node can join the controller on this machine.

    It is one word for `trimtab agent join`, good for one use. It holds the controller's address and
    fingerprint, and a secret: give it only to people who may add a node.
    """
    from trimtab.resize import new_token

    typer.echo(new_token(lifetime=60.0 * minutes))
