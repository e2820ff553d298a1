"""The kernel's links and routes: asked for all of them, told of changes, and written to. Never waits."""

import contextlib
import errno
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

from trimtab.fabric.failover import netlink
from trimtab.fabric.failover.routes import Change, Hops, Key, Route
from trimtab.fabric.failover.sockets import kernel_socket

BGP = 186  # whose routes these are, as zebra marks them; it leaves what others write with its mark alone
_PART = 16384  # bytes of a dump at a time, so that what is urgent waits for a fraction of a millisecond
_BATCH = 32768  # bytes written at a time

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LinkChange:
    """An uplink has its carrier, or has lost it."""

    device: str
    carrier: bool


@dataclass(frozen=True, slots=True)
class Written:
    """Somebody else has written a route."""

    route: Route
    hops: Hops


@dataclass(frozen=True, slots=True)
class Removed:
    """Somebody has removed a route."""

    key: Key


class EventsLostError(Exception):
    """The kernel had more to say than could wait: ask for everything."""


@dataclass(slots=True)
class Dump:
    """All uplinks and routes; `mark` is what was given when it was asked for."""

    mark: int
    links: dict[str, bool] = field(default_factory=dict)  # carrier by device
    routes: dict[Key, tuple[Route, Hops]] = field(default_factory=dict)


class KernelRoutes:
    """Routes of a protocol whose next hops are on these devices; to be made inside their namespace."""

    def __init__(self, devices: tuple[str, ...], protocol: int = BGP) -> None:
        self._devices, self._protocol = devices, protocol
        self._names: dict[int, str] = {}
        self._indexes: dict[str, int] = {}
        self.events = kernel_socket(netlink.LINK_GROUP, netlink.ROUTE_GROUP)
        self.asking = kernel_socket()
        self.writing = kernel_socket()
        self._own = self.writing.getsockname()[0]
        self._sequence = 0  # of the request that is being answered
        self._dump: Dump | None = None
        self._asked_routes = False

    def close(self) -> None:
        """Let go."""
        for each in (self.events, self.asking, self.writing):
            each.close()

    def ask(self, mark: int) -> None:
        """Ask for everything, unless an answer is still on its way."""
        if self._dump is None:
            self._dump, self._asked_routes = Dump(mark), False
            self._sequence += 1
            self.asking.send(netlink.all_links(self._sequence))

    def answered(self) -> Dump | None:
        """The next part of the answer; all of it with the last one."""
        dump = self._dump
        try:
            data = self.asking.recv(_PART)
        except BlockingIOError:
            return None
        except OSError:
            self._dump = None
            return None
        for kind, sequence, _, content in netlink.messages(data):
            if dump is None or sequence != self._sequence:
                continue
            if kind == netlink.NEW_LINK:
                for change in self._link(kind, content):
                    dump.links[change.device] = change.carrier
            elif kind == netlink.NEW_ROUTE:
                found = netlink.route_of(content, self._names, self._protocol)
                if found is not None:
                    dump.routes[found[0].key] = found
            elif kind in (netlink.DONE, netlink.ERROR):
                return self._next_part(dump)
        return None

    def changes(self) -> Iterator[LinkChange | Written | Removed]:
        """What others did since the last call."""
        while True:
            try:
                data = self.events.recv(1 << 16)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.ENOBUFS:
                    raise EventsLostError from None
                raise
            for kind, _, port, content in netlink.messages(data):
                if kind in (netlink.NEW_LINK, netlink.DELETE_LINK):
                    yield from self._link(kind, content)
                elif kind in (netlink.NEW_ROUTE, netlink.DELETE_ROUTE) and port != self._own:
                    found = netlink.route_of(content, self._names, self._protocol)
                    if found is not None:
                        yield Written(*found) if kind == netlink.NEW_ROUTE else Removed(found[0].key)

    def write(self, changes: list[Change]) -> None:
        """Give routes other next hops; the kernel has done so when this returns."""
        packed = dict[Hops, bytes]()
        batch = bytearray()
        for route, hops, anew in changes:
            if hops not in packed:
                present = all(hop.device in self._indexes for hop in hops)
                packed[hops] = netlink.packed_hops(hops, self._indexes) if present else b""
            if packed[hops]:
                batch += netlink.route_message(route, packed[hops], anew)
            if len(batch) > _BATCH:
                self._send(batch)
                batch = bytearray()
        if batch:
            self._send(batch)

    def refused(self) -> int:
        """How much of what was written since the last call the kernel did not take."""
        count = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                count += sum(
                    1 for kind, *_ in netlink.messages(self.writing.recv(1 << 16)) if kind == netlink.ERROR
                )
        return count

    def _send(self, batch: bytearray) -> None:
        """Where that fails, the next look at what the kernel has shows it."""
        try:
            self.writing.send(batch)
        except OSError as error:
            log.warning("routes cannot be written: %s", (error.strerror or str(error)).lower())

    def _link(self, kind: int, content: bytes) -> Iterator[LinkChange]:
        name, index, carrier = netlink.carrier(content)
        if name not in self._devices:
            return
        here = kind == netlink.NEW_LINK
        self._names = {number: device for number, device in self._names.items() if device != name}
        self._indexes.pop(name, None)
        if here:
            self._names[index] = name
            self._indexes[name] = index
        yield LinkChange(name, here and carrier)

    def _next_part(self, dump: Dump) -> Dump | None:
        """Links have come: routes are next. Routes have come: that is all."""
        if not self._asked_routes:
            self._asked_routes = True
            self._sequence += 1
            self.asking.send(netlink.all_routes(self._protocol, self._sequence))
            return None
        self._dump = None
        return dump
