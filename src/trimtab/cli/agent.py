"""`trimtab agent` resizes this node's containers, alone or under a controller; `trimtab top` shows them."""

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from trimtab import resize
from trimtab.cli.place import is_here, place
from trimtab.cli.terminal import EndAfter, command_group, print_table, say, until_stopped, warn
from trimtab.core import TrimtabError, format_bytes, home
from trimtab.kernel import RestoredLimits, journal_folder, journals, mounted, restore_orphans

_REFRESH = 0.5  # s
_WATCH = 0.5  # s between two looks for agents that were killed

agent_app = command_group(no_args_is_help=False)


@agent_app.callback(invoke_without_command=True)
def agent(
    context: typer.Context,
    pools: Path | None = typer.Option(None, help="A YAML file of pools, if this node has no controller."),
    seconds: EndAfter = None,
    metrics: str | None = typer.Option(
        None, metavar="HOST:PORT", help="Address at which to serve /metrics for Prometheus."
    ),
    kubernetes: bool = typer.Option(
        False, "--kubernetes", help="Select containers by pod, as the Kubernetes API server lists them."
    ),
) -> None:
    """Resize the containers of this node every 100 ms to the CPU and memory they use, within pool caps.

    With `--pools`, the agent decides for this node. Without, the controller decides for pools that span
    nodes; the node must have joined it with `trimtab agent join TOKEN`. A pool is a set of containers that
    share a cap:

        pools:
          - name: shop
            cpu: 2
            memory: 4GiB
            select:
              - cgroup: /shop/*
              - {label: app=shop, namespace: web}

    `cgroup` is a shell pattern for the path of a control group; `label` and `namespace` are those that runc
    and containerd keep, or with `--kubernetes` those of the pod. A container that runs out of memory is
    paused and gets more from its pool, or from other containers' unused memory; the kernel kills it only if
    there is none. When the agent ends or dies, all containers get their former limits back; `trimtab agent
    restore` does that where its guards were killed too. Needs root. `trimtab top` shows limits and use.
    """
    if context.invoked_subcommand is not None:
        return
    with contextlib.ExitStack() as stack:
        running: resize.NodeAgent | resize.RemoteAgent
        if pools:
            running = _alone(pools, kubernetes, stack)
        else:
            member = resize.Membership.read(home() / "agent")
            say(f"sizing as the controller at {member.address} decides; Ctrl-C to end", error=True)
            running = resize.RemoteAgent(member, finder=resize.kubernetes_find if kubernetes else None)
        _run(running, seconds, metrics, stack)
    say("all containers have their former limits again", error=True)


@agent_app.command()
def join(
    token: str = typer.Argument(
        ..., metavar="TOKEN", help="The token that `trimtab up --pools` or `trimtab token` prints."
    ),
    name: str | None = typer.Option(
        None, metavar="NAME", help="This node's name at the controller; default: the host's name."
    ),
) -> None:
    """Join a controller: get a certificate with which node and controller authenticate each other.

    The token is good for one node and for an hour; `trimtab token`, beside the controller, prints another.
    The key is made here and stays here. Joining again replaces the former certificate.
    """
    import socket

    from trimtab.resize import JoinToken, join as join_controller

    member = join_controller(JoinToken.parse(token), name or socket.gethostname().lower())
    member.write(home() / "agent")
    say(f"this node is {member.node} of the controller at {member.address}; run trimtab agent")


@agent_app.command()
def restore(
    stop: bool = typer.Option(False, "--stop", help="End agents that still run, then restore their limits."),
    watch: bool = typer.Option(
        False, "--watch", help="Stay, and restore limits whenever an agent is killed; until Ctrl-C."
    ),
) -> None:
    """Restore the limits that containers had before an agent changed them.

    An agent restores limits when it ends, and two small processes restore them when it is killed. This
    command serves where all of them were killed at once, for example with their container: it reads the
    limits from the agent's journal in Trimtab's home, restores them and turns the OOM killer on again. A
    group that was made after the journal was written is left alone. The next agent does the same when it
    starts. Needs root.
    """
    folder = journal_folder()
    if watch:
        ended, logged = threading.Event(), set[str]()
        until_stopped(ended.set)
        while not ended.wait(_WATCH):
            _print_restored(restore_orphans(folder), logged)
        return
    failures = _print_restored(restore_orphans(folder, stop_owners=stop), set())
    if failures:
        raise TrimtabError(f"former limits of {failures} groups are not restored")
    running = [owner.pid for _, owner in journals(folder) if not owner.is_gone()]
    if running and not stop:
        raise TrimtabError(f"the agent with process id {running[0]} still runs; end it, or add --stop")


