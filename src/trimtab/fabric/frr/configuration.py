"""FRR's configuration files. Their first line has a digest, by which an edit by hand is noticed."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from trimtab.core import BadInputError, one_line
from trimtab.fabric.topology import FabricHost, Timers

_LINE = "! Trimtab wrote this file and refuses to run with it once it is edited: sha256 {digest}\n"
_PATTERN = re.compile(r"! Trimtab wrote this file\b.* sha256 ([0-9a-f]{64})\n")


def sealed(content: str) -> str:
    """The content below a first line with its digest."""
    return _LINE.format(digest=digest_of(content)) + content


def digest_of(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


def check_untouched(path: Path) -> None:
    """Refuse a file that another program wrote or that was edited; a missing file is accepted."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {one_line(str(error))}") from None
    match = _PATTERN.match(text)
    if match is None:
        raise BadInputError(f"{path} was not written by Trimtab; move it away, then start again")
    if match[1] != digest_of(text[match.end() :]):
        raise BadInputError(
            f"{path} was edited by hand; make the change in the host's file instead, "
            f"then remove {path.name} so that it is written again"
        )


_MOST_PATHS = 16
_KEEPALIVE, _HOLD = 1, 3  # s, the least BGP has; BFD is quicker by far and ends a session before that
_COALESCE = 50  # ms that a new session's first announcements wait for more; FRR's own is over a second
# The kernel drops next hop objects when their device goes down, and zebra may keep using them: then the
# kernel refuses a route permanently, and all workers behind it are unreachable.
_ZEBRA = ("no zebra nexthop kernel enable",)
_OWN = "own"  # route map that passes only routes announced from here
_LOOPBACKS = "loopbacks"  # prefix list that passes only single addresses


@dataclass(frozen=True, slots=True)
class Port:
    """A switch's end of a link: its device, and the address and autonomous system of the other end."""

    device: str
    peer: IPv4Address
    peer_asn: int


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch of the lab, as its routing software sees it."""

    name: str
    loopback: IPv4Address
    asn: int
    ports: tuple[Port, ...]
    timers: Timers


def host_files(host: FabricHost) -> dict[str, str]:
    """Configuration of a host's daemons, by daemon."""
    neighbours = [Port(uplink.device, uplink.peer, uplink.peer_asn) for uplink in host.uplinks]
    filtered = [f"  neighbor {port.peer} route-map {_OWN} out" for port in neighbours]
    accepted = [f"  neighbor {port.peer} prefix-list {_LOOPBACKS} in" for port in neighbours]
    bgp = _bgp(
        host.asn,
        host.loopback,
        neighbours,
        [f"  network {host.loopback}/32", *filtered, *accepted],
        [*filtered, "  advertise-all-vni"],
    )
    filters = [  # first: a filter that is defined after its use takes effect seconds later
        f"ip prefix-list {_LOOPBACKS} seq 10 permit 0.0.0.0/0 ge 32",
        f"bgp as-path access-list {_OWN} permit ^$",
        f"route-map {_OWN} permit 10",
        f" match as-path {_OWN}",
        "exit",
    ]
    return _files(host.name, _bfd(neighbours, host.timers), [*filters, *bgp])


def switch_files(switch: Switch) -> dict[str, str]:
    """Configuration of a switch's daemons, by daemon; it passes on what hosts announce."""
    own = [f"  network {switch.loopback}/32"]
    bgp = _bgp(switch.asn, switch.loopback, switch.ports, own, [])
    return _files(switch.name, _bfd(switch.ports, switch.timers), bgp)


def _files(name: str, bfd: Iterable[str], bgp: Iterable[str]) -> dict[str, str]:
    header = [f"hostname {name}", "log timestamp precision 6"]
    return {
        daemon: "".join(f"{line}\n" for line in (*header, *lines))
        for daemon, lines in (("zebra", _ZEBRA), ("bfdd", bfd), ("bgpd", bgp))
    }


def _bfd(neighbours: Sequence[Port], timers: Timers) -> Iterable[str]:
    """Sessions by peer and device, as BGP requests them; each change of state is logged."""
    interval = max(round(timers.interval * 1000), 1)
    yield "debug bfd peer"
    yield "bfd"
    for port in neighbours:
        yield f" peer {port.peer} interface {port.device}"
        yield f"  receive-interval {interval}"
        yield f"  transmit-interval {interval}"
        yield f"  detect-multiplier {timers.multiplier}"
        yield " exit"
    yield "exit"


def _bgp(
    asn: int, router: IPv4Address, neighbours: Sequence[Port], unicast: Iterable[str], evpn: Iterable[str]
) -> Iterable[str]:
    yield f"router bgp {asn}"
    yield f" bgp router-id {router}"
    yield " no bgp ebgp-requires-policy"
    yield " no bgp default ipv4-unicast"
    yield " bgp bestpath as-path multipath-relax"
    yield f" timers bgp {_KEEPALIVE} {_HOLD}"
    yield f" coalesce-time {_COALESCE}"
    for port in neighbours:
        yield f" neighbor {port.peer} remote-as {port.peer_asn}"
        yield f" neighbor {port.peer} bfd"
        yield f" neighbor {port.peer} timers connect 1"
        yield f" neighbor {port.peer} advertisement-interval 0"
    activated = [f"  neighbor {port.peer} activate" for port in neighbours]
    yield " address-family ipv4 unicast"
    yield from (*activated, *unicast, f"  maximum-paths {_MOST_PATHS}")
    yield " exit-address-family"
    yield " address-family l2vpn evpn"
    yield from (*activated, *evpn)
    yield " exit-address-family"
    yield "exit"
