"""The kernel's links and routes by netlink: dumped, followed by events, and written. Never waits."""

import contextlib
import errno
import logging
import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from trimtab.core import BadInputError
from trimtab.fabric.failover.routes import Change, Hop, Hops, Key, Route
from trimtab.kernel import rtnetlink

BGP = 186  # the protocol with which zebra marks its routes; it leaves others' routes with that mark alone
_PART = 16384  # bytes of a dump at a time, so that urgent events wait for a fraction of a millisecond
_BATCH = 32768  # bytes written at a time
# Family, length of dst, of src, tos, table, protocol, scope, type, flags.
_ROUTE = struct.Struct("=BBBBBBBBI")
_LINK = struct.Struct("=BxHiII")  # family, type, index, flags, changed flags
_HOP = struct.Struct("=HBBi")  # length, flags, weight - 1, device index
_NUMBER = struct.Struct("=I")
_DESTINATION, _DEVICE, _GATEWAY, _PRIORITY, _MULTIPATH, _TABLE = 1, 4, 5, 6, 9, 15
_CACHE_INFO, _NEXT_HOP_ID = 12, 30
_LINK_NAME = 3
_ON_LINK = 4  # the only flag of a next hop that may be set
_CARRIER = 0x1 | 0x40 | 0x10000  # IFF_UP, IFF_RUNNING, IFF_LOWER_UP
_UNICAST = 1
_EVENT_BUFFER = 4 << 20  # bytes of events that may wait

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LinkChange:
    """An uplink has its carrier, or has lost it."""

    device: str
    carrier: bool


@dataclass(frozen=True, slots=True)
class Written:
    """Another program has written a route."""

    route: Route
    hops: Hops


@dataclass(frozen=True, slots=True)
class Removed:
    """A route was removed."""

    key: Key


class EventsLostError(Exception):
    """The kernel dropped events: ask for everything."""


@dataclass(slots=True)
class Dump:
    """All uplinks and routes; `mark` was given with the request."""

    mark: int
    links: dict[str, bool] = field(default_factory=dict)  # carrier by device
    routes: dict[Key, tuple[Route, Hops]] = field(default_factory=dict)


class KernelRoutes:
    """Routes of a protocol whose next hops are on these devices; made inside their namespace."""

    def __init__(self, devices: tuple[str, ...], protocol: int = BGP) -> None:
        self._devices, self._protocol = devices, protocol
        self._names: dict[int, str] = {}
        self._indexes: dict[str, int] = {}
        self.events = _socket(rtnetlink.LINK_GROUP, rtnetlink.ROUTE_GROUP)
        self.dumping = _socket()
        self.writing = _socket()
        self._own = self.writing.getsockname()[0]
        self._sequence = 0  # of the request that is being answered
        self._dump: Dump | None = None
        self._dumps_routes = False

    def close(self) -> None:
        for opened in (self.events, self.dumping, self.writing):
            opened.close()

    def request_dump(self, mark: int) -> None:
        """Ask for links, then routes, unless an answer is still on its way."""
        if self._dump is None:
            self._dump, self._dumps_routes = Dump(mark), False
            self._request(rtnetlink.GET_LINK, bytes(_LINK.size))

    def read_dump(self) -> Dump | None:
        """Read the next part of the answer; returns the whole dump with the last one."""
        dump = self._dump
        try:
            data = self.dumping.recv(_PART)
        except BlockingIOError:
            return None
        except OSError:
            self._dump = None
            return None
        for kind, _, sequence, _, content in rtnetlink.messages(data):
            if dump is None or sequence != self._sequence:
                continue
            if kind == rtnetlink.NEW_LINK:
                for change in self._link(kind, content):
                    dump.links[change.device] = change.carrier
            elif kind == rtnetlink.NEW_ROUTE:
                entry = _parse_route(content, self._names, self._protocol)
                if entry is not None:
                    dump.routes[entry[0].key] = entry
            elif kind in (rtnetlink.DONE, rtnetlink.ERROR):
                if self._dumps_routes:
                    self._dump = None
                    return dump
                self._dumps_routes = True
                self._request(
                    rtnetlink.GET_ROUTE, _ROUTE.pack(socket.AF_INET, 0, 0, 0, 0, self._protocol, 0, 0, 0)
                )
                return None
        return None

    def changes(self) -> Iterator[LinkChange | Written | Removed]:
        """Changes by other programs since the last call."""
        while True:
            try:
                data = self.events.recv(1 << 16)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.ENOBUFS:
                    raise EventsLostError from None
                raise
            for kind, _, _, port, content in rtnetlink.messages(data):
                if kind in (rtnetlink.NEW_LINK, rtnetlink.DELETE_LINK):
                    yield from self._link(kind, content)
                elif kind in (rtnetlink.NEW_ROUTE, rtnetlink.DELETE_ROUTE) and port != self._own:
                    entry = _parse_route(content, self._names, self._protocol)
                    if entry is not None:
                        yield Written(*entry) if kind == rtnetlink.NEW_ROUTE else Removed(entry[0].key)

    def write(self, changes: list[Change]) -> None:
        """Give routes other next hops; the kernel has done so when this returns."""
        packed = dict[Hops, bytes]()
        batch = bytearray()
        for route, hops, create in changes:
            if hops not in packed:
                present = all(hop.device in self._indexes for hop in hops)
                packed[hops] = _packed_hops(hops, self._indexes) if present else b""
            if packed[hops]:
                flags = rtnetlink.REPLACE | (rtnetlink.CREATE if create else 0)
                batch += rtnetlink.request(rtnetlink.NEW_ROUTE, route.head + route.rest + packed[hops], flags)
            if len(batch) > _BATCH:
                self._send(batch)
                batch = bytearray()
        if batch:
            self._send(batch)

    def refused(self) -> int:
        """How many writes since the last call the kernel refused."""
        count = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                messages = rtnetlink.messages(self.writing.recv(1 << 16))
                count += sum(kind == rtnetlink.ERROR for kind, *_ in messages)
        return count

    def _request(self, kind: int, body: bytes) -> None:
        self._sequence += 1
        self.dumping.send(rtnetlink.request(kind, body, rtnetlink.DUMP, self._sequence))

    def _send(self, batch: bytearray) -> None:
        """Where that fails, the next dump shows it."""
        try:
            self.writing.send(batch)
        except OSError as error:
            log.warning("routes cannot be written: %s", (error.strerror or str(error)).lower())

    def _link(self, kind: int, content: bytes) -> Iterator[LinkChange]:
        _, _, index, flags, _ = _LINK.unpack_from(content)
        attribute = rtnetlink.attributes(content, _LINK.size).get(_LINK_NAME, b"")
        name = attribute.rstrip(b"\0").decode(errors="replace")
        if name not in self._devices:
            return
        is_there = kind == rtnetlink.NEW_LINK
        self._names = {number: device for number, device in self._names.items() if device != name}
        self._indexes.pop(name, None)
        if is_there:
            self._names[index] = name
            self._indexes[name] = index
        yield LinkChange(name, is_there and flags & _CARRIER == _CARRIER)


