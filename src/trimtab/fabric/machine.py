"""The machine's network, by network namespace: what is in it, and a way to change it."""

import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Interface, IPv4Network, ip_address
from pathlib import Path
from typing import Any, Self, TypeVar

from trimtab.core import BadInputError, NotFoundError

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


NAMESPACES = Path("/run/netns")
_SYSCTLS = Path("/proc/sys")
_SSH, _ESTABLISHED = 22, "01"

T = TypeVar("T")


class Machine:
    """A network namespace (by name; None is the one we are in) and, by name, those of its workers.

    Use as a context. What was looked up is kept until something is changed through `netlink`.
    """

    def __init__(self, netns: str | None = None) -> None:
        if netns is not None and not exists(netns):
            raise BadInputError(f"there is no network namespace {netns}; ip netns add {netns} makes one")
        self._netns = netns
        self._open = dict[str, Any]()
        self._seen = dict[str, Space]()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def identity(self) -> str:
        """Of the namespace, while it lasts: the same by whatever name it is reached."""
        found = os.stat("/proc/thread-self/ns/net" if self._netns is None else NAMESPACES / self._netns)
        return f"{found.st_dev}:{found.st_ino}"

    def space(self, namespace: str = "") -> Space:
        """What is in a namespace; "" is the host's own. Of one that does not exist: nothing."""
        if namespace not in self._seen:
            there = not namespace or exists(namespace)
            self._seen[namespace] = list_space(self._socket(namespace)) if there else Space()
        return self._seen[namespace]

    def netlink(self, namespace: str = "") -> Any:
        """A pyroute2 socket in that namespace, to change something; what was seen is forgotten."""
        self._seen.clear()
        return self._socket(namespace)

    def find(self, device: str, namespace: str = "") -> int | None:
        """The kernel's number of a device, looked up now; None when there is no such device."""
        found = self._socket(namespace).link_lookup(ifname=device)
        return int(found[0]) if found else None

    def index(self, device: str, namespace: str = "") -> int:
        """The number of a device that should be there."""
        found = self.find(device, namespace)
        if found is None:
            raise OSError(errno.ENODEV, f"there is no device {device}")
        return found

    def own_namespace(self) -> int:
        """An open handle of the host's namespace, to move devices back into; the caller closes it."""
        path = "/proc/thread-self/ns/net" if self._netns is None else NAMESPACES / self._netns
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def sysctl(self, key: str, namespace: str = "") -> str | None:
        """Its value; None where there is none. `key` is with slashes, as in net/ipv4/ip_forward."""

        def read() -> str | None:
            try:
                return (_SYSCTLS / key).read_text().strip()
            except FileNotFoundError:
                return None

        return self._inside(namespace, read) if not namespace or exists(namespace) else None

    def set_sysctl(self, key: str, value: str, namespace: str = "") -> None:
        """Give it a value."""
        self._inside(namespace, lambda: (_SYSCTLS / key).write_text(value))

    def toward(self, address: str) -> str:
        """The device that packets to that address leave by; "" when there is none."""
        from pyroute2.netlink.exceptions import NetlinkError

        socket = self._socket("")
        family = 10 if ":" in address else 2
        try:
            found = [route.get("oif") for route in socket.route("get", dst=address, family=family)]
        except NetlinkError:
            return ""
        names = {link["index"]: link.get("ifname") for link in socket.get_links()}
        return str(names.get(found[0], "")) if found else ""

    def visitors(self) -> tuple[str, ...]:
        """Addresses that are logged in by SSH now."""
        found = list[str]()
        if self._netns is None and os.environ.get("SSH_CONNECTION"):
            found.append(os.environ["SSH_CONNECTION"].split()[0])
        return tuple(dict.fromkeys([*found, *self._inside("", lambda: list(_logged_in()))]))

    def _socket(self, namespace: str) -> Any:
        from pyroute2 import IPRoute

        if namespace not in self._open:
            name = namespace or self._netns
            try:
                with _without_termination():
                    opened = IPRoute(netns=name, flags=0) if name else IPRoute()
            except PermissionError:
                raise BadInputError(f"only root may look into the network namespace {name}") from None
            self._open[namespace] = self._stack.enter_context(opened)
        return self._open[namespace]

    def _inside(self, namespace: str, function: Callable[[], T]) -> T:
        name = namespace or self._netns
        return function() if name is None else inside(name, function)


def exists(namespace: str) -> bool:
    """Whether there is a network namespace of that name."""
    return (NAMESPACES / namespace).exists()


@contextmanager
def _without_termination() -> Iterator[None]:
    """SIGTERM waits meanwhile, in this thread and in what it forks.

    pyroute2 opens a socket in another namespace in a fork of this process and ends that by SIGTERM. If our
    own handler raises, the fork would go on as if it were us, and clean up what is not its own.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def inside(namespace: str, function: Callable[[], T]) -> T:
    """What the function returns when it is called in that network namespace."""
    from pyroute2 import netns

    result = list[T]()
    raised = list[BaseException]()

    def enter_and_call() -> None:
        try:
            netns.setns(namespace, flags=0)
            result.append(function())
        except BaseException as error:
            raised.append(error)

    # Entering a namespace is a thread's own affair: this one enters, does it, and ends.
    thread = threading.Thread(target=enter_and_call)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return result[0]


def _logged_in() -> Iterator[str]:
    """Peers of established connections to port 22."""
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/thread-self/net/{table}").read_text().splitlines()[1:]
        except OSError:  # a kernel without that family
            continue
        for line in lines:
            _, local, remote, state = line.split()[:4]
            if state == _ESTABLISHED and int(local.rsplit(":", 1)[1], 16) == _SSH:
                yield _spelled(remote.rsplit(":", 1)[0])


def _spelled(told: str) -> str:
    """An address from /proc/net/tcp, where it is words of four bytes in the machine's own order."""
    words = [int(told[place : place + 8], 16) for place in range(0, len(told), 8)]
    found = ip_address(b"".join(word.to_bytes(4, sys.byteorder) for word in words))
    return str(getattr(found, "ipv4_mapped", None) or found)


def made_in(namespace: str | None, make: Callable[[], T]) -> T:
    """What `make` makes in the network namespace of that name; None is this thread's own."""
    if namespace is None:
        return make()
    if not (NAMESPACES / namespace).exists():
        raise NotFoundError(f"there is no network namespace {namespace}")
    return inside(namespace, make)
