"""Rules of tc's flower classifier as text: what is there, and the lines that change it. No I/O here.

A rule is one match and two actions (seed 002, §3.4.1): a frame to that MAC is given the tunnel's number and
its host's loopback as metadata, and is handed to the sender. Actions are shared by index: the first kind is
one per host that has MACs of the tenant, the second is one for all.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from itertools import count
from typing import Any

from trimtab.fabric.reconcile.changes import Changes, Table, host_text, mac_bytes, mac_text
from trimtab.fabric.reconcile.program_hooks import PRIORITY
from trimtab.fabric.reconcile.sender import SENDER, TUNNEL_PORT
from trimtab.fabric.topology import Host, Tenant, WorkerDevice

REDIRECT = 4789
"""The index of the one action that hands frames to the sender."""
NOWHERE = bytes(4)
"""Stands for the host of a MAC whose rules are not the same on all ports."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What is there: where each MAC is sent, its rule's handle on each port, each host's action by index."""

    hosts: Table = field(default_factory=dict)
    handles: Mapping[str, Mapping[bytes, int]] = field(default_factory=dict)
    actions: Mapping[bytes, int] = field(default_factory=dict)
    taken: frozenset[int] = frozenset()  # indices of others' actions


def preparing_lines(tenant: Tenant, without_qdisc: Iterable[str], has_redirect: bool) -> list[str]:
    """What rules need before there can be any."""
    lacking = set(without_qdisc)
    lines = [f"qdisc add dev {each.port} clsact" for each in tenant.devices if each.port in lacking]
    if not has_redirect:
        lines.append(f"actions add action mirred egress redirect dev {SENDER} index {REDIRECT}")
    return lines


def changing_lines(host: Host, tenant: Tenant, held: Rules, changes: Changes) -> tuple[list[str], Rules]:
    """The lines for `tc -batch`, in an order in which each makes sense, and what is there after them."""
    hosts = {**held.hosts, **changes.put}
    for mac in changes.forget:
        hosts.pop(mac, None)
    actions, handles, lines = dict(held.actions), dict[str, Mapping[bytes, int]](), list[str]()
    free = _free({*held.taken, *actions.values()})
    for at in changes.put.values():
        if at not in actions:
            actions[at] = next(free)
            lines.append(_tunnel_action(host, tenant, at, actions[at]))
    for device in tenant.devices:
        of_port, handles[device.port] = _port_lines(
            device, held.handles.get(device.port, {}), actions, changes
        )
        lines += of_port
    for at in actions.keys() - hosts.values():
        lines.append(f"actions del action tunnel_key index {actions.pop(at)}")
    return lines, Rules(hosts, handles, actions, held.taken)


def _port_lines(
    device: WorkerDevice, held: Mapping[bytes, int], actions: Mapping[bytes, int], changes: Changes
) -> tuple[list[str], dict[bytes, int]]:
    handles, free = dict(held), _free(set(held.values()))
    lines = list[str]()
    for mac, at in changes.put.items():
        how = "replace" if mac in handles else "add"
        if mac not in handles:
            handles[mac] = next(free)
        lines.append(_rule(how, device, handles[mac], mac, actions[at]))
    for mac in changes.forget:
        if mac in handles:
            lines.append(f"filter del {_place(device, handles.pop(mac))} flower")
    return lines, handles


def removing_lines(tenant: Tenant, held: Rules, is_last: bool) -> list[str]:
    """Everything of the tenant away, and with the last tenant what all share."""
    ports = [port for port, handles in held.handles.items() if handles]
    lines = [f"filter del dev {port} ingress pref {PRIORITY}" for port in ports]
    lines += [f"actions del action tunnel_key index {index}" for index in held.actions.values()]
    return lines + [f"actions del action mirred index {REDIRECT}"] * is_last


def read_rules(
    host: Host, tenant: Tenant, filters: Mapping[str, list[dict[str, Any]]], actions: list[dict[str, Any]]
) -> Rules:
    """From what `tc -j` shows: filters by port, and all actions that set a tunnel."""
    ours, taken = dict[int, bytes](), set[int]()
    for action in (action for part in actions for action in part.get("actions", [])):
        if (action.get("key_id"), action.get("src_ip")) == (tenant.vni, str(host.loopback)):
            ours[action["index"]] = IPv4Address(action["dst_ip"]).packed
        else:
            taken.add(action["index"])
    ports = {
        port: {mac: (handle, at) for mac, handle, at in _rules_of(shown, ours)}
        for port, shown in filters.items()
    }
    hosts = dict[bytes, bytes]()
    for mac in {mac for rules in ports.values() for mac in rules}:
        found = {rules[mac][1] if mac in rules else NOWHERE for rules in ports.values()}
        hosts[mac] = found.pop() if len(found) == 1 else NOWHERE
    handles = {port: {mac: handle for mac, (handle, _) in rules.items()} for port, rules in ports.items()}
    return Rules(hosts, handles, {at: index for index, at in ours.items()}, frozenset(taken))


def _rules_of(shown: list[dict[str, Any]], ours: Mapping[int, bytes]) -> Iterator[tuple[bytes, int, bytes]]:
    """MAC, handle and host of each rule on a port."""
    for rule in shown:
        options = rule.get("options", {})
        mac = options.get("keys", {}).get("dst_mac")
        if mac is not None and rule.get("pref") == PRIORITY:
            actions = {action["kind"]: action for action in options.get("actions", [])}
            leads_out = actions.get("mirred", {}).get("to_dev") == SENDER
            at = ours.get(actions.get("tunnel_key", {}).get("index", 0), NOWHERE)
            yield mac_bytes(mac), options["handle"], at if leads_out else NOWHERE


def _tunnel_action(host: Host, tenant: Tenant, at: bytes, index: int) -> str:
    return (
        f"actions add action tunnel_key set src_ip {host.loopback} dst_ip {host_text(at)} id {tenant.vni} "
        f"dst_port {TUNNEL_PORT} nocsum index {index}"
    )


def _rule(how: str, device: WorkerDevice, handle: int, mac: bytes, action: int) -> str:
    """On a card's port the card alone does it; elsewhere no card is asked."""
    return (
        f"filter {how} {_place(device, handle)} flower {'skip_hw' if device.function is None else 'skip_sw'} "
        f"dst_mac {mac_text(mac)} action tunnel_key index {action} action mirred index {REDIRECT}"
    )


def _place(device: WorkerDevice, handle: int) -> str:
    return f"dev {device.port} ingress protocol all pref {PRIORITY} handle {handle}"


def _free(taken: set[int]) -> Iterator[int]:
    return (number for number in count(1) if number not in taken)
