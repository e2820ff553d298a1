"""The data plane for cards that forward by themselves: flower rules, which drivers put into hardware.

In software (`skip_hw`) it works as well, but flows do not spread: the action keeps the route of the first.
What has been set goes on without us, and unlike the BPF plane it does not step aside when nobody renews it:
a card has no clock for that. Only sending is by rule; received packets are unwrapped by the tenant's
tunnel.
"""

import json
import shutil
import subprocess
from typing import Any

from trimtab.core import one_line
from trimtab.fabric.reconcile.changes import Changes, Table, mac_bytes
from trimtab.fabric.reconcile.flower_rules import (
    REDIRECT,
    Rules,
    changing_lines,
    preparing_lines,
    read_rules,
    removing_lines,
)
from trimtab.fabric.reconcile.forwarding import pin
from trimtab.fabric.reconcile.netlink import Netlink
from trimtab.fabric.reconcile.plane import PlaneError
from trimtab.fabric.reconcile.program_hooks import INGRESS, PRIORITY, Hook
from trimtab.fabric.reconcile.sender import SENDER, TUNNEL_PORT, put_sender, remove_sender
from trimtab.fabric.topology import Host, Tenant
from trimtab.kernel import NetworkNamespace, NoNamespaceError

_TIMEOUT = 30.0
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
        """The sender, the action that leads to it, a place for rules on each port, and the workers' MACs."""
        with Netlink() as netlink:
            _, was_wrong = put_sender(netlink, self._host.worker_mtu)
            wrong = int(was_wrong)
            for device in self._tenant.devices:
                wrong += pin(netlink, Hook(device.port, INGRESS).index(), mac_bytes(device.mac))
        ports = [device.port for device in self._tenant.devices]
        lines = preparing_lines(
            self._tenant, [port for port in ports if not _takes_rules(port)], _leads_to_sender()
        )
        _batch(lines)
        return wrong + len(lines)

    def entries(self) -> Table:
        """Where the rules on all its ports send each MAC."""
        ports = [device.port for device in self._tenant.devices]
        shown = {port: _show(f"filter show dev {port} ingress pref {PRIORITY}") for port in ports}
        self._rules = read_rules(self._host, self._tenant, shown, _show("actions list action tunnel_key"))
        return self._rules.hosts

    def apply(self, changes: Changes) -> None:
        """With one run of tc."""
        lines, rules = changing_lines(self._host, self._tenant, self._rules, changes)
        _batch(lines)
        self._rules = rules

    def trust(self, seconds: float) -> None:
        """Rules hold until they are taken away."""

    def remove(self) -> None:
        """The tenant's rules and actions; with the host's last tenant the sender too. MACs stay pinned."""
        self.entries()
        others = [tenant for tenant in self._host.tenants if tenant != self._tenant]
        is_last = not any(FlowerPlane(self._host, tenant).entries() for tenant in others)
        _batch(removing_lines(self._tenant, self._rules, is_last))
        self._rules = Rules()
        if is_last:
            with Netlink() as netlink:
                remove_sender(netlink)

    def close(self) -> None:
        """There is nothing to let go of."""


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


def remove_actions() -> None:
    """The actions of all tenants, once no rule uses them; others' are left alone."""
    if _leads_to_sender():
        ours = [
            each["index"]
            for each in _actions("tunnel_key")
            if each.get("dst_port") == TUNNEL_PORT and not each.get("bind")
        ]
        lines = [f"actions del action tunnel_key index {index}" for index in ours]
        _batch([*lines, f"actions del action mirred index {REDIRECT}"])


def _leads_to_sender() -> bool:
    return any((each["index"], each.get("to_dev")) == (REDIRECT, SENDER) for each in _actions("mirred"))


def _takes_rules(port: str) -> bool:
    return any(each["kind"] == "clsact" for each in _show(f"qdisc show dev {port}"))


def _actions(kind: str) -> list[dict[str, Any]]:
    return [each for part in _show(f"actions list action {kind}") for each in part.get("actions", [])]


def _show(what: str) -> list[dict[str, Any]]:
    """What `tc -j` prints."""
    shown: list[dict[str, Any]] = json.loads(_tc(["-j", *what.split()], f"`tc {what}` failed") or "[]")
    return shown


def _batch(lines: list[str]) -> None:
    if lines:
        _tc(["-batch", "-"], f"tc refused one of {len(lines)} changes", "\n".join(lines) + "\n")


def _tc(words: list[str], refusal: str, given: str = "") -> str:
    try:
        ran = subprocess.run(["tc", *words], input=given, text=True, capture_output=True, timeout=_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PlaneError(f"{refusal}: {one_line(str(error)):.200}") from None
    if ran.returncode:
        raise PlaneError(f"{refusal}: {one_line(ran.stderr):.200}")
    return ran.stdout
