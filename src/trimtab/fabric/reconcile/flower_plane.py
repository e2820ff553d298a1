"""Rules of tc's flower classifier as text: what is there, and the lines that change it. No I/O here.

A rule is one match and two actions (seed 002, §3.4.1): a frame to that MAC is given the tunnel's number and
its host's loopback as metadata, and is handed to the sender. Actions are shared by index: the first kind is
one per host that has MACs of the tenant, the second is one for all.

An action is made by the first rule that names its index, joined by the next ones (which say all of it too,
and are not heard), and gone with the last. Made apart from rules it would have to go into the card by
itself, which few cards take. Rules that are the card's and rules that are the kernel's cannot share one.
"""

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from itertools import count
from typing import Any, Literal

from trimtab.core import one_line
from trimtab.fabric.reconcile.bpf_plane import INGRESS, PRIORITY, Hook, detach
from trimtab.fabric.reconcile.forwarding import pin
from trimtab.fabric.reconcile.planes import Changes, PlaneError, Table, host_text, mac_bytes, mac_text
from trimtab.fabric.reconcile.sender import SENDER, TUNNEL_PORT, put_sender, remove_sender
from trimtab.fabric.topology import Host, Tenant, WorkerDevice
from trimtab.kernel import NetworkNamespace, NoNamespaceError, rtnetlink

NOWHERE = bytes(4)
"""Stands for the host of a MAC whose rules are not the same on all ports."""
Whose = Literal["skip_sw", "skip_hw"]
"""The card alone does it, or the kernel does and no card is asked."""
_WHOSE: tuple[Whose, Whose] = ("skip_sw", "skip_hw")
Ends = Mapping[tuple[Whose, bytes], int]
"""Actions that set a tunnel, by whose they are and the host at its end: their indices."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What is there: where each MAC is sent, its rule's handle on each port, and the actions they use."""

    hosts: Table = field(default_factory=dict)
    handles: Mapping[str, Mapping[bytes, int]] = field(default_factory=dict)
    actions: Ends = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Numbers:
    """Indices of actions: the tenant's tunnels, all tunnels, and those to use that lead to the sender."""

    tunnels: Mapping[int, tuple[Whose, bytes]] = field(default_factory=dict)
    taken: frozenset[int] = frozenset()
    redirects: Mapping[Whose, int] = field(default_factory=lambda: {"skip_sw": 1, "skip_hw": 2})


def changing_lines(
    host: Host, tenant: Tenant, held: Rules, changes: Changes, numbers: Numbers
) -> tuple[list[str], Rules]:
    """The lines for `tc -batch`, in an order in which each makes sense, and what is there after them.

    On the ports of which is known what they have. What is gone goes first: a card may have no room for more.
    """
    hosts = {**held.hosts, **changes.put}
    for mac in changes.forget:
        hosts.pop(mac, None)
    ports = [device for device in tenant.devices if device.port in held.handles]
    actions = {end: index for end, index in held.actions.items() if numbers.tunnels.get(index) == end}
    free = _free({*numbers.taken, *actions.values()})
    for end in [(whose(device), at) for device in ports for at in changes.put.values()]:
        if end not in actions:
            actions[end] = next(free)
    made = {end: _actions(host, tenant, end, index, numbers) for end, index in actions.items()}
    lines, handles = list[str](), dict[str, Mapping[bytes, int]]()
    for device in ports:
        of_port, handles[device.port] = _port_lines(device, held.handles[device.port], made, changes)
        lines += of_port
    used = set(hosts.values())
    return lines, Rules(hosts, handles, {end: index for end, index in actions.items() if end[1] in used})


def _port_lines(
    device: WorkerDevice,
    held: Mapping[bytes, int],
    actions: Mapping[tuple[Whose, bytes], str],
    changes: Changes,
) -> tuple[list[str], dict[bytes, int]]:
    handles, lines = dict(held), list[str]()
    for mac in changes.forget:
        if mac in handles:
            lines.append(f"filter del {_place(device, handles.pop(mac))} flower")
    free = _free(set(handles.values()))
    for mac, at in changes.put.items():
        how = "replace" if mac in handles else "add"
        if mac not in handles:
            handles[mac] = next(free)
        lines.append(_rule(how, device, handles[mac], mac, actions[whose(device), at]))
    return lines, handles


