"""`trimtab fabric`: one virtual device per worker over two uplinks, so that a dead link ends no training."""

import json
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from trimtab.cli.fabric_advise import advise_command
from trimtab.cli.options import OUTPUT, EndAfter, Json, command_group, panel
from trimtab.cli.place import here_alone, is_here, place
from trimtab.cli.terminal import ending_in_order, print_table, say, until_stopped
from trimtab.core import BadInputError, NotFoundError, TrimtabError, from_plain
from trimtab.fabric import (
    Cycle,
    Failover,
    Host,
    Lab,
    Sessions,
    Status,
    UplinkState,
    agent_of,
    agent_runs,
    exposition,
    fabrics_here,
    instructions,
    plain_status,
    put_up,
    put_up_commands,
    read_host,
    read_status,
    sessions_of,
    take_down,
    undo_commands,
    uplink_states,
)
from trimtab.store import Store, open_store

fabric_app = command_group("Training traffic that survives a dead link, network card or switch.")

fabric_app.callback()(here_alone("up", "down", "lab"))
fabric_app.command("advise")(advise_command)


@fabric_app.command()
def up(
    path: Annotated[Path, typer.Argument(metavar="HOST.yaml", help="The host, its uplinks and its tenants.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print every command and file, in order, and touch nothing.")
    ] = False,
    seconds: EndAfter = None,
) -> None:
    """Give every training worker of this host one device to bind to, over both uplinks. Needs root.

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

    It starts FRR and stays: it moves traffic off an uplink that dies within milliseconds, starts daemons
    that die again, and puts right what they get wrong. When it ends the network stays up, only slower to
    react. `trimtab fabric status` shows what it does.

    Run it again after editing the file: only what differs is changed. What was there before is kept on file
    until `trimtab fabric down` restores it. The port that carries the default route, your SSH session or
    what `management` names is never touched.
    """
    host = read_host(path)
    if dry_run:
        for words in put_up_commands(host):
            print(words)
        return
    done = put_up(host)
    typer.echo(f"{host.name}: {_changes(len(done))}; {_offered(host)}")
    run_agent(host, seconds)


@fabric_app.command()
def down(
    which: Annotated[
        str, typer.Argument(metavar="HOST.yaml|NAME", help="The file it was set up from, or the host's name.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print every command, in order, and touch nothing.")
    ] = False,
) -> None:
    """Remove what `trimtab fabric up` made, and restore what it changed. Needs root.

    It ends FRR too; end a `trimtab fabric up` that still runs first, with Ctrl-C. It goes by what was written
    down while it was made, also after a kill half-way, and whatever the file says by now. What somebody has
    changed or removed since is left as it is.
    """
    name = _name(which)
    if dry_run:
        for words in undo_commands(name):
            print(words)
        return
    typer.echo(f"{name} is down: {_changes(len(take_down(name)))}")


def _name(which: str) -> str:
    """Of a file: the name of the host it describes."""
    path = Path(which)
    return read_host(path).name if path.suffix in (".yaml", ".yml") or path.is_file() else which


def _changes(count: int) -> str:
    return "nothing to change" if not count else "1 change" if count == 1 else f"{count} changes"


def _offered(host: Host) -> str:
    devices = [device for tenant in host.tenants for device in tenant.devices]
    if not devices:
        return "no tenant has a device for workers yet"
    return "workers bind to " + ", ".join(f"{device.name} ({device.address.ip})" for device in devices)


def run_agent(host: Host, seconds: float | None) -> None:
    """Start FRR and keep traffic on paths that work, until Ctrl-C, SIGTERM or the end of that time."""
    with open_store() as store, agent_of(host, failover_events(store, host.name)) as agent:
        if threading.current_thread() is threading.main_thread():
            until_stopped(agent.stop)
        if seconds is not None:
            timer = threading.Timer(seconds, agent.stop)
            timer.daemon = True
            timer.start()
        typer.echo("traffic is kept on paths that work; Ctrl-C ends this and leaves the network as it is")
        agent.run()
    typer.echo(f"the network stays up, without fast failover; trimtab fabric down {host.name} removes it")


