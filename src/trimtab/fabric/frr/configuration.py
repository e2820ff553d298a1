"""A first line that says whose a configuration file is, and by which an edit by hand is noticed."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from trimtab.core import BadInputError, one_line
from trimtab.fabric.topology import Host, Timers, Uplink

_LINE = "! Trimtab wrote this file and refuses to run with it once it is edited: sha256 {digest}\n"
_PATTERN = re.compile(r"! Trimtab wrote this file\b.* sha256 ([0-9a-f]{64})\n")


def sealed(content: str) -> str:
    """The content under its first line."""
    return _LINE.format(digest=digest_of(content)) + content


def digest_of(content: str) -> str:
    """What changes when the content does."""
    return hashlib.sha256(content.encode()).hexdigest()


def check_untouched(path: Path) -> None:
    """Refuse a file that somebody else wrote or edited; one that is not there is fine."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {one_line(str(error))}") from None
    match = _PATTERN.match(text)
    if match is None:
        raise BadInputError(f"{path} is not a file that Trimtab wrote; move it away, then start again")
    if match[1] != digest_of(text[match.end() :]):
        raise BadInputError(
            f"{path} was edited by hand; say the change in the host's file instead, "
            f"then remove {path.name} so that it is written anew"
        )


_MOST_PATHS = 16
_KEEPALIVE, _HOLD = 1, 3  # s, the least BGP has; BFD is quicker by far and ends a session before that
_COALESCE = 50  # ms that a new session's first announcements wait for more; FRR's own is over a second
# The kernel drops its next hop objects with a device that goes down and zebra may go on to name them: then a
# route is refused for good, and with it all workers behind it.
_ZEBRA = ("no zebra nexthop kernel enable",)
_OWN = "own"  # the route map that lets only what is announced from here pass
_LOOPBACKS = "loopbacks"  # the prefix list that lets only single addresses pass


@dataclass(frozen=True, slots=True)
class Port:
    """A switch's end of a link: its device, the address across, and whose it is."""

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


def host_files(host: Host) -> dict[str, str]:
    """A host's daemons and their configuration."""
    neighbours = [_port(uplink) for uplink in host.uplinks]
    filtered = [f"  neighbor {each.peer} route-map {_OWN} out" for each in neighbours]
    chosen = [f"  neighbor {each.peer} prefix-list {_LOOPBACKS} in" for each in neighbours]
    bgp = _bgp(
        host.asn,
        host.loopback,
        neighbours,
        [f"  network {host.loopback}/32", *filtered, *chosen],
        [*filtered, "  advertise-all-vni"],
    )
    filters = [  # in front: one that comes after its use takes effect only seconds later
        f"ip prefix-list {_LOOPBACKS} seq 10 permit 0.0.0.0/0 ge 32",
        f"bgp as-path access-list {_OWN} permit ^$",
        f"route-map {_OWN} permit 10",
        f" match as-path {_OWN}",
        "exit",
    ]
    return {
        "zebra": _text(_header(host.name), _ZEBRA),
        "bfdd": _text(_header(host.name), _bfd(neighbours, host.timers)),
        "bgpd": _text(_header(host.name), filters, bgp),
    }


def switch_files(switch: Switch) -> dict[str, str]:
    """A switch's daemons and their configuration: it passes on what hosts announce."""
    own = [f"  network {switch.loopback}/32"]
    return {
        "zebra": _text(_header(switch.name), _ZEBRA),
        "bfdd": _text(_header(switch.name), _bfd(switch.ports, switch.timers)),
        "bgpd": _text(_header(switch.name), _bgp(switch.asn, switch.loopback, switch.ports, own, [])),
    }


def _port(uplink: Uplink) -> Port:
    return Port(uplink.device, uplink.peer, uplink.peer_asn)


def _header(name: str) -> list[str]:
    return [f"hostname {name}", "log timestamp precision 6"]


def _bfd(neighbours: Sequence[Port], timers: Timers) -> Iterable[str]:
    """Sessions by peer and device, which are those that BGP asks for; each change of state is logged."""
    interval = max(round(timers.interval * 1000), 1)
    yield "debug bfd peer"
    yield "bfd"
    for each in neighbours:
        yield f" peer {each.peer} interface {each.device}"
        yield f"  receive-interval {interval}"
        yield f"  transmit-interval {interval}"
        yield f"  detect-multiplier {timers.multiplier}"
        yield " exit"
    yield "exit"


def _bgp(
    asn: int,
    router: IPv4Address,
    neighbours: Sequence[Port],
    of_unicast: Iterable[str],
    of_evpn: Iterable[str],
) -> Iterable[str]:
    yield f"router bgp {asn}"
    yield f" bgp router-id {router}"
    yield " no bgp ebgp-requires-policy"
    yield " no bgp default ipv4-unicast"
    yield " bgp bestpath as-path multipath-relax"
    yield f" timers bgp {_KEEPALIVE} {_HOLD}"
    yield f" coalesce-time {_COALESCE}"
    for each in neighbours:
        yield f" neighbor {each.peer} remote-as {each.peer_asn}"
        yield f" neighbor {each.peer} bfd"
        yield f" neighbor {each.peer} timers connect 1"
        yield f" neighbor {each.peer} advertisement-interval 0"
    activated = [f"  neighbor {each.peer} activate" for each in neighbours]
    yield " address-family ipv4 unicast"
    yield from (*activated, *of_unicast, f"  maximum-paths {_MOST_PATHS}")
    yield " exit-address-family"
    yield " address-family l2vpn evpn"
    yield from (*activated, *of_evpn)
    yield " exit-address-family"
    yield "exit"


def _text(*parts: Iterable[str]) -> str:
    return "".join(f"{line}\n" for part in parts for line in part)