def _socket(*groups: int) -> socket.socket:
    """A socket for requests, or for events of these groups; never blocks."""
    try:
        opened = rtnetlink.open_socket(*groups, receive_buffer=_EVENT_BUFFER if groups else 0)
    except PermissionError:
        raise BadInputError("changing routes takes root; run this as root") from None
    opened.setblocking(False)
    return opened


def _parse_route(content: bytes, names: Mapping[int, str], protocol: int) -> tuple[Route, Hops] | None:
    """An IPv4 route of that protocol over devices with these names; None for any other."""
    family, length, _, tos, table, by, scope, kind, flags = _ROUTE.unpack_from(content)
    if (family, by, kind) != (socket.AF_INET, protocol, _UNICAST):
        return None
    head = _ROUTE.pack(family, length, 0, tos, table, by, scope, kind, flags & _ON_LINK)
    destination, priority, rest, hops = bytes(4), 0, b"", list[Hop]()
    index, gateway = 0, b""
    for name, value in rtnetlink.attributes(content, _ROUTE.size).items():
        if name == _DEVICE:
            (index,) = _NUMBER.unpack(value)
        elif name == _GATEWAY:
            gateway = value
        elif name == _MULTIPATH:
            hops = list(_parse_hops(value, names))
        elif name not in (_NEXT_HOP_ID, _CACHE_INFO):
            rest += rtnetlink.attribute(name, value)
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


def _packed_hops(hops: Hops, indexes: Mapping[str, int]) -> bytes:
    """Attributes that hold the next hops of a route."""
    gateways = [rtnetlink.attribute(_GATEWAY, socket.inet_aton(hop.gateway)) for hop in hops]
    if len(hops) == 1:
        return gateways[0] + rtnetlink.attribute(_DEVICE, _NUMBER.pack(indexes[hops[0].device]))
    packed = b"".join(
        _HOP.pack(_HOP.size + len(gateway), 0, hop.weight - 1, indexes[hop.device]) + gateway
        for hop, gateway in zip(hops, gateways, strict=True)
    )
    return rtnetlink.attribute(_MULTIPATH, packed)


def _parse_hops(data: bytes, names: Mapping[int, str]) -> Iterator[Hop]:
    at = 0
    while at + _HOP.size <= len(data):
        length, _, weight, index = _HOP.unpack_from(data, at)
        if length < _HOP.size:
            return
        gateway = rtnetlink.attributes(data[: at + length], at + _HOP.size).get(_GATEWAY, b"")
        yield Hop(names.get(index, ""), socket.inet_ntoa(gateway) if gateway else "", weight + 1)
        at += (length + 3) & ~3
