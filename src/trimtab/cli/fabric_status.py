"""`trimtab fabric status`: uplinks, sessions, paths and failovers of a host."""

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimtab.cli.options import json_option
from trimtab.cli.place import is_here, place

if TYPE_CHECKING:
    from rich.console import Console

    from trimtab.fabric import Sessions, Status

_OUTPUT = "What to print"
_SHOWN = 10  # failovers


def status_command(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The host; needed where there are several.")
    ] = None,
    as_json: Annotated[bool, json_option(_OUTPUT)] = False,
    prometheus: Annotated[
        bool, typer.Option("--prometheus", help="Print Prometheus' text format.", rich_help_panel=_OUTPUT)
    ] = False,
) -> None:
    """What the fabric of this host does: uplinks, sessions, paths to other hosts, failovers and their cost.

    An uplink is **up**, **dead**, or **held**: back, but not used until it has behaved for a while. Echoes
    are probes that its switch sends back, or not, or never did. The cost of a failover is the time from
    hearing of a failure to new routes in the kernel.
    """
    from rich.console import Console

    from trimtab.fabric import exposition, plain_status

    seen = _here(name) if is_here() else _there(name)
    if prometheus:
        print(exposition(seen.status), end="")
    elif as_json:
        print(json.dumps(plain_status(seen.status, seen.sessions), indent=2))
    else:
        _print(Console(highlight=False, soft_wrap=True), seen)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A host's status, whether its agent runs, and why its sessions are not known, if they are not."""

    status: "Status"
    sessions: "Sessions"
    runs: bool
    silent: str = ""


def _here(name: str | None) -> _Seen:
    from trimtab.core import TrimtabError
    from trimtab.fabric import Sessions, agent_runs, fabrics_here, read_status, sessions_of

    status = read_status(name or _only_one(fabrics_here()))
    runs = agent_runs(status.host)
    try:
        return _Seen(status, sessions_of(status.host), runs)
    except TrimtabError as error:
        return _Seen(status, Sessions(), runs, str(error))


def _there(name: str | None) -> _Seen:
    """As a server tells it."""
    from trimtab.core import from_plain
    from trimtab.fabric import Sessions, Status

    with place() as at:
        told = at.fabric.get(name or _only_one(at.fabric.names()))
    sessions = told.pop("sessions")
    sessions["tunnels"] = {int(vni): tuple(others) for vni, others in sessions["tunnels"].items()}
    runs = bool(told.pop("running"))
    return _Seen(from_plain(Status, told, "the host's status"), Sessions(**sessions), runs)


def _only_one(names: tuple[str, ...]) -> str:
    from trimtab.core import BadInputError, NotFoundError

    if not names:
        raise NotFoundError("no agent has run here; start one with trimtab fabric up HOST.yaml")
    if len(names) > 1:
        raise BadInputError(f"there are several hosts here; name one of {', '.join(names)}")
    return names[0]


def _print(console: "Console", seen: _Seen) -> None:
    from rich.markup import escape

    status, sessions = seen.status, seen.sessions
    runs = "its agent runs" if seen.runs else f"no agent runs since {_ago(status.time)}"
    console.print(f"{escape(status.host)}: {runs}")
    for problem in (*status.problems, *([seen.silent] if seen.silent else [])):
        console.print(f"  {escape(problem)}", style="red")
    if status.late:
        console.print(f"{status.late} probes left late: this machine was busy or away")
    console.print(_uplinks(status, sessions))
    console.print(_paths(status, sessions))
    if status.failovers:
        console.print(_failovers(status))
        costs = [each.seconds for each in status.failovers]
        whole, worst = (f"{1000 * seconds:.2f} ms" for seconds in (sum(costs), max(costs)))
        console.print(f"{len(costs)} failovers on file cost {whole} in all, {worst} at most")
    else:
        console.print("no failover so far")


def _uplinks(status: "Status", sessions: "Sessions") -> Any:
    table = _table("uplink", "switch", "state", "since", "echoes", "BFD", "BGP", "EVPN")
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


def _paths(status: "Status", sessions: "Sessions") -> Any:
    tunnels = dict[str, list[str]]()
    for vni, others in sessions.tunnels.items():
        for other in others:
            tunnels.setdefault(f"{other}/32", []).append(str(vni))
    table = _table("to", "through", "networks")
    for prefix in sorted(status.paths):
        table.add_row(prefix, ", ".join(status.paths[prefix]), ", ".join(tunnels.get(prefix, ())))
    for prefix, since in sorted(status.gone.items()):
        table.add_row(prefix, f"gone since {_ago(since)}", "", style="red")
    return table


def _failovers(status: "Status") -> Any:
    table = _table("failover", "uplink", "cause", "cost", "paths left")
    for each in status.failovers[-_SHOWN:]:
        cost = f"{each.seconds * 1000:.2f} ms"
        table.add_row(_ago(each.time), each.uplink, each.cause, cost, str(each.paths))
    return table


def _table(*columns: str) -> Any:
    from rich import box
    from rich.table import Table

    return Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))


def _ago(when: float) -> str:
    """The time of day, and the day where it is not today."""
    then = time.localtime(when)
    today = time.localtime()[:3] == then[:3]
    return time.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S", then)