def _print_restored(restored: RestoredLimits, logged: set[str]) -> int:
    """Print which groups have their limits again, and failures that are not in `logged`; counts failures."""
    for path in restored.paths:
        say(f"{path} has its former limits again")
    for path, reason in restored.failures.items():
        if path not in logged:
            logged.add(path)
            warn(f"{path}: {reason}")
    return len(restored.failures)


def _alone(path: Path, kubernetes: bool, stack: contextlib.ExitStack) -> resize.NodeAgent:
    """An agent that decides for this node's pools."""
    from trimtab.store import open_store

    pools = resize.read_pools(path)
    node_cpus, node_memory = os.cpu_count() or 1, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for pool in pools:
        if pool.cpu > node_cpus or pool.memory > node_memory:
            say(
                f"note: the pool {pool.name} is larger than this node ({node_cpus} CPUs,"
                f" {format_bytes(node_memory)}), which is all that its containers can get here",
                error=True,
            )
    hierarchy, find = mounted(), None
    if kubernetes and hierarchy is not None:
        find = stack.enter_context(resize.kubernetes_find(hierarchy, pools))
    store = stack.enter_context(open_store())
    journal = stack.enter_context(resize.GrantJournal(store.ledger.record))
    say(f"sizing {', '.join(pool.name for pool in pools)}; Ctrl-C to end", error=True)
    return resize.NodeAgent(pools, hierarchy, find, notice=journal)


def _run(
    running: resize.NodeAgent | resize.RemoteAgent,
    seconds: float | None,
    metrics: str | None,
    stack: contextlib.ExitStack,
) -> None:
    """Run an agent, and write its status every second."""
    if metrics:
        port = stack.enter_context(
            resize.metrics_server(metrics, lambda: resize.status_of(running, time.time()))
        )
        say(f"metrics at port {port}, /metrics", error=True)
    until_stopped(running.stop)
    ended = threading.Event()

    def report() -> None:
        while not ended.wait(1.0):
            with contextlib.suppress(TrimtabError, OSError):  # a full disk: try again in a second
                resize.write_status(resize.status_of(running, time.time()))

    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    try:
        running.run(seconds)
    finally:
        ended.set()
        reporter.join()


def top(once: bool = typer.Option(False, "--once", help="Print the table once and end.")) -> None:
    """Show limit, use and slack of the containers of this node's agent, or of the controller, live.

    **throttles** counts periods in which the CPU limit held a container back, **traps** how often it ran out
    of memory and got more, **kills** how often no memory was left to give.
    """

    def look() -> Any:
        if is_here():
            return _table(resize.read_status(time.time()))
        with place() as at:
            return _table(at.pools.status())

    if once:
        print_table(look())
        return
    with Live(look(), console=Console(highlight=False), screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(_REFRESH)
            live.update(look(), refresh=True)


def _table(status: Any) -> Any:
    caps = []
    for name, (cpu, memory) in status.caps.items():
        cpus, bytes_given = status.given[name]
        used = f"{cpus:.2f} of {cpu:g} CPUs, {format_bytes(bytes_given)} of {format_bytes(memory)}"
        caps.append(f"{escape(name)}: {used}")
    if status.hidden:
        caps.append(f"{status.hidden} more containers use less")
    caps += [f"{escape(path)} is not managed: {escape(why)}" for path, why in status.unmanaged.items()]
    table = Table(caption="; ".join(caps), box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("container", overflow="fold", ratio=1, min_width=10)
    table.add_column("pool")
    for name in ("CPUs", "used", "slack", "memory", "used", "throttles", "traps", "kills"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in sorted(status.rows, key=lambda row: -row.used_cpus):
        table.add_row(
            *(escape(row.path), escape(row.pool), f"{row.cpus:.2f}", f"{row.used_cpus:.2f}"),
            f"{max(0.0, row.cpus - row.used_cpus):.2f}",
            *(format_bytes(row.memory), format_bytes(row.used_memory)),
            *(str(count) for count in (row.throttles, row.traps, row.refusals)),
        )
    return table
