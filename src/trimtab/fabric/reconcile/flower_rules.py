"""Rules of tc's flower classifier as text: what is there, and the lines that change it. No I/O here.

A rule is one match and two actions (seed 002, §3.4.1): a frame to that MAC is given the tunnel's number and
its host's loopback as metadata, and is handed to the sender. Actions are shared by index: the first kind is
one per host that has MACs of the tenant, the second is one for all.

An action is made by the first rule that names its index, joined by the next ones (which say all of it too,
and are not heard), and gone with the last. Made apart from rules it would have to go into the card by
itself, which few cards take. Rules that are the card's and rules that are the kernel's cannot share one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from itertools import count
from typing import Any, Literal

from trimtab.fabric.reconcile.changes import Changes, Table, host_text, mac_bytes, mac_text
from trimtab.fabric.reconcile.program_hooks import PRIORITY
from trimtab.fabric.reconcile.sender import SENDER, TUNNEL_PORT
from trimtab.fabric.topology import Host, Tenant, WorkerDevice

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
