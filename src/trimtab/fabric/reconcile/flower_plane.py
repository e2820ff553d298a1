"""The data plane of tc's flower classifier, whose rules a network card can execute.

A rule is one match and two actions (seed 002, §3.4.1): a frame to that MAC gets the tunnel's VNI and its
host's loopback as metadata, and is redirected to the sender. Actions are shared by index: there is one of the
first kind per host that has MACs of the tenant, and one of the second kind for all.

An action is made by the first rule that names its index, shared by the next ones (which repeat it in full;
the kernel ignores that), and removed with the last. Made without a rule it would have to be offloaded by
itself, which few cards support. A rule of the card and a rule of the kernel cannot share one.
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
from trimtab.fabric.reconcile.bpf_plane import INGRESS, PRIORITY, Hook, detach, no_ports_error
from trimtab.fabric.reconcile.forwarding import pin
from trimtab.fabric.reconcile.planes import Changes, PlaneError, Table, host_text, mac_bytes, mac_text
from trimtab.fabric.reconcile.sender import SENDER, TUNNEL_PORT, put_sender, remove_sender
from trimtab.fabric.topology import FabricHost, TenantNetwork, WorkerDevice
from trimtab.kernel import NetworkNamespace, NoNamespaceError, rtnetlink

NOWHERE = bytes(4)
"""Instead of the host of a MAC whose rules differ between ports."""
Executor = Literal["skip_sw", "skip_hw"]
"""tc's flag of a rule: only the card executes it, or only the kernel."""
_EXECUTORS: tuple[Executor, Executor] = ("skip_sw", "skip_hw")
End = tuple[Executor, bytes]
"""Identifies an action that sets a tunnel: its executor, and the host at the tunnel's end."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The host of each MAC, its rule's handle on each port, and the indices of the actions they use."""

    hosts: Table = field(default_factory=dict)
    handles: Mapping[str, Mapping[bytes, int]] = field(default_factory=dict)
    actions: Mapping[End, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Numbers:
    """Indices of actions: the tenant's tunnels, all tunnels, and the redirects to the sender."""

    tunnels: Mapping[int, End] = field(default_factory=dict)
    taken: frozenset[int] = frozenset()
    redirects: Mapping[Executor, int] = field(default_factory=lambda: {"skip_sw": 1, "skip_hw": 2})


def changing_lines(
    host: FabricHost, tenant: TenantNetwork, held: Rules, changes: Changes, numbers: Numbers
) -> tuple[list[str], Rules]:
    """The lines for `tc -batch`, in order, and the rules after them, for ports whose rules are known.

    Deletions come first: a card may have no room for more.
    """
    hosts = {**held.hosts, **changes.put}
    for mac in changes.forget:
        hosts.pop(mac, None)
    ports = [device for device in tenant.devices if device.port in held.handles]
    actions = {end: index for end, index in held.actions.items() if numbers.tunnels.get(index) == end}
    free = _free({*numbers.taken, *actions.values()})
    for end in [(executor_of(device), address) for device in ports for address in changes.put.values()]:
        if end not in actions:
            actions[end] = next(free)
    texts = {
        (executor, address): f"action tunnel_key set src_ip {host.loopback} dst_ip {host_text(address)} "
        f"id {tenant.vni} dst_port {TUNNEL_PORT} nocsum index {index} "
        f"action mirred egress redirect dev {SENDER} index {numbers.redirects[executor]}"
        for (executor, address), index in actions.items()
    }
    lines, handles = list[str](), dict[str, Mapping[bytes, int]]()
    for device in ports:
        port_lines, handles[device.port] = _port_lines(device, held.handles[device.port], texts, changes)
        lines += port_lines
    used = set(hosts.values())
    return lines, Rules(hosts, handles, {end: index for end, index in actions.items() if end[1] in used})


def _port_lines(
    device: WorkerDevice, held: Mapping[bytes, int], actions: Mapping[End, str], changes: Changes
) -> tuple[list[str], dict[bytes, int]]:
    handles, lines = dict(held), list[str]()
    executor = executor_of(device)
    place = f"dev {device.port} ingress protocol all pref {PRIORITY} handle"
    for mac in changes.forget:
        if mac in handles:
            lines.append(f"filter del {place} {handles.pop(mac)} flower")
    free = _free(set(handles.values()))
    for mac, address in changes.put.items():
        verb = "replace" if mac in handles else "add"
        if mac not in handles:
            handles[mac] = next(free)
        match = f"flower {executor} dst_mac {mac_text(mac)}"
        lines.append(f"filter {verb} {place} {handles[mac]} {match} {actions[executor, address]}")
    return lines, handles


def read_rules(host: FabricHost, tenant: TenantNetwork, filters: Mapping[str, list[dict[str, Any]]]) -> Rules:
    """Rules in the output of `tc -j` about filters of our priority, by port."""
    actions = dict[End, int]()
    ports = dict[str, dict[bytes, tuple[int, bytes]]]()
    for device in tenant.devices:
        if device.port in filters:
            ports[device.port] = {}
            executor = executor_of(device)
            for mac, handle, tunnel in _parsed_rules(filters[device.port], executor):
                address = _host_of(host, tenant, tunnel)
                ports[device.port][mac] = handle, address
                if address != NOWHERE:
                    actions.setdefault((executor, address), tunnel["index"])
    hosts = dict[bytes, bytes]()
    for mac in {mac for rules in ports.values() for mac in rules}:
        addresses = {rules[mac][1] if mac in rules else NOWHERE for rules in ports.values()}
        hosts[mac] = addresses.pop() if len(addresses) == 1 else NOWHERE
    handles = {port: {mac: handle for mac, (handle, _) in rules.items()} for port, rules in ports.items()}
    return Rules(hosts, handles, actions)


def read_numbers(
    host: FabricHost, tenant: TenantNetwork, tunnels: list[dict[str, Any]], redirects: list[dict[str, Any]]
) -> Numbers:
    """Indices in the output of `tc -j` about actions that set a tunnel and actions that redirect."""
    own = {
        action["index"]: (executor, address)
        for action in tunnels
        for executor in _EXECUTORS
        if action.get(executor) and (address := _host_of(host, tenant, action)) != NOWHERE
    }
    free = _free({action["index"] for action in redirects})
    to_sender = dict[Executor, int]()
    for executor in _EXECUTORS:
        present = [action["index"] for action in redirects if action.get(executor) and _leads_out(action)]
        to_sender[executor] = min(present) if present else next(free)
    return Numbers(own, frozenset(action["index"] for action in tunnels), to_sender)


def executor_of(device: WorkerDevice) -> Executor:
    """The executor of rules on its port."""
    return "skip_hw" if device.function is None else "skip_sw"


def _parsed_rules(
    rules: list[dict[str, Any]], executor: Executor
) -> Iterator[tuple[bytes, int, dict[str, Any]]]:
    """MAC, handle and the tunnel action of each rule on a port; {} where it does not lead to the sender."""
    for rule in rules:
        options = rule.get("options", {})
        mac = options.get("keys", {}).get("dst_mac")
        if mac is not None:
            actions = {action["kind"]: action for action in options.get("actions", [])}
            is_right = options.get(executor, False) and _leads_out(actions.get("mirred", {}))
            yield mac_bytes(mac), options["handle"], actions.get("tunnel_key", {}) if is_right else {}


def _leads_out(redirect: Mapping[str, Any]) -> bool:
    return redirect.get("to_dev") == SENDER


def _host_of(host: FabricHost, tenant: TenantNetwork, tunnel: Mapping[str, Any]) -> bytes:
    """The host to which an action sends the tenant's frames; NOWHERE if it is not one of the tenant's."""
    fields = tunnel.get("key_id"), tunnel.get("src_ip"), tunnel.get("dst_port")
    is_ours = fields == (tenant.vni, str(host.loopback), TUNNEL_PORT)
    return IPv4Address(tunnel["dst_ip"]).packed if is_ours else NOWHERE


def _free(taken: set[int]) -> Iterator[int]:
    return (number for number in count(1) if number not in taken)


_TIMEOUT = 30.0
_NUMBERING = threading.Lock()  # tenants choose indices for actions one after the other
_TRIAL = """qdisc add dev lo clsact
filter add dev lo ingress protocol all pref 1 flower skip_hw dst_mac 02:00:00:00:00:01 action tunnel_key set \
src_ip 10.0.0.1 dst_ip 10.0.0.2 id 1 dst_port 4789 action mirred egress redirect dev lo
"""


class FlowerPlane:
    """The plane of one tenant of a host, in the network namespace of the calling thread."""

    name = "flower"

    def __init__(self, host: FabricHost, tenant: TenantNetwork) -> None:
        self._host = host
        self._tenant = tenant
        self._rules = Rules()

    @property
    def devices(self) -> frozenset[str]:
        return frozenset({SENDER, *(device.port for device in self._tenant.devices)})

    def prepare(self) -> int:
        """Set up the sender, clsact on each port that exists, and the workers' MACs."""
        ports = self._ports()
        if not ports:
            raise no_ports_error(self._tenant)
        with rtnetlink.Netlink() as netlink:
            _, was_wrong = put_sender(netlink, self._host.worker_mtu)
            wrong = int(was_wrong)
            for device in ports:
                wrong += pin(netlink, Hook(device.port, INGRESS).index(), mac_bytes(device.mac))
        missing = [device.port for device in ports if not _takes_rules(device.port)]
        _batch([f"qdisc add dev {port} clsact" for port in missing])
        return wrong + len(missing)

    def entries(self) -> Table:
        """The host to which the rules on all its ports send each MAC."""
        filters = {
            device.port: _show(f"filter show dev {device.port} ingress pref {PRIORITY}")
            for device in self._ports()
            if _takes_rules(device.port)
        }
        self._rules = read_rules(self._host, self._tenant, filters)
        return self._rules.hosts

    def apply(self, changes: Changes) -> None:
        """Run tc once. Frames of refused rules go through the bridge and the tunnel."""
        with _NUMBERING:
            numbers = read_numbers(
                self._host, self._tenant, _parsed_actions("tunnel_key"), _parsed_actions("mirred")
            )
            lines, rules = changing_lines(self._host, self._tenant, self._rules, changes, numbers)
            _batch(lines)
        self._rules = rules

    def trust(self, seconds: float) -> None:
        """Rules have no expiry."""

    def remove(self) -> None:
        """Remove the tenant's rules and actions; with the host's last tenant the sender too.

        The workers' MACs stay pinned: they are behind those ports for as long as the ports exist.
        """
        self._rules = Rules()
        others = [tenant for tenant in self._host.tenants if tenant != self._tenant]
        with rtnetlink.Netlink() as netlink:
            for device in self._tenant.devices:
                detach(netlink, Hook(device.port, INGRESS), also_rules=True)
            if not any(FlowerPlane(self._host, tenant).entries() for tenant in others):
                remove_sender(netlink)

    def close(self) -> None: ...

    def _ports(self) -> list[WorkerDevice]:
        return [device for device in self._tenant.devices if Hook(device.port, INGRESS).exists]


def flower_unavailable() -> str | None:
    """Why this plane cannot be used here; None where it can. Tried in a new namespace."""
    if shutil.which("tc") is None:
        return "tc is not installed here: apt-get install iproute2"
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
    return any(qdisc["kind"] == "clsact" for qdisc in _show(f"qdisc show dev {port}"))


def _parsed_actions(kind: str) -> list[dict[str, Any]]:
    return [action for part in _show(f"actions list action {kind}") for action in part.get("actions", [])]


def _show(command: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(_tc(["-j", *command.split()], f"`tc {command}` failed") or "[]")
    return rows


def _batch(lines: list[str]) -> None:
    """Run all lines, even after one is refused."""
    if lines:
        refusal = f"tc refused some of {len(lines)} changes, so these frames go through the tunnel's table"
        _tc(["-force", "-batch", "-"], refusal, "\n".join(lines) + "\n")


def _tc(words: list[str], refusal: str, lines: str = "") -> str:
    try:
        done = subprocess.run(["tc", *words], input=lines, text=True, capture_output=True, timeout=_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PlaneError(f"{refusal}: {one_line(str(error)):.200}") from None
    if done.returncode:
        raise PlaneError(f"{refusal}: {one_line(done.stderr):.200}")
    return done.stdout
