"""`trimtab fabric`: one virtual device per worker over two uplinks, so that training survives a dead link."""

import json
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from trimtab import fabric
from trimtab.cli.fabric_advise import advise_command
from trimtab.cli.place import here_alone, is_here, place
from trimtab.cli.terminal import (
    OUTPUT,
    DryRun,
    EndAfter,
    Json,
    command_group,
    ending_in_order,
    panel,
    print_table,
    say,
    until_stopped,
)
from trimtab.core import BadInputError, NotFoundError, TrimtabError
from trimtab.store import Store, open_store

fabric_app = command_group("Training traffic that survives a dead link, network card or switch.")

fabric_app.callback()(here_alone("up", "down", "lab"))
fabric_app.command("advise")(advise_command)


@fabric_app.command()
def up(
    path: Path = typer.Argument(..., metavar="HOST.yaml", help="The host, its uplinks and its tenants."),
    dry_run: DryRun = False,
    seconds: EndAfter = None,
) -> None:
    """Set up this host: each training worker gets one network device that uses both uplinks. Needs root.

    The file says who this host is, which ports go to which switch, and which devices workers get:

        host: node-1
        loopback: 10.255.0.1
        asn: 65001
        uplinks:
          - {device: enp1s0f0, address: 172.16.1.2/31, peer: 172.16.1.3, peer_asn: 65101}
          - {device: enp1s0f1, address: 172.16.2.2/31, peer: 172.16.2.3, peer_asn: 65102}
        tenants:
          research:
            vni: 100
            devices:
              - {name: w0, address: 10.100.0.1/24}

    `loopback` is this host's own address, which the others reach by whatever uplink is alive; each host has
    another one and another `asn`. Devices of one `vni` see each other on all hosts, and nobody else; with
    `namespace: NAME` a device goes into that network namespace. Bind workers to theirs, as with
    `GLOO_SOCKET_IFNAME=w0`.

    It starts FRR and stays: it moves traffic off an uplink that dies within milliseconds, restarts daemons
    that die, and corrects their routes. When it ends the network stays up, only slower to react.
    `trimtab fabric status` shows what it does.

    Run it again after editing the file: only differences are changed. The former configuration is kept on
    file until `trimtab fabric down` restores it. The port that carries the default route, your SSH session
    or the address in `management` is never touched.
    """
    host = fabric.read_host(path)
    if dry_run:
        print(*fabric.put_up_commands(host), sep="\n")
        return
    changes = _changes(len(fabric.put_up(host)))
    devices = [f"{device.name} ({device.address.ip})" for tenant in host.tenants for device in tenant.devices]
    usage = f"workers bind to {', '.join(devices)}" if devices else "no tenant has a device for workers yet"
    typer.echo(f"{host.name}: {changes}; {usage}")
    run_agent(host, seconds)


@fabric_app.command()
def down(
    which: str = typer.Argument(
        ..., metavar="HOST.yaml|NAME", help="The file it was set up from, or the host's name."
    ),
    dry_run: DryRun = False,
) -> None:
    """Remove what `trimtab fabric up` made, and restore what it changed. Needs root.

    It ends FRR too; end a `trimtab fabric up` that still runs first, with Ctrl-C. It undoes the journal of
    `up`, also after a kill half-way, whatever the file contains by now. Objects that somebody else has
    changed or removed since are left as they are.
    """
    path = Path(which)
    name = fabric.read_host(path).name if path.suffix in (".yaml", ".yml") or path.is_file() else which
    if dry_run:
        print(*fabric.undo_commands(name), sep="\n")
    else:
        typer.echo(f"{name} is down: {_changes(len(fabric.take_down(name)))}")


def _changes(count: int) -> str:
    return "nothing to change" if not count else "1 change" if count == 1 else f"{count} changes"


