"""Routes and links in the kernel's own words, packed and unpacked here: writing one takes microseconds.

Figures and layouts are those of `linux/netlink.h`, `linux/rtnetlink.h` and `linux/if.h`.
"""

import socket
import struct
from collections.abc import Iterator, Mapping

from trimtab.fabric.failover.routes import Hop, Hops, Route

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port of who asked for it
_ROUTE = struct.Struct(
    "=BBBBBBBBI"
)  # family, length of dst, of src, tos, table, protocol, scope, type, flags
_LINK = struct.Struct("=BxHiII")  # family, type, index, flags, changed flags
_ATTRIBUTE = struct.Struct("=HH")  # length, type
_HOP = struct.Struct("=HBBi")  # length, flags, weight - 1, device index
_NUMBER = struct.Struct("=I")

ERROR, DONE = 2, 3
NEW_LINK, DELETE_LINK, GET_LINK, NEW_ROUTE, DELETE_ROUTE, GET_ROUTE = 16, 17, 18, 24, 25, 26
_REQUEST, _DUMP, _REPLACE, _CREATE = 0x001, 0x300, 0x100, 0x400
LINK_GROUP, ROUTE_GROUP = 1, 7  # what can be subscribed to

_DESTINATION, _DEVICE, _GATEWAY, _PRIORITY, _MULTIPATH, _TABLE = 1, 4, 5, 6, 9, 15
_CACHE_INFO, _NEXT_HOP_ID = 12, 30
_LINK_NAME = 3
_ON_LINK = 4  # the only flag of a next hop that we may set
_UP, _RUNNING, _LOWER_UP = 0x1, 0x40, 0x10000
_UNICAST = 1


def messages(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Type, sequence, port and content of each message."""
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, _, sequence, port = _HEADER.unpack_from(data, at)
        if length < _HEADER.size:
            return
        yield kind, sequence, port, data[at + _HEADER.size : at + length]
        at += (length + 3) & ~3


def request(kind: int, content: bytes, flags: int, sequence: int = 0) -> bytes:
    """A message to the kernel."""
    return _HEADER.pack(_HEADER.size + len(content), kind, _REQUEST | flags, sequence, 0) + content


def all_links(sequence: int) -> bytes:
    """Asks for them."""
    return request(GET_LINK, bytes(_LINK.size), _DUMP, sequence)


def all_routes(protocol: int, sequence: int) -> bytes:
    """Asks for all IPv4 routes of a protocol."""
    return request(GET_ROUTE, _ROUTE.pack(socket.AF_INET, 0, 0, 0, 0, protocol, 0, 0, 0), _DUMP, sequence)


def carrier(content: bytes) -> tuple[str, int, bool]:
    """Name, index and whether it carries anything, of a link."""
    _, _, index, flags, _ = _LINK.unpack_from(content)
    name = next((value for kind, value in _attributes(content, _LINK.size) if kind == _LINK_NAME), b"")
    whole = _UP | _RUNNING | _LOWER_UP
    return name.rstrip(b"\0").decode(errors="replace"), index, flags & whole == whole


def route_of(content: bytes, names: Mapping[int, str], protocol: int) -> tuple[Route, Hops] | None:
    """An IPv4 route of that protocol over devices with these names; None for any other."""
    family, length, _, tos, table, by, scope, kind, flags = _ROUTE.unpack_from(content)
    if (family, by, kind) != (socket.AF_INET, protocol, _UNICAST):
        return None
    head = _ROUTE.pack(family, length, 0, tos, table, by, scope, kind, flags & _ON_LINK)
    destination, priority, rest, hops = bytes(4), 0, b"", list[Hop]()
    index, gateway = 0, b""
    for name, value in _attributes(content, _ROUTE.size):
        if name == _DEVICE:
            (index,) = _NUMBER.unpack(value)
        elif name == _GATEWAY:
            gateway = value
        elif name == _MULTIPATH:
            hops = list(_hops(value, names))
        elif name not in (_NEXT_HOP_ID, _CACHE_INFO):
            rest += _packed(name, value)
            if name == _DESTINATION:
                destination = value
            elif name == _PRIORITY:
                (priority,) = _NUMBER.unpack(value)
            elif name == _TABLE:
                (table,) = _NUMBER.unpack(value)
    if index in names and gateway:
        hops = [Hop(names[index], socket.inet_ntoa(gateway))]
    if not hops or any(not hop.device or not hop.gateway for hop in hops):
        return None
    prefix = f"{socket.inet_ntoa(destination)}/{length}"
    return Route(prefix, (prefix, table, priority), head, rest), tuple(sorted(hops))


def route_message(route: Route, ways: bytes, anew: bool) -> bytes:
    """Gives the route these next hops, in place of what it has; where there is none, only if `anew`."""
    return request(NEW_ROUTE, route.head + route.rest + ways, _REPLACE | (_CREATE if anew else 0))


def packed_hops(hops: Hops, indexes: Mapping[str, int]) -> bytes:
    """The next hops of a route."""
    if len(hops) == 1:
        gateway = _packed(_GATEWAY, socket.inet_aton(hops[0].gateway))
        return gateway + _packed(_DEVICE, _NUMBER.pack(indexes[hops[0].device]))
    return _packed(_MULTIPATH, b"".join(_packed_hop(hop, indexes) for hop in hops))


def _packed_hop(hop: Hop, indexes: Mapping[str, int]) -> bytes:
    gateway = _packed(_GATEWAY, socket.inet_aton(hop.gateway))
    return _HOP.pack(_HOP.size + len(gateway), 0, hop.weight - 1, indexes[hop.device]) + gateway


def _hops(data: bytes, names: Mapping[int, str]) -> Iterator[Hop]:
    at = 0
    while at + _HOP.size <= len(data):
        length, _, weight, index = _HOP.unpack_from(data, at)
        if length < _HOP.size:
            return
        inside = _attributes(data[: at + length], at + _HOP.size)
        gateway = next((value for name, value in inside if name == _GATEWAY), b"")
        yield Hop(names.get(index, ""), socket.inet_ntoa(gateway) if gateway else "", weight + 1)
        at += (length + 3) & ~3


def _attributes(data: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    while at + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < _ATTRIBUTE.size:
            return
        yield kind & 0x3FFF, data[at + _ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3


def _packed(kind: int, value: bytes) -> bytes:
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4)
