"""The agent of a host's fabric: what `trimtab fabric up` stays as."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from trimtab.fabric import Failover, Host
    from trimtab.store import Store


def run_agent(host: "Host", seconds: float | None) -> None:
    """Start FRR and keep traffic on paths that work, until Ctrl-C, SIGTERM or the end of that time."""
    import signal
    import threading

    from trimtab.fabric import agent_of
    from trimtab.store import open_store

    with open_store() as store, agent_of(host, failover_events(store, host.name)) as agent:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda number, frame: agent.stop())
        if seconds is not None:
            timer = threading.Timer(seconds, agent.stop)
            timer.daemon = True
            timer.start()
        typer.echo("traffic is kept on paths that work; Ctrl-C ends this and leaves the network as it is")
        agent.run()
    typer.echo(f"the network stays up, without fast failover; trimtab fabric down {host.name} removes it")


def failover_events(store: "Store", host: str) -> "Callable[[Failover], None]":
    """What writes each failover of a host down as an event."""
    from dataclasses import asdict

    def tell(failover: "Failover") -> None:
        store.events.append("failover", host, asdict(failover), failover.time)

    return tell