def run_agent(host: fabric.FabricHost, seconds: float | None) -> None:
    """Start FRR and keep traffic on paths that work, until Ctrl-C, SIGTERM or the end of that time."""
    with open_store() as store, fabric.agent_of(host, failover_events(store, host.name)) as agent:
        if threading.current_thread() is threading.main_thread():
            until_stopped(agent.stop)
        if seconds is not None:
            timer = threading.Timer(seconds, agent.stop)
            timer.daemon = True
            timer.start()
        typer.echo("traffic is kept on paths that work; Ctrl-C ends this and leaves the network as it is")
        agent.run()
    typer.echo(f"the network stays up, without fast failover; trimtab fabric down {host.name} removes it")


def failover_events(store: Store, host: str) -> Callable[[fabric.Failover], None]:
    """A function that appends a host's failover to the store's events."""

    def append(failover: fabric.Failover) -> None:
        store.events.append("failover", host, asdict(failover), failover.time)

    return append


_EVERY = 1.0  # s between looks
_READY = 60.0  # s until it must work


@fabric_app.command("lab")
def lab_command(
    hosts: int = typer.Option(2, help="Number of hosts, each with an uplink to each of two switches."),
    cycle: bool = typer.Option(
        False,
        "--cycle",
        help="Break each uplink in turn: it drops all packets for 20 s, then works for 20 s.",
    ),
    stock: bool = typer.Option(False, "--stock", help="Run FRR only, without Trimtab's agents."),
    seconds: EndAfter = None,
) -> None:
    """Build hosts and switches of network namespaces and real routing daemons, until Ctrl-C. Needs root.

    This machine's own network is not touched, and no traffic leaves it. Everything is removed at the end;
    the next lab removes what a killed one left behind.
    """
    console = Console(highlight=False, soft_wrap=True)
    with ending_in_order("the lab is removed"), fabric.Lab(hosts=hosts) as lab:
        lab.wait_ready(_READY)
        if not stock:
            lab.start_agents()
        console.print(f"{hosts} hosts and {len(lab.switches)} switches are ready; try in another terminal:")
        for line in fabric.instructions(lab):
            say(f"  {line}")
        breaking = lab.cycle() if cycle else None
        with breaking or nullcontext():
            _watch(lab, breaking, console, time.monotonic() + seconds if seconds else None)


def _watch(lab: fabric.Lab, breaking: fabric.Cycle | None, console: Console, end: float | None) -> None:
    """Show states until the end: as a live table on a terminal, else a line per change."""
    shown: dict[tuple[str, str], fabric.UplinkState] = {}
    with Live(console=console, auto_refresh=False) if console.is_terminal else nullcontext() as live:
        while end is None or time.monotonic() < end:
            states = fabric.uplink_states(lab)
            if live is not None:
                broken = breaking.now.name if breaking and breaking.now else ""
                heads = ("host", "uplink", "link", "BFD", "BGP", "traffic", "failovers")
                table = Table(*heads, caption=broken and f"now: {broken}")
                for state in states:
                    cells = (state.link, state.bfd, state.bgp, state.used, str(state.failovers))
                    style = None if (state.link, state.bfd) == ("up", "up") else "red"
                    table.add_row(state.host, state.uplink, *cells, style=style)
                live.update(table, refresh=True)
            for state in states if live is None else ():
                if shown.get((state.host, state.uplink)) != state:
                    traffic = f", {state.used} for traffic, {state.failovers} failovers" if state.used else ""
                    say(
                        f"{time.strftime('%H:%M:%S')} {state.host} {state.uplink}: link {state.link}, BFD"
                        f" {state.bfd or 'silent'}, BGP {state.bgp or 'silent'}{traffic}"
                    )
                shown[state.host, state.uplink] = state
            time.sleep(_EVERY if end is None else max(0.0, min(_EVERY, end - time.monotonic())))


_SHOWN = 10  # failovers


