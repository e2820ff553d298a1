"""`trimtab fabric lab`: hosts and switches on this machine, to try a fabric and break it."""

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.interrupts import ending_in_order
from trimtab.cli.options import seconds_option

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from trimtab.fabric import Cycle, Lab, UplinkState

_EVERY = 1.0  # s between looks
_READY = 60.0  # s until it must work


def lab_command(
    hosts: Annotated[int, typer.Option(help="Each has an uplink to both of two switches.")] = 2,
    cycle: Annotated[
        bool, typer.Option("--cycle", help="Break each uplink in turn: 20 s silent, 20 s well.")
    ] = False,
    stock: Annotated[
        bool, typer.Option("--stock", help="FRR alone, without the agents that move traffic at once.")
    ] = False,
    seconds: Annotated[float | None, seconds_option()] = None,
) -> None:
    """Build hosts and switches of network namespaces and real routing daemons, until Ctrl-C. Needs root.

    Nothing of this machine's own network is touched, and no traffic leaves it. Everything is removed at the
    end; what a lab that was killed left behind is removed by the next one.
    """
    from rich.console import Console

    from trimtab.fabric import Lab, instructions

    console = Console(highlight=False, soft_wrap=True)
    with ending_in_order("the lab is removed"), Lab(hosts=hosts) as lab:
        lab.wait_ready(_READY)
        if not stock:
            lab.start_agents()
        console.print(f"{hosts} hosts and {len(lab.switches)} switches are ready; try in another terminal:")
        for line in instructions(lab):
            console.print(f"  {line}", markup=False)
        breaking = lab.cycle() if cycle else None
        with breaking or nullcontext():
            _watch(lab, breaking, console, time.monotonic() + seconds if seconds else None)


def _watch(lab: "Lab", breaking: "Cycle | None", console: "Console", end: float | None) -> None:
    """Show states until the end: as a table that changes, or line by line where that cannot be."""
    from rich.live import Live

    from trimtab.fabric import uplink_states

    shown: dict[tuple[str, str], UplinkState] = {}
    with Live(console=console, auto_refresh=False) if console.is_terminal else nullcontext() as live:
        while end is None or time.monotonic() < end:
            states = uplink_states(lab)
            broken = breaking.now.what if breaking and breaking.now else ""
            if live is not None:
                live.update(_table(states, broken), refresh=True)
            else:
                for state in states:
                    if shown.get((state.host, state.uplink)) != state:
                        console.print(_line(state), markup=False)
                shown = {(state.host, state.uplink): state for state in states}
            time.sleep(_EVERY if end is None else max(0.0, min(_EVERY, end - time.monotonic())))


def _table(states: "tuple[UplinkState, ...]", broken: str) -> "Table":
    from rich.table import Table

    columns = ("host", "uplink", "link", "BFD", "BGP", "traffic", "failovers")
    table = Table(*columns, caption=broken and f"now: {broken}")
    for state in states:
        style = None if (state.link, state.bfd) == ("up", "up") else "red"
        words = (state.link, state.bfd, state.bgp, state.used, str(state.failovers))
        table.add_row(state.host, state.uplink, *words, style=style)
    return table


def _line(state: "UplinkState") -> str:
    return (
        f"{time.strftime('%H:%M:%S')} {state.host} {state.uplink}: "
        f"link {state.link}, BFD {state.bfd or 'silent'}, BGP {state.bgp or 'silent'}"
        f"{state.used and f', {state.used} for traffic, {state.failovers} failovers'}"
    )
