"""Whether a lab works: sessions up, paths known, and every worker device within reach of every other."""

import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from trimtab.core import TrimtabError
from trimtab.fabric.lab.nodes import LabHost
from trimtab.fabric.machine import inside
from trimtab.fabric.status import Sessions, ask_sessions

if TYPE_CHECKING:
    from trimtab.fabric.lab.lab import Lab

_EVERY = 0.2  # s
_ANSWER = 0.2  # s to wait for a packet


def wait_ready(lab: "Lab", timeout: float) -> None:
    """Until nothing is amiss; a sentence about what still is when time is over."""
    give_up = time.monotonic() + timeout
    with contextlib.ExitStack() as stack:
        workers = [_Workers(stack, host) for host in lab.hosts]
        while (amiss := _amiss(lab, workers)) is not None:
            if time.monotonic() > give_up:
                raise TrimtabError(f"the lab is not ready after {timeout:g} s: {amiss}")
            time.sleep(_EVERY)


def _amiss(lab: "Lab", workers: list["_Workers"]) -> str | None:
    """The first thing that is not as it should be; cheap questions come first."""
    try:
        for told in (_of_sessions(lab), _of_paths(lab), _of_workers(workers), _of_tunnels(lab)):
            for amiss in told:
                return amiss
    except TrimtabError as error:
        return str(error)
    return None


def _of_sessions(lab: "Lab") -> Iterator[str]:
    wanted = [
        *((host.label, host.daemons, len(host.host.uplinks)) for host in lab.hosts),
        *((switch.label, switch.daemons, len(switch.switch.ports)) for switch in lab.switches),
    ]
    for label, daemons, number in wanted:
        up = _peers_up(ask_sessions(daemons.vtysh))
        if len(up) != number:
            yield f"{label} has {len(up)} of {number} sessions up"


def _peers_up(told: Sessions) -> list[str]:
    return [
        peer
        for peer, state in told.bfd.items()
        if state == "up" and told.bgp.get(peer) == told.evpn.get(peer) == "Established"
    ]


def _of_paths(lab: "Lab") -> Iterator[str]:
    """Every host knows every other by all of its uplinks."""
    for host in lab.hosts:
        ways = _ways(host)
        for other in lab.hosts:
            found = ways.get(str(other.host.loopback), 0)
            if other is not host and found != len(host.host.uplinks):
                yield f"{host.label} has {found} of {len(host.host.uplinks)} paths to {other.label}"


def _of_workers(workers: list["_Workers"]) -> Iterator[str]:
    for one in workers:
        for other in workers:
            if one is not other:
                yield from one.unreachable(other)


def _of_tunnels(lab: "Lab") -> Iterator[str]:
    """Every host was told where the others' workers are, and does not have to ask all of them."""
    for host in lab.hosts:
        for tenant in host.host.tenants:
            known = _known_macs(host, tenant.tunnel)
            for other in lab.hosts:
                theirs = next(each for each in other.host.tenants if each.name == tenant.name)
                for device in theirs.devices if other is not host else ():
                    if device.mac not in known:
                        yield f"{host.label} was not told where {device.mac} of {other.label} is"


def _ways(host: LabHost) -> dict[str, int]:
    """Destinations and by how many next hops each is reached."""
    told = _asked(["ip", "-n", host.namespace, "-j", "route", "show"])
    return {each["dst"]: len(each.get("nexthops", [each])) for each in told}


def _known_macs(host: LabHost, tunnel: str) -> set[str]:
    told = _asked(["bridge", "-n", host.namespace, "-j", "fdb", "show", "dev", tunnel])
    return {each["mac"] for each in told if "dst" in each}


def _asked(words: list[str]) -> list[dict[str, Any]]:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    found: list[dict[str, Any]] = json.loads(done.stdout or "[]")
    return found


class _Workers:
    """A socket on each worker device of a host."""

    def __init__(self, stack: contextlib.ExitStack, host: LabHost) -> None:
        self.host = host
        self.sockets = {
            tenant.name: stack.enter_context(inside(host.namespace, _socket)) for tenant in host.host.tenants
        }
        for tenant in host.host.tenants:
            self.sockets[tenant.name].bind((str(tenant.devices[0].address.ip), 0))

    def unreachable(self, other: "_Workers") -> Iterator[str]:
        """Tenants in which a packet from here does not arrive at the other."""
        for tenant, sending in self.sockets.items():
            question = f"{time.monotonic()}".encode()
            with contextlib.suppress(OSError):
                sending.sendto(question, other.sockets[tenant].getsockname())
            with contextlib.suppress(OSError):
                while other.sockets[tenant].recv(100) != question:
                    pass
                continue
            yield f"{other.host.label} cannot be reached from {self.host.label} by tenant {tenant}"


def _socket() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.settimeout(_ANSWER)
    return made
