"""The machine's network, by network namespace: links, addresses and routes, and a way to change them."""

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

NAMESPACES = Path("/run/netns")
_OWN_NAMESPACE = "/proc/thread-self/ns/net"
_SYSCTLS = Path("/proc/sys")
_SSH, _ESTABLISHED = 22, "01"
_MAIN_TABLE = 254
_WITH_FUNCTIONS = 1  # RTEXT_FILTER_VF
_UP = 1  # IFF_UP

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Tunneled:
    """Settings of a VXLAN device. An `external` one takes the VNI from each packet's metadata."""

    vni: int
    local: str
    port: int
    learning: bool
    external: bool


@dataclass(frozen=True, slots=True)
class Link:
    """A network device. `master` is its bridge or bond, `below` the device that a VLAN or the like is on."""

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
class NetworkRoute:
    """A route of the main table. `rto_min` is TCP's least retransmission timeout there, in ms, if set."""

    network: IPv4Network
    devices: tuple[str, ...]
    rto_min: int | None = None


@dataclass(frozen=True, slots=True)
class NamespaceState:
    """The devices, addresses and routes of a network namespace."""

    links: Mapping[str, Link] = field(default_factory=dict)
    addresses: tuple[tuple[str, IPv4Interface], ...] = ()
    routes: tuple[NetworkRoute, ...] = ()
    ways_out: frozenset[str] = frozenset()  # devices of default routes, whatever the table and family


def _read_namespace(socket: Any) -> NamespaceState:
    """Read through a pyroute2 socket that was opened inside the namespace."""
    messages = list(socket.get_links(ext_mask=_WITH_FUNCTIONS))
    names = {message["index"]: str(message.get("ifname")) for message in messages}
    links = (_link(message, names) for message in messages)
    addresses = tuple(
        (
            names.get(message["index"], ""),
            IPv4Interface((str(message.get("local") or message.get("address")), message["prefixlen"])),
        )
        for message in socket.get_addr(family=2)
    )
    routes, ways_out = list[NetworkRoute](), set[str]()
    for message in socket.get_routes():
        hops = [message.get("oif"), *(hop["oif"] for hop in message.get("multipath") or ())]
        devices = tuple(names[index] for index in hops if index in names)
        if message["dst_len"] == 0 and message["type"] == 1:
            ways_out.update(devices)
        elif message["family"] == 2 and message.get("table") == _MAIN_TABLE:
            network = IPv4Network((message.get("dst"), message["dst_len"]))
            routes.append(NetworkRoute(network, devices, message.get_nested("metrics", "rto_min")))
    return NamespaceState({link.name: link for link in links}, addresses, tuple(routes), frozenset(ways_out))


def _link(message: Any, names: Mapping[int, str]) -> Link:
    kind = message.get_nested("linkinfo", "kind") or ""
    # A veth's other end is not below it, and the index of a device in another namespace means nothing here.
    is_apart = kind == "veth" or message.get("link_netnsid") is not None
    tunneled, port = None, {}
    if kind == "vxlan":
        data = message.get_nested("linkinfo", "data")
        tunneled = Tunneled(
            int(data.get("vxlan_id") or 0),
            str(data.get("vxlan_local") or ""),
            int(data.get("vxlan_port") or 0),
            bool(data.get("vxlan_learning")),
            bool(data.get("vxlan_collect_metadata")),
        )
    if message.get_nested("linkinfo", "slave_kind") == "bridge":
        data = message.get_nested("linkinfo", "slave_data")
        port = {name: bool(data.get(name)) for name in ("learning", "neigh_suppress")}
    functions = (
        entry[1].get_attr("IFLA_VF_MAC") for entry in (message.get("vfinfo_list") or {}).get("attrs", ())
    )
    return Link(
        str(message.get("ifname")),
        kind,
        int(message.get("mtu") or 0),
        int(message.get("max_mtu") or 0),
        message.get("address") or "",
        bool(message["flags"] & _UP),
        names.get(message.get("master") or 0, ""),
        "" if is_apart else names.get(message.get("link") or 0, ""),
        tunneled,
        port,
        {int(function["vf"]): str(function["mac"]) for function in functions if function},
    )


