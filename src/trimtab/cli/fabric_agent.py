"""The agent of a host's fabric: what `trimtab fabric up` stays as."""

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from trimtab.fabric import Host


def run_agent(host: "Host", seconds: float | None) -> None:
    """Start FRR and keep traffic on paths that work, until Ctrl-C, SIGTERM or the end of that time."""
    import signal
    import threading
    from dataclasses import asdict

    from trimtab.fabric import Failover, agent_of
    from trimtab.store import open_store

    with open_store() as store:

        def tell(failover: Failover) -> None:
            store.events.append("failover", host.name, asdict(failover), failover.time)

        with agent_of(host, tell) as agent:
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
