"""What a network namespace holds, as the kernel lists it: devices, addresses, routes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Interface, IPv4Network
from typing import Any

_MAIN_TABLE = 254
_WITH_FUNCTIONS = 1  # RTEXT_FILTER_VF
_UP = 1  # IFF_UP


@dataclass(frozen=True, slots=True)
class Tunneled:
    """What a VXLAN device wraps into. `external` ones get the number from each packet."""

    vni: int
    local: str
    port: int
    learning: bool
    external: bool


@dataclass(frozen=True, slots=True)
class Link:
    """A network device. `master` is the bridge or bond it is in, `below` what it is a VLAN or the like of."""

    name: str
    kind: str  # bridge, vxlan, veth, ...; "" for a port of a card
    mtu: int
    most_mtu: int
    mac: str
    up: bool
    master: str = ""
    below: str = ""
    tunneled: Tunneled | None = None
    port: Mapping[str, bool] = field(default_factory=dict)  # of a bridge's port: learning, neigh_suppress
    functions: Mapping[int, str] = field(default_factory=dict)  # MACs of virtual functions


@dataclass(frozen=True, slots=True)
class Route:
    """Where packets to a network go. `rto_min` is TCP's least retransmission timeout there, if it has one.

    In milliseconds, as the kernel has it.
    """

    network: IPv4Network
    devices: tuple[str, ...]
    rto_min: int | None = None


@dataclass(frozen=True, slots=True)
class Space:
    """A network namespace as it was found."""

    links: Mapping[str, Link] = field(default_factory=dict)
    addresses: tuple[tuple[str, IPv4Interface], ...] = ()
    routes: tuple[Route, ...] = ()
    ways_out: frozenset[str] = frozenset()  # devices of default routes, whatever the table and family


def list_space(socket: Any) -> Space:
    """All of it, by a pyroute2 socket inside."""
    messages = list(socket.get_links(ext_mask=_WITH_FUNCTIONS))
    names = {message["index"]: str(message.get("ifname")) for message in messages}
    links = (_link(message, names) for message in messages)
    addresses = (
        (names.get(each["index"], ""), IPv4Interface((_own_address(each), each["prefixlen"])))
        for each in socket.get_addr(family=2)
    )
    routes, ways_out = list[Route](), set[str]()
    for message in socket.get_routes():
        devices = tuple(names[index] for index in _ways(message) if index in names)
        if message["dst_len"] == 0 and message["type"] == 1:
            ways_out.update(devices)
        elif message["family"] == 2 and message.get("table") == _MAIN_TABLE:
            network = IPv4Network((message.get("dst"), message["dst_len"]))
            routes.append(Route(network, devices, message.get_nested("metrics", "rto_min")))
    return Space({link.name: link for link in links}, tuple(addresses), tuple(routes), frozenset(ways_out))


def _own_address(message: Any) -> str:
    return str(message.get("local") or message.get("address"))


def _ways(message: Any) -> Iterator[int]:
    if message.get("oif"):
        yield message.get("oif")
    for hop in message.get("multipath") or ():
        yield hop["oif"]


def _link(message: Any, names: Mapping[int, str]) -> Link:
    return Link(
        str(message.get("ifname")),
        message.get_nested("linkinfo", "kind") or "",
        int(message.get("mtu") or 0),
        int(message.get("max_mtu") or 0),
        message.get("address") or "",
        bool(message["flags"] & _UP),
        names.get(message.get("master") or 0, ""),
        _below(message, names),
        _tunneled(message),
        _port(message),
        dict(_functions(message)),
    )


def _below(message: Any, names: Mapping[int, str]) -> str:
    # The other end of a veth pair is no part of it, and the number of a device elsewhere means nothing here.
    if message.get_nested("linkinfo", "kind") == "veth" or message.get("link_netnsid") is not None:
        return ""
    return names.get(message.get("link") or 0, "")


def _tunneled(message: Any) -> Tunneled | None:
    if message.get_nested("linkinfo", "kind") != "vxlan":
        return None
    told = message.get_nested("linkinfo", "data")
    return Tunneled(
        int(told.get("vxlan_id") or 0),
        str(told.get("vxlan_local") or ""),
        int(told.get("vxlan_port") or 0),
        bool(told.get("vxlan_learning")),
        bool(told.get("vxlan_collect_metadata")),
    )


def _port(message: Any) -> dict[str, bool]:
    if message.get_nested("linkinfo", "slave_kind") != "bridge":
        return {}
    told = message.get_nested("linkinfo", "slave_data")
    return {name: bool(told.get(name)) for name in ("learning", "neigh_suppress")}


def _functions(message: Any) -> Iterator[tuple[int, str]]:
    for each in (message.get("vfinfo_list") or {}).get("attrs", ()):
        told = each[1].get_attr("IFLA_VF_MAC")
        if told:
            yield int(told["vf"]), str(told["mac"])
