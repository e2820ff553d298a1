"""`trimtab agent` sizes the containers of this node; `trimtab top` shows how."""

from pathlib import Path
from typing import Annotated, Any

import typer

_REFRESH = 0.5  # s


def agent(
    pools: Annotated[Path, typer.Option("--pools", help="A YAML file of pools.")],
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0.1, help="End after so long; otherwise at Ctrl-C.")
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option("--metrics", metavar="HOST:PORT", help="Serve /metrics for Prometheus there."),
    ] = None,
) -> None:
    """Give the containers of this node the CPU and memory they use, every 100 ms, within their pools' caps.

    A pool is a set of containers that share a cap:

        pools:
          - name: shop
            cpu: 2
            memory: 4GiB
            select:
              - cgroup: /shop/*
              - {label: app=shop, namespace: web}

    `cgroup` is a shell pattern for the path of a control group; `label` and `namespace` are those that runc
    and containerd keep. A container that runs out of memory stands still until it gets more from its pool,
    then from others' unused memory; only when there is none does the kernel kill. When the agent ends, or
    dies, everyone has its former limits again. Needs root. `trimtab top` shows what happens.
    """
    import contextlib
    import os
    import signal
    import threading
    import time

    from rich.console import Console

    from trimtab.core import TrimtabError
    from trimtab.core.units import format_bytes
    from trimtab.resize import PERIOD, Agent, Journal, metrics_server, read_pools, status_of, write_status
    from trimtab.store import open_store

    console = Console(stderr=True, highlight=False)
    wanted = read_pools(pools)
    node_cpus, node_memory = os.cpu_count() or 1, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for pool in wanted:
        if pool.cpu > node_cpus or pool.memory > node_memory:
            console.print(
                f"note: the pool {pool.name} is larger than this node ({node_cpus} CPUs, "
                f"{format_bytes(node_memory)}), which is all that its containers can get here"
            )
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(open_store())
        running = Agent(wanted, notice=stack.enter_context(Journal(store.ledger.record)))
        if metrics:
            port = stack.enter_context(metrics_server(metrics, lambda: status_of(running, time.time())))
            console.print(f"metrics at port {port}, /metrics")
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, frame: running.stop())
        ended = threading.Event()

        def report() -> None:
            while not ended.wait(1.0):
                with contextlib.suppress(TrimtabError, OSError):  # a full disk; the next second is another
                    write_status(status_of(running, time.time()))

        reporter = threading.Thread(target=report, daemon=True)
        reporter.start()
        console.print(f"sizing {', '.join(pool.name for pool in wanted)} every {PERIOD:g} s; Ctrl-C to end")
        try:
            running.run(None if seconds is None else max(1, round(seconds / PERIOD)))
        finally:
            ended.set()
            reporter.join()
    console.print("all containers have their former limits again")


def top(
    once: Annotated[bool, typer.Option("--once", help="Print the table once and end.")] = False,
) -> None:
    """What the agent of this node is doing: limit, use and slack of every container, live.

    **throttles** counts periods in which the CPU limit held a container back, **traps** how often it ran out
    of memory and got more, **kills** how often there was nothing to give.
    """
    import time

    from rich.console import Console
    from rich.live import Live

    from trimtab.resize import read_status

    console = Console(highlight=False)
    if once:
        console.print(_table(read_status(time.time())))
        return
    with Live(_table(read_status(time.time())), console=console, screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(_REFRESH)
            live.update(_table(read_status(time.time())), refresh=True)


def _table(status: Any) -> Any:
    from rich.markup import escape
    from rich.table import Table

    from trimtab.core.units import format_bytes

    caps = []
    for name, (cpu, memory) in status.caps.items():
        mine = [row for row in status.rows if row.pool == name]
        given = f"{sum(row.cpus for row in mine):.2f} of {cpu:g} CPUs"
        caps.append(f"{escape(name)}: {given}, {_of(sum(row.memory for row in mine), memory)}")
    table = Table("container", "pool", caption="; ".join(caps))
    for name in ("CPUs", "used", "slack", "memory", "used", "throttles", "traps", "kills"):
        table.add_column(name, justify="right")
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
    from trimtab.core.units import format_bytes

    return f"{format_bytes(part)} of {format_bytes(whole)}"
