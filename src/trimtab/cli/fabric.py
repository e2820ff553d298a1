"""`trimtab fabric`: one virtual device per worker over two uplinks, so that a dead link ends no training."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.fabric_advise import advise_command
from trimtab.cli.fabric_agent import run_agent
from trimtab.cli.fabric_lab import lab_command
from trimtab.cli.fabric_status import status_command
from trimtab.cli.options import seconds_option
from trimtab.cli.place import here_alone

if TYPE_CHECKING:
    from trimtab.fabric import Host

fabric_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Training traffic that survives a dead link, network card or switch.",
)

fabric_app.callback()(here_alone("up", "down", "lab"))
fabric_app.command("advise")(advise_command)
fabric_app.command("lab")(lab_command)
fabric_app.command("status")(status_command)


@fabric_app.command()
def up(
    path: Annotated[Path, typer.Argument(metavar="HOST.yaml", help="The host, its uplinks and its tenants.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print every command and file, in order, and touch nothing.")
    ] = False,
    seconds: Annotated[float | None, seconds_option()] = None,
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
    from trimtab.fabric import put_up, put_up_commands, read_host

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
    from trimtab.fabric import take_down, undo_commands

    name = _name(which)
    if dry_run:
        for words in undo_commands(name):
            print(words)
        return
    typer.echo(f"{name} is down: {_changes(len(take_down(name)))}")


def _name(which: str) -> str:
    """Of a file: the name of the host it describes."""
    from trimtab.fabric import read_host

    path = Path(which)
    return read_host(path).name if path.suffix in (".yaml", ".yml") or path.is_file() else which


def _changes(count: int) -> str:
    return "nothing to change" if not count else "1 change" if count == 1 else f"{count} changes"


def _offered(host: "Host") -> str:
    devices = [device for tenant in host.tenants for device in tenant.devices]
    if not devices:
        return "no tenant has a device for workers yet"
    return "workers bind to " + ", ".join(f"{device.name} ({device.address.ip})" for device in devices)
