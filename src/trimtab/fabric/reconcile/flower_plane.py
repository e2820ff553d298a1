"""The data plane for cards that forward by themselves: flower rules, which drivers put into hardware.

In software (`skip_hw`) it works as well, but flows do not spread: the action keeps the route of the first.
What has been set goes on without us, and unlike the BPF plane it does not step aside when nobody renews it:
a card has no clock for that. Only sending is by rule; received packets are unwrapped by the tenant's
tunnel.
"""

import json
import shutil
import subprocess
import threading
from typing import Any

from trimtab.core import one_line
from trimtab.fabric.reconcile.changes import Changes, Table, mac_bytes
from trimtab.fabric.reconcile.flower_rules import (
    Rules,
    changing_lines,
    read_numbers,
    read_rules,
)
from trimtab.fabric.reconcile.forwarding import pin
from trimtab.fabric.reconcile.netlink import Netlink
from trimtab.fabric.reconcile.plane import PlaneError
from trimtab.fabric.reconcile.program_hooks import INGRESS, PRIORITY, Hook, detach
from trimtab.fabric.reconcile.sender import SENDER, put_sender, remove_sender
from trimtab.fabric.topology import Host, Tenant, WorkerDevice
from trimtab.kernel import NetworkNamespace, NoNamespaceError

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
        with Netlink() as netlink:
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
            numbers = read_numbers(self._host, self._tenant, _actions("tunnel_key"), _actions("mirred"))
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
        with Netlink() as netlink:
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


def _actions(kind: str) -> list[dict[str, Any]]:
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