def failover_events(store: Store, host: str) -> Callable[[Failover], None]:
    """What writes each failover of a host down as an event."""

    def tell(failover: Failover) -> None:
        store.events.append("failover", host, asdict(failover), failover.time)

    return tell


_EVERY = 1.0  # s between looks
_READY = 60.0  # s until it must work


@fabric_app.command("lab")
def lab_command(
    hosts: Annotated[int, typer.Option(help="Each has an uplink to both of two switches.")] = 2,
    cycle: Annotated[
        bool, typer.Option("--cycle", help="Break each uplink in turn: 20 s silent, 20 s well.")
    ] = False,
    stock: Annotated[
        bool, typer.Option("--stock", help="FRR alone, without the agents that move traffic at once.")
    ] = False,
    seconds: EndAfter = None,
) -> None:
    """Build hosts and switches of network namespaces and real routing daemons, until Ctrl-C. Needs root.

    Nothing of this machine's own network is touched, and no traffic leaves it. Everything is removed at the
    end; what a lab that was killed left behind is removed by the next one.
    """
    console = Console(highlight=False, soft_wrap=True)
    with ending_in_order("the lab is removed"), Lab(hosts=hosts) as lab:
        lab.wait_ready(_READY)
        if not stock:
            lab.start_agents()
        console.print(f"{hosts} hosts and {len(lab.switches)} switches are ready; try in another terminal:")
        for line in instructions(lab):
            say(f"  {line}")
        breaking = lab.cycle() if cycle else None
        with breaking or nullcontext():
            _watch(lab, breaking, console, time.monotonic() + seconds if seconds else None)


def _watch(lab: Lab, breaking: Cycle | None, console: Console, end: float | None) -> None:
    """Show states until the end: as a table that changes, or line by line where that cannot be."""
    shown: dict[tuple[str, str], UplinkState] = {}
    with Live(console=console, auto_refresh=False) if console.is_terminal else nullcontext() as live:
        while end is None or time.monotonic() < end:
            states = uplink_states(lab)
            broken = breaking.now.what if breaking and breaking.now else ""
            if live is not None:
                live.update(_lab_table(states, broken), refresh=True)
            else:
                for state in states:
                    if shown.get((state.host, state.uplink)) != state:
                        say(_lab_line(state))
                shown = {(state.host, state.uplink): state for state in states}
            time.sleep(_EVERY if end is None else max(0.0, min(_EVERY, end - time.monotonic())))


def _lab_table(states: tuple[UplinkState, ...], broken: str) -> Table:
    columns = ("host", "uplink", "link", "BFD", "BGP", "traffic", "failovers")
    table = Table(*columns, caption=broken and f"now: {broken}")
    for state in states:
        style = None if (state.link, state.bfd) == ("up", "up") else "red"
        words = (state.link, state.bfd, state.bgp, state.used, str(state.failovers))
        table.add_row(state.host, state.uplink, *words, style=style)
    return table


def _lab_line(state: UplinkState) -> str:
    return (
        f"{time.strftime('%H:%M:%S')} {state.host} {state.uplink}: "
        f"link {state.link}, BFD {state.bfd or 'silent'}, BGP {state.bgp or 'silent'}"
        f"{state.used and f', {state.used} for traffic, {state.failovers} failovers'}"
    )


_SHOWN = 10  # failovers


@fabric_app.command("status")
def status_command(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The host; needed where there are several.")
    ] = None,
    as_json: Json = False,
    prometheus: Annotated[bool, panel(OUTPUT)("--prometheus", help="Print Prometheus' text format.")] = False,
) -> None:
    """What the fabric of this host does: uplinks, sessions, paths to other hosts, failovers and their cost.

    An uplink is **up**, **dead**, or **held**: back, but not used until it has behaved for a while. Echoes
    are probes that its switch sends back, or not, or never did. The cost of a failover is the time from
    hearing of a failure to new routes in the kernel.
    """
    seen = _here(name) if is_here() else _there(name)
    if prometheus:
        print(exposition(seen.status), end="")
    elif as_json:
        print(json.dumps(plain_status(seen.status, seen.sessions), indent=2))
    else:
        _print_status(seen)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A host's status, whether its agent runs, and why its sessions are not known, if they are not."""

    status: Status
    sessions: Sessions
    runs: bool
    silent: str = ""