def read_rules(host: Host, tenant: Tenant, filters: Mapping[str, list[dict[str, Any]]]) -> Rules:
    """From what `tc -j` shows of our priority's filters on each port."""
    actions = dict[tuple[Whose, bytes], int]()
    ports = dict[str, dict[bytes, tuple[int, bytes]]]()
    for device in tenant.devices:
        if device.port in filters:
            ports[device.port] = {}
            for mac, handle, tunnel in _rules_of(filters[device.port], whose(device)):
                at = _host_of(host, tenant, tunnel)
                ports[device.port][mac] = handle, at
                if at != NOWHERE:
                    actions.setdefault((whose(device), at), tunnel["index"])
    hosts = dict[bytes, bytes]()
    for mac in {mac for rules in ports.values() for mac in rules}:
        found = {rules[mac][1] if mac in rules else NOWHERE for rules in ports.values()}
        hosts[mac] = found.pop() if len(found) == 1 else NOWHERE
    handles = {port: {mac: handle for mac, (handle, _) in rules.items()} for port, rules in ports.items()}
    return Rules(hosts, handles, actions)


def read_numbers(
    host: Host, tenant: Tenant, tunnels: list[dict[str, Any]], redirects: list[dict[str, Any]]
) -> Numbers:
    """From all actions that set a tunnel and all that redirect, as `tc -j` shows them."""
    ours = {
        each["index"]: (kind, at)
        for each in tunnels
        for kind in _WHOSE
        if each.get(kind) and (at := _host_of(host, tenant, each)) != NOWHERE
    }
    free = _free({each["index"] for each in redirects})
    to_sender = dict[Whose, int]()
    for kind in _WHOSE:
        there = [each["index"] for each in redirects if each.get(kind) and _leads_out(each)]
        to_sender[kind] = min(there) if there else next(free)
    return Numbers(ours, frozenset(each["index"] for each in tunnels), to_sender)


def whose(device: WorkerDevice) -> Whose:
    """Of the rules on its port."""
    return "skip_hw" if device.function is None else "skip_sw"


def _rules_of(shown: list[dict[str, Any]], kind: Whose) -> Iterator[tuple[bytes, int, dict[str, Any]]]:
    """MAC, handle and the action that sets the tunnel of each rule on a port; {} where it leads elsewhere."""
    for rule in shown:
        options = rule.get("options", {})
        mac = options.get("keys", {}).get("dst_mac")
        if mac is not None:
            actions = {action["kind"]: action for action in options.get("actions", [])}
            is_right = options.get(kind, False) and _leads_out(actions.get("mirred", {}))
            yield mac_bytes(mac), options["handle"], actions.get("tunnel_key", {}) if is_right else {}


def _leads_out(redirect: Mapping[str, Any]) -> bool:
    return redirect.get("to_dev") == SENDER


def _host_of(host: Host, tenant: Tenant, tunnel: Mapping[str, Any]) -> bytes:
    """Where an action sends the tenant's frames; NOWHERE if it is not one of the tenant's."""
    told = tunnel.get("key_id"), tunnel.get("src_ip"), tunnel.get("dst_port")
    is_ours = told == (tenant.vni, str(host.loopback), TUNNEL_PORT)
    return IPv4Address(tunnel["dst_ip"]).packed if is_ours else NOWHERE


def _actions(host: Host, tenant: Tenant, end: tuple[Whose, bytes], index: int, numbers: Numbers) -> str:
    kind, at = end
    return (
        f"action tunnel_key set src_ip {host.loopback} dst_ip {host_text(at)} id {tenant.vni} "
        f"dst_port {TUNNEL_PORT} nocsum index {index} "
        f"action mirred egress redirect dev {SENDER} index {numbers.redirects[kind]}"
    )


def _rule(how: str, device: WorkerDevice, handle: int, mac: bytes, actions: str) -> str:
    match = f"flower {whose(device)} dst_mac {mac_text(mac)}"
    return f"filter {how} {_place(device, handle)} {match} {actions}"


def _place(device: WorkerDevice, handle: int) -> str:
    return f"dev {device.port} ingress protocol all pref {PRIORITY} handle {handle}"


def _free(taken: set[int]) -> Iterator[int]:
    return (number for number in count(1) if number not in taken)


_TIMEOUT = 30.0
_NUMBERING = threading.Lock()  # tenants choose numbers for actions one after the other, lest two are the same
_TRIAL = """qdisc add dev lo clsact
filter add dev lo ingress protocol all pref 1 flower skip_hw dst_mac 02:00:00:00:00:01 action tunnel_key set \
src_ip 10.0.0.1 dst_ip 10.0.0.2 id 1 dst_port 4789 action mirred egress redirect dev lo
"""