class Machine:
    """A network namespace (by name; None is this thread's own) and, by name, those of its workers.

    Use as a context. State is cached until something is changed through `netlink`.
    """

    def __init__(self, netns: str | None = None) -> None:
        if netns is not None and not exists(netns):
            raise BadInputError(f"there is no network namespace {netns}; make it with ip netns add {netns}")
        self._netns = netns
        self._sockets = dict[str, Any]()
        self._states = dict[str, NamespaceState]()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    @property
    def namespace_file(self) -> Path:
        return Path(_OWN_NAMESPACE) if self._netns is None else NAMESPACES / self._netns

    def identity(self) -> str:
        """Identifies the namespace while it exists, by whatever name it is reached."""
        status = os.stat(self.namespace_file)
        return f"{status.st_dev}:{status.st_ino}"

    def state(self, namespace: str = "") -> NamespaceState:
        """State of a namespace; "" is the host's own. Empty for one that does not exist."""
        if namespace not in self._states:
            is_there = not namespace or exists(namespace)
            self._states[namespace] = (
                _read_namespace(self._socket(namespace)) if is_there else NamespaceState()
            )
        return self._states[namespace]

    def netlink(self, namespace: str = "") -> Any:
        """A pyroute2 socket in that namespace, to change something; cached state is dropped."""
        self._states.clear()
        return self._socket(namespace)

    def find(self, device: str, namespace: str = "") -> int | None:
        """The kernel's index of a device, looked up now; None when there is no such device."""
        indexes = self._socket(namespace).link_lookup(ifname=device)
        return int(indexes[0]) if indexes else None

    def index(self, device: str, namespace: str = "") -> int:
        """The kernel's index of a device; OSError when there is no such device."""
        index = self.find(device, namespace)
        if index is None:
            raise OSError(errno.ENODEV, f"there is no device {device}")
        return index

    def sysctl(self, key: str, namespace: str = "") -> str | None:
        """Value of a sysctl, None where there is none; `key` has slashes, as in net/ipv4/ip_forward."""
        try:
            return inside(namespace or self._netns, lambda: (_SYSCTLS / key).read_text().strip())
        except (FileNotFoundError, NotFoundError):
            return None

    def set_sysctl(self, key: str, value: str, namespace: str = "") -> None:
        inside(namespace or self._netns, lambda: (_SYSCTLS / key).write_text(value))

    def device_toward(self, address: str) -> str:
        """The device that packets to that address leave by; "" when there is none."""
        from pyroute2.netlink.exceptions import NetlinkError

        socket = self._socket("")
        family = 10 if ":" in address else 2
        try:
            indexes = [route.get("oif") for route in socket.route("get", dst=address, family=family)]
        except NetlinkError:
            return ""
        names = {link["index"]: link.get("ifname") for link in socket.get_links()}
        return str(names.get(indexes[0], "")) if indexes else ""

    def ssh_clients(self) -> tuple[str, ...]:
        """Addresses that are logged in by SSH now."""
        clients = inside(self._netns, _connected_to_ssh)
        if self._netns is None and os.environ.get("SSH_CONNECTION"):
            clients.insert(0, os.environ["SSH_CONNECTION"].split()[0])
        return tuple(dict.fromkeys(clients))

    def _socket(self, namespace: str) -> Any:
        from pyroute2 import IPRoute

        if namespace not in self._sockets:
            name = namespace or self._netns
            try:
                with _without_termination():
                    socket = IPRoute(netns=name, flags=0) if name else IPRoute()
            except PermissionError:
                raise BadInputError(f"only root may look into the network namespace {name}") from None
            self._sockets[namespace] = self._stack.enter_context(socket)
        return self._sockets[namespace]


def exists(namespace: str) -> bool:
    """Whether there is a network namespace of that name."""
    return (NAMESPACES / namespace).exists()


@contextmanager
def _without_termination() -> Iterator[None]:
    """Block SIGTERM meanwhile, in this thread and in processes that it forks.

    pyroute2 opens a socket in another namespace in a fork of this process and ends that by SIGTERM. If our
    own handler raised, the fork would go on as a copy of us, and clean up what is not its own.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def inside(namespace: str | None, function: Callable[[], T]) -> T:
    """Call the function in the network namespace of that name; None is this thread's own."""
    from pyroute2 import netns

    if namespace is None:
        return function()
    if not exists(namespace):
        raise NotFoundError(f"there is no network namespace {namespace}")
    results, errors = list[T](), list[BaseException]()

    def enter_and_call() -> None:
        try:
            netns.setns(namespace, flags=0)
            results.append(function())
        except BaseException as error:
            errors.append(error)

    # A namespace belongs to a thread: this one enters it, calls, and ends.
    thread = threading.Thread(target=enter_and_call)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _connected_to_ssh() -> list[str]:
    """Peers of established connections to port 22.

    In /proc/net/tcp an address is words of four bytes in the machine's own order, in hexadecimal.
    """
    peers = list[str]()
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/thread-self/net/{table}").read_text().splitlines()[1:]
        except OSError:  # a kernel without that family
            continue
        for line in lines:
            _, local, remote, state = line.split()[:4]
            if state == _ESTABLISHED and int(local.rsplit(":", 1)[1], 16) == _SSH:
                digits = remote.rsplit(":", 1)[0]
                words = [int(digits[place : place + 8], 16) for place in range(0, len(digits), 8)]
                address = ip_address(b"".join(word.to_bytes(4, sys.byteorder) for word in words))
                peers.append(str(getattr(address, "ipv4_mapped", None) or address))
    return peers