def _here(name: str | None) -> _Seen:
    status = read_status(name or _only_one(fabrics_here()))
    runs = agent_runs(status.host)
    try:
        return _Seen(status, sessions_of(status.host), runs)
    except TrimtabError as error:
        return _Seen(status, Sessions(), runs, str(error))


def _there(name: str | None) -> _Seen:
    """As a server tells it."""
    with place() as at:
        told = at.fabric.get(name or _only_one(at.fabric.names()))
    sessions = told.pop("sessions")
    sessions["tunnels"] = {int(vni): tuple(others) for vni, others in sessions["tunnels"].items()}
    runs = bool(told.pop("running"))
    return _Seen(from_plain(Status, told, "the host's status"), Sessions(**sessions), runs)


def _only_one(names: tuple[str, ...]) -> str:
    if not names:
        raise NotFoundError("no agent has run here; start one with trimtab fabric up HOST.yaml")
    if len(names) > 1:
        raise BadInputError(f"there are several hosts here; name one of {', '.join(names)}")
    return names[0]


def _print_status(seen: _Seen) -> None:
    status, sessions = seen.status, seen.sessions
    runs = "its agent runs" if seen.runs else f"no agent runs since {_ago(status.time)}"
    say(f"{status.host}: {runs}")
    for problem in (*status.problems, *([seen.silent] if seen.silent else [])):
        say(f"  {problem}", style="red")
    if status.late:
        say(f"{status.late} probes left late: this machine was busy or away")
    print_table(_uplinks(status, sessions))
    print_table(_paths(status, sessions))
    if status.failovers:
        print_table(_failovers(status))
        costs = [each.seconds for each in status.failovers]
        whole, worst = (f"{1000 * seconds:.2f} ms" for seconds in (sum(costs), max(costs)))
        say(f"{len(costs)} failovers on file cost {whole} in all, {worst} at most")
    else:
        say("no failover so far")


def _uplinks(status: Status, sessions: Sessions) -> Any:
    table = _status_table("uplink", "switch", "state", "since", "echoes", "BFD", "BGP", "EVPN")
    for each in status.uplinks:
        held = f"held for {max(0.0, each.held_until - time.time()):.1f} s" if each.held_until else each.state
        states = (sessions.bfd, sessions.bgp, sessions.evpn)
        table.add_row(
            each.device,
            each.peer,
            held,
            "" if each.since is None else _ago(each.since),
            {True: "back", False: "missing", None: "never"}[each.echo],
            *(of_peers.get(each.peer, "") for of_peers in states),
            style={"dead": "red", "held": "yellow"}.get(each.state),
        )
    return table


def _paths(status: Status, sessions: Sessions) -> Any:
    tunnels = dict[str, list[str]]()
    for vni, others in sessions.tunnels.items():
        for other in others:
            tunnels.setdefault(f"{other}/32", []).append(str(vni))
    table = _status_table("to", "through", "networks")
    for prefix in sorted(status.paths):
        table.add_row(prefix, ", ".join(status.paths[prefix]), ", ".join(tunnels.get(prefix, ())))
    for prefix, since in sorted(status.gone.items()):
        table.add_row(prefix, f"gone since {_ago(since)}", "", style="red")
    return table


def _failovers(status: Status) -> Any:
    table = _status_table("failover", "uplink", "cause", "cost", "paths left")
    for each in status.failovers[-_SHOWN:]:
        cost = f"{each.seconds * 1000:.2f} ms"
        table.add_row(_ago(each.time), each.uplink, each.cause, cost, str(each.paths))
    return table


def _status_table(*columns: str) -> Any:
    return Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))


def _ago(when: float) -> str:
    """The time of day, and the day where it is not today."""
    then = time.localtime(when)
    today = time.localtime()[:3] == then[:3]
    return time.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S", then)
