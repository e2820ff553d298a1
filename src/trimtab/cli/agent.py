"""`trimtab agent` sizes the containers of this node, alone or under a controller; `trimtab top` shows how."""

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from trimtab.cli.options import command_group
from trimtab.cli.place import is_here, place
from trimtab.cli.terminal import print_table, until_stopped
from trimtab.core import TrimtabError, format_bytes, home
from trimtab.kernel import mounted
from trimtab.resize import (
    GrantJournal,
    Membership,
    NodeAgent,
    RemoteAgent,
    kubernetes_find,
    metrics_server,
    read_pools,
    read_status,
    status_of,
    write_status,
)

_REFRESH = 0.5  # s


agent_app = command_group(no_args_is_help=False)


@agent_app.callback(invoke_without_command=True)
def agent(
    context: typer.Context,
    pools: Annotated[Path | None, typer.Option(help="A YAML file of pools, to size this node alone.")] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.1, help="End after so long; otherwise at Ctrl-C.")
    ] = None,
    metrics: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Serve /metrics for Prometheus there.")
    ] = None,
    kubernetes: Annotated[
        bool, typer.Option("--kubernetes", help="Ask the API server about the pods on this node.")
    ] = False,
) -> None:
    """Give the containers of this node the CPU and memory they use, every 100 ms, within their pools' caps.

    Without `--pools` the controller decides that this node has joined with `trimtab agent join TOKEN`, for
    pools that span nodes; with it, this node alone. A pool is a set of containers that share a cap:

        pools:
          - name: shop
            cpu: 2
            memory: 4GiB
            select:
              - cgroup: /shop/*
              - {label: app=shop, namespace: web}

    `cgroup` is a shell pattern for the path of a control group; `label` and `namespace` are those that runc
    and containerd keep, or with `--kubernetes` those of the pod. A container that runs out of memory stands
    still until it gets more from its pool, then from others' unused memory; only when there is none does the
    kernel kill. When the agent ends, or dies, everyone has its former limits again. Needs root.
    `trimtab top` shows what happens.
    """
    if context.invoked_subcommand is not None:
        return
    with contextlib.ExitStack() as stack:
        running = _alone(pools, kubernetes, stack) if pools else _under_controller(kubernetes)
        _run(running, seconds, metrics, stack)
    typer.echo("all containers have their former limits again", err=True)


@agent_app.command()
def join(
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="The word that trimtab up prints.")],
    name: Annotated[
        str | None, typer.Option(help="What the controller calls this node; else the host's name.")
    ] = None,
) -> None:
    """Join a controller: get a certificate for this node, by which the two know each other from then on.

    The token is good for one node and for an hour; `trimtab token`, beside the controller, prints another.
    The key is made here and stays here. Joining again replaces what was there.
    """
    import socket

    from trimtab.core import home
    from trimtab.resize import JoinToken, join as join_controller

    member = join_controller(JoinToken.parse(token), name or socket.gethostname().lower())
    member.write(home() / "agent")
    typer.echo(f"this node is {member.node} of the controller at {member.address}; run trimtab agent")


def _alone(pools: Path, kubernetes: bool, stack: Any) -> Any:
    """An agent that decides for itself."""
    from trimtab.store import open_store

    wanted = read_pools(pools)
    node_cpus, node_memory = os.cpu_count() or 1, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for pool in wanted:
        if pool.cpu > node_cpus or pool.memory > node_memory:
            typer.echo(
                f"note: the pool {pool.name} is larger than this node ({node_cpus} CPUs, "
                f"{format_bytes(node_memory)}), which is all that its containers can get here",
                err=True,
            )
    hierarchy, find = mounted(), None
    if kubernetes and hierarchy is not None:
        find = stack.enter_context(kubernetes_find(hierarchy, wanted))
    store = stack.enter_context(open_store())
    journal = stack.enter_context(GrantJournal(store.ledger.record))
    typer.echo(f"sizing {', '.join(pool.name for pool in wanted)}; Ctrl-C to end", err=True)
    return NodeAgent(wanted, hierarchy, find, notice=journal)


def _under_controller(kubernetes: bool) -> Any:
    """An agent that does as the controller says which this node has joined."""
    member = Membership.read(home() / "agent")
    typer.echo(f"sizing as the controller at {member.address} says; Ctrl-C to end", err=True)
    return RemoteAgent(member, finder=kubernetes_find if kubernetes else None)


def _run(running: Any, seconds: float | None, metrics: str | None, stack: Any) -> None:
    """Run it, and write down every second how it does."""
    if metrics:
        port = stack.enter_context(metrics_server(metrics, lambda: status_of(running, time.time())))
        typer.echo(f"metrics at port {port}, /metrics", err=True)
    until_stopped(running.stop)
    ended = threading.Event()

    def report() -> None:
        while not ended.wait(1.0):
            with contextlib.suppress(TrimtabError, OSError):  # a full disk; the next second is another
                write_status(status_of(running, time.time()))

    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    try:
        running.run(seconds)
    finally:
        ended.set()
        reporter.join()


def top(
    once: Annotated[bool, typer.Option("--once", help="Print the table once and end.")] = False,
) -> None:
    """What the agent of this node, or the controller, is doing: limit, use and slack of containers, live.

    **throttles** counts periods in which the CPU limit held a container back, **traps** how often it ran out
    of memory and got more, **kills** how often there was nothing to give.
    """

    def look() -> Any:
        if is_here():
            return _table(read_status(time.time()))
        with place() as at:
            return _table(at.pools.status())

    console = Console(highlight=False)
    if once:
        print_table(look())
        return
    with Live(look(), console=console, screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(_REFRESH)
            live.update(look(), refresh=True)


def _table(status: Any) -> Any:
    caps = []
    for name, (cpu, memory) in status.caps.items():
        cpus, given = status.given[name]
        caps.append(f"{escape(name)}: {cpus:.2f} of {cpu:g} CPUs, {_of(given, memory)}")
    if status.hidden:
        caps.append(f"{status.hidden} more containers use less")
    table = Table(caption="; ".join(caps), box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("container", overflow="fold", ratio=1, min_width=10)
    table.add_column("pool")
    for name in ("CPUs", "used", "slack", "memory", "used", "throttles", "traps", "kills"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in sorted(status.rows, key=lambda row: -row.used_cpus):
        table.add_row(
            escape(row.path),
            escape(row.pool),
            f"{row.cpus:.2f}",
            f"{row.used_cpus:.2f}",
            f"{max(0.0, row.cpus - row.used_cpus):.2f}",
            format_bytes(row.memory),
            format_bytes(row.used_memory),
            str(row.throttles),
            str(row.traps),
            str(row.refusals),
        )
    return table


def _of(part: float, whole: float) -> str:
    return f"{format_bytes(part)} of {format_bytes(whole)}"
