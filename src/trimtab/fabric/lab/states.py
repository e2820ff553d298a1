"""What a lab looks like right now, and how somebody may try it."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from trimtab.core import NotFoundError, TrimtabError
from trimtab.fabric.failover import UplinkNow
from trimtab.fabric.lab.lab import Lab
from trimtab.fabric.lab.nodes import LabHost
from trimtab.fabric.status import Sessions, ask_sessions, read_status


@dataclass(frozen=True, slots=True)
class UplinkState:
    """An uplink of a host: whether its device is up, and what BFD and BGP say in FRR's words.

    `used` is what the host's agent says, "" without one; `failovers` is how often it moved traffic away.
    """

    host: str
    uplink: str
    link: str
    bfd: str
    bgp: str
    used: str
    failovers: int


def uplink_states(lab: Lab) -> tuple[UplinkState, ...]:
    """Of all hosts, in order."""
    return tuple(state for host in lab.hosts for state in _of_host(host))


def instructions(lab: Lab) -> tuple[str, ...]:
    """Commands that show the lab or break it, and what they do."""
    one, other, switch = lab.hosts[0], lab.hosts[1], lab.switches[0]
    device = one.host.tenants[0].devices[0]
    theirs = other.host.tenants[0].devices[0].address.ip
    return (
        f"ip netns exec {one.namespace} bash    # a shell on {one.label}; workers bind to {device.name}, "
        f"{device.address.ip}",
        f"ip netns exec {one.namespace} torchrun ...    # any job; with GLOO_SOCKET_IFNAME={device.name} "
        f"it reaches {theirs} on {other.label}",
        f"ip -n {one.namespace} route    # paths of {one.label}",
        f"trimtab fabric status {one.host.name}    # what its agent does",
        f"ip -n {switch.namespace} link set h1 down    # a cable out; and back with: up",
        f"vtysh --vty_socket {one.daemons.folder} -c 'show bfd peers'    # FRR of {one.label}",
    )


def _of_host(host: LabHost) -> Iterator[UplinkState]:
    words = ["ip", "-n", host.namespace, "-j", "link", "show"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    links = {each["ifname"]: str(each["operstate"]).lower() for each in json.loads(done.stdout or "[]")}
    try:
        told = ask_sessions(host.daemons.vtysh)
    except TrimtabError:  # a daemon that was killed does not answer
        told = Sessions()
    agents = {each.device: each for each in _agents_view(host)}
    for uplink in host.host.uplinks:
        peer, agent = str(uplink.peer), agents.get(uplink.device)
        yield UplinkState(
            host.label,
            uplink.device,
            links.get(uplink.device, "gone"),
            told.bfd.get(peer, ""),
            told.bgp.get(peer, ""),
            agent.state if agent else "",
            agent.failures if agent else 0,
        )


def _agents_view(host: LabHost) -> tuple[UplinkNow, ...]:
    try:
        return read_status(host.host.name).uplinks
    except NotFoundError:
        return ()
