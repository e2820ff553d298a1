"""`trimtab up` runs the controller of many nodes; `trimtab token` lets one more of them join."""

from pathlib import Path
from typing import Annotated

import typer


def up(
    pools: Annotated[Path, typer.Option("--pools", help="A YAML file of pools.")],
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where nodes' agents find it.")
    ] = "127.0.0.1:7433",
    join: Annotated[
        str | None,
        typer.Option("--join", metavar="HOST:PORT", help="Where nodes join; by default the next port."),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option("--metrics", metavar="HOST:PORT", help="Serve /metrics for Prometheus there."),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0.1, help="End after so long; otherwise at Ctrl-C.")
    ] = None,
) -> None:
    """Run the controller: pools whose containers may run on many nodes share their caps across all of them.

    It prints a token. On a node, `trimtab agent join TOKEN` gets a certificate for it, and `trimtab agent`
    then sizes its containers as this controller decides. A token is for one node and one hour;
    `trimtab token` prints another. When the controller has been silent for two seconds, every node goes
    back to safe limits; when it starts again before that, they go on. `trimtab top` shows all nodes here.

    To be reached from other machines it must listen there: `--listen 0.0.0.0:7433`. If they know this
    machine by another name than its own, give that with `--join NAME:7434`.
    """
    import contextlib
    import signal

    from rich.console import Console

    from trimtab.resize import Journal, metrics_server, read_pools
    from trimtab.resize.link import Serving, new_token, serve
    from trimtab.store import open_store

    console = Console(stderr=True, highlight=False)
    wanted = read_pools(pools)
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(open_store())
        journal = stack.enter_context(Journal(store.ledger.record))

        def ready(serving: Serving) -> None:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda number, frame: serving.stop())
            if metrics:
                port = stack.enter_context(metrics_server(metrics, serving.status))
                console.print(f"metrics at port {port}, /metrics")
            console.print(
                f"sizing {', '.join(pool.name for pool in wanted)} for agents at port {serving.port}"
            )
            console.print(
                "on a node: trimtab agent join TOKEN, then trimtab agent; Ctrl-C to end. The token:"
            )
            typer.echo(new_token())

        serve(wanted, ready, listen=listen, join=join, seconds=seconds, notice=journal)
    console.print("the controller has ended; every node goes back to safe limits")


def token(
    minutes: Annotated[float, typer.Option("--minutes", min=1, help="How long it can be used.")] = 60.0,
) -> None:
    """Print a token that lets one more node join the controller which runs here.

    It is one word for `trimtab agent join`. It can be used once, and holds the address, the fingerprint by
    which the node knows the controller, and a secret: give it only to who may add a node.
    """
    from trimtab.resize.link import new_token

    typer.echo(new_token(lifetime=60.0 * minutes))