@fabric_app.command("status")
def status_command(
    name: str | None = typer.Argument(
        None, metavar="NAME", help="The host's name; required if several fabrics are on this machine."
    ),
    as_json: Json = False,
    prometheus: bool = panel(OUTPUT)(False, "--prometheus", help="Print Prometheus' text format."),
) -> None:
    """Show the fabric of this host: uplinks, sessions, paths to other hosts, failovers and their cost.

    An uplink is **up**, **dead**, or **held**: back, but not used until it has behaved for a while. Echoes
    are probes that its switch sends back. The cost of a failover is the time from the news of a failure to
    new routes in the kernel.
    """
    unknown = ""  # why the sessions are unknown
    if is_here():
        status, sessions = fabric.read_status(name or _only_one(fabric.fabrics_here())), fabric.Sessions()
        runs = fabric.agent_runs(status.host)
        try:
            sessions = fabric.sessions_of(status.host)
        except TrimtabError as error:
            unknown = str(error)
    else:
        with place() as at:
            answer = at.fabric.get(name or _only_one(at.fabric.names()))
        plain, runs = answer.pop("sessions"), bool(answer.pop("running"))
        plain["tunnels"] = {int(vni): tuple(hosts) for vni, hosts in plain["tunnels"].items()}
        status, sessions = fabric.parse_status(answer), fabric.Sessions(**plain)
    if prometheus:
        print(fabric.exposition(status), end="")
    elif as_json:
        print(json.dumps(fabric.plain_status(status, sessions), indent=2))
    else:
        _print_status(status, sessions, runs, unknown)


def _only_one(names: tuple[str, ...]) -> str:
    if not names:
        raise NotFoundError("no agent has run on this machine; start one with trimtab fabric up HOST.yaml")
    if len(names) > 1:
        raise BadInputError(f"several hosts run on this machine; name one of {', '.join(names)}")
    return names[0]


def _print_status(status: fabric.Status, sessions: fabric.Sessions, runs: bool, unknown: str) -> None:
    say(f"{status.host}: {'its agent runs' if runs else f'no agent runs since {_clock(status.time)}'}")
    for problem in (*status.problems, *([unknown] if unknown else [])):
        say(f"  {problem}", style="red")
    if status.late:
        say(f"{status.late} probes were sent late: this machine was busy or suspended")
    uplinks = _status_table("uplink", "switch", "state", "since", "echoes", "BFD", "BGP", "EVPN")
    for link in status.uplinks:
        hold = max(0.0, link.held_until - time.time()) if link.held_until else 0.0
        uplinks.add_row(
            *(link.device, link.peer, f"held for {hold:.1f} s" if link.held_until else link.state),
            "" if link.since is None else _clock(link.since),
            {True: "back", False: "missing", None: "never"}[link.echo],
            *(by_peer.get(link.peer, "") for by_peer in (sessions.bfd, sessions.bgp, sessions.evpn)),
            style={"dead": "red", "held": "yellow"}.get(link.state),
        )
    print_table(uplinks)
    networks = dict[str, list[str]]()
    for vni, hosts in sessions.tunnels.items():
        for host in hosts:
            networks.setdefault(f"{host}/32", []).append(str(vni))
    paths = _status_table("to", "through", "networks")
    for prefix in sorted(status.paths):
        paths.add_row(prefix, ", ".join(status.paths[prefix]), ", ".join(networks.get(prefix, ())))
    for prefix, since in sorted(status.gone.items()):
        paths.add_row(prefix, f"gone since {_clock(since)}", "", style="red")
    print_table(paths)
    if not status.failovers:
        say("no failover so far")
        return
    failovers = _status_table("failover", "uplink", "cause", "cost", "paths left")
    for failover in status.failovers[-_SHOWN:]:
        cost = f"{failover.seconds * 1000:.2f} ms"
        failovers.add_row(_clock(failover.time), failover.uplink, failover.cause, cost, str(failover.paths))
    print_table(failovers)
    costs = [1000 * failover.seconds for failover in status.failovers]
    say(f"{len(costs)} failovers on file cost {sum(costs):.2f} ms in all, {max(costs):.2f} ms at most")


def _status_table(*columns: str) -> Any:
    return Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))


def _clock(moment: float) -> str:
    """The time of day, and the day where it is not today."""
    then = time.localtime(moment)
    today = time.localtime()[:3] == then[:3]
    return time.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S", then)