class FlowerPlane:
    """Of one tenant of a host, in the network namespace of the thread that calls."""

    name = "flower"

    def __init__(self, host: Host, tenant: Tenant) -> None:
        self._host = host
        self._tenant = tenant
        self._rules = Rules()

    @property
    def devices(self) -> frozenset[str]:
        """What it lives on."""
        return frozenset({SENDER, *(device.port for device in self._tenant.devices)})

    def prepare(self) -> int:
        """The sender, a place for rules on each port that is there, and the workers' MACs."""
        ports = self._ports()
        if not ports:
            names = ", ".join(device.port for device in self._tenant.devices)
            raise PlaneError(
                f"none of the ports of tenant {self._tenant.name} is here ({names}); "
                f"`trimtab fabric up` makes them"
            )
        with rtnetlink.Netlink() as netlink:
            _, was_wrong = put_sender(netlink, self._host.worker_mtu)
            wrong = int(was_wrong)
            for device in ports:
                wrong += pin(netlink, Hook(device.port, INGRESS).index(), mac_bytes(device.mac))
        lacking = [device.port for device in ports if not _takes_rules(device.port)]
        _batch([f"qdisc add dev {port} clsact" for port in lacking])
        return wrong + len(lacking)

    def entries(self) -> Table:
        """Where the rules on all its ports send each MAC."""
        shown = {
            device.port: _show(f"filter show dev {device.port} ingress pref {PRIORITY}")
            for device in self._ports()
            if _takes_rules(device.port)
        }
        self._rules = read_rules(self._host, self._tenant, shown)
        return self._rules.hosts

    def apply(self, changes: Changes) -> None:
        """With one run of tc. What it refuses is left to the bridge and the tunnel."""
        with _NUMBERING:
            numbers = read_numbers(
                self._host, self._tenant, _parsed_actions("tunnel_key"), _parsed_actions("mirred")
            )
            lines, rules = changing_lines(self._host, self._tenant, self._rules, changes, numbers)
            _batch(lines)
        self._rules = rules

    def trust(self, seconds: float) -> None:
        """Rules hold until they are taken away."""

    def remove(self) -> None:
        """The tenant's rules, with their actions; with the host's last tenant the sender too.

        The workers' MACs stay pinned: they are behind those ports for as long as the ports exist.
        """
        self._rules = Rules()
        others = [tenant for tenant in self._host.tenants if tenant != self._tenant]
        with rtnetlink.Netlink() as netlink:
            for device in self._tenant.devices:
                detach(netlink, Hook(device.port, INGRESS), also_rules=True)
            if not any(FlowerPlane(self._host, tenant).entries() for tenant in others):
                remove_sender(netlink)

    def close(self) -> None:
        """There is nothing to let go of."""

    def _ports(self) -> list[WorkerDevice]:
        return [device for device in self._tenant.devices if Hook(device.port, INGRESS).is_there]


def flower_unavailable() -> str | None:
    """Why this plane cannot be used here; None where it can. Tried in a namespace of its own."""
    if shutil.which("tc") is None:
        return "there is no `tc` here; it is in the package iproute2"
    try:
        with NetworkNamespace() as namespace:
            tried = subprocess.run(
                ["tc", "-batch", "-"],
                input=_TRIAL,
                text=True,
                capture_output=True,
                timeout=_TIMEOUT,
                preexec_fn=namespace.enter,
            )
    except NoNamespaceError as error:
        return str(error)
    if tried.returncode:
        return (
            f"this kernel lacks cls_flower, act_tunnel_key or act_mirred, which the flower plane needs "
            f"({one_line(tried.stderr):.120})"
        )
    return None


def _takes_rules(port: str) -> bool:
    return any(each["kind"] == "clsact" for each in _show(f"qdisc show dev {port}"))


def _parsed_actions(kind: str) -> list[dict[str, Any]]:
    return [each for part in _show(f"actions list action {kind}") for each in part.get("actions", [])]


def _show(what: str) -> list[dict[str, Any]]:
    """What `tc -j` prints."""
    shown: list[dict[str, Any]] = json.loads(_tc(["-j", *what.split()], f"`tc {what}` failed") or "[]")
    return shown


def _batch(lines: list[str]) -> None:
    """All of them, also past one that is refused."""
    if lines:
        refusal = f"tc refused some of {len(lines)} changes, so these frames go through the tunnel's table"
        _tc(["-force", "-batch", "-"], refusal, "\n".join(lines) + "\n")


def _tc(words: list[str], refusal: str, given: str = "") -> str:
    try:
        ran = subprocess.run(["tc", *words], input=given, text=True, capture_output=True, timeout=_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PlaneError(f"{refusal}: {one_line(str(error)):.200}") from None
    if ran.returncode:
        raise PlaneError(f"{refusal}: {one_line(ran.stderr):.200}")
    return ran.stdout
