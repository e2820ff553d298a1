"""Delay of the data plane: one host in a namespace of its own, with the bench in the role of zebra."""

import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from ipaddress import IPv4Address, IPv4Interface
from statistics import median
from typing import Any

from trimtab.core import TrimtabError, one_line
from trimtab.fabric.reconcile.forwarding import learn, unlearn
from trimtab.fabric.reconcile.planes import DataPlane, Table as ForwardingTable, mac_bytes
from trimtab.fabric.reconcile.reconciler import Heard, Reconciler, TunnelView, plane_of
from trimtab.fabric.topology import FabricHost, TenantNetwork, Uplink, WorkerDevice
from trimtab.kernel import NetworkNamespace, rtnetlink
from trimtab_bench.harness import BenchPart, Key, ResultTable, seconds_of

_PATIENCE = 30.0
_POLL = 0.001


class _DeafView(TunnelView):
    """Loses every message."""

    def heard(self) -> Heard:
        super().heard()
        return Heard()


def measure_reconciling(
    macs: int = 1000, changes: int = 30, many: int = 10_000, period: float = 1.0, plane: str | None = None
) -> dict[str, Any]:
    """Seconds until the plane is right: after each change among `macs` MACs at other hosts, with messages
    and with all of them lost, and for `many` MACs at once; takes some seconds."""
    with NetworkNamespace() as namespace, ThreadPoolExecutor(1, initializer=namespace.enter) as inside:
        return inside.submit(_measure, namespace, macs, changes, many, period, plane).result()


def _measure(
    namespace: NetworkNamespace, macs: int, changes: int, many: int, period: float, kind: str | None
) -> dict[str, Any]:
    host = _set_up_host()
    tenant = host.tenants[0]
    with rtnetlink.Netlink() as netlink:
        tunnel = rtnetlink.index_of(tenant.tunnel) or 0
        for mac, at in _macs(macs).items():
            learn(netlink, tunnel, mac, at)

        def time_changes(view: type[TunnelView], count: int) -> list[float]:
            """Seconds until each of some changes, one of each kind in turn, is in the plane; undone after."""
            table, seconds = _macs(macs), list[float]()
            with _running(namespace, host, view, period, kind) as plane:
                _wait_for(plane, table)
                for number in range(count):
                    mac, at = bytes([6, 0, 0, 0, 0, number // 3]), bytes([10, 254, number % 3, 1])
                    started = time.monotonic()
                    if number % 3 == 2:
                        unlearn(netlink, tunnel, mac)
                        del table[mac]
                    else:
                        learn(netlink, tunnel, mac, at)
                        table[mac] = at
                    _wait_for(plane, table)
                    seconds.append(time.monotonic() - started)
                for mac in table.keys() - _macs(macs).keys():
                    unlearn(netlink, tunnel, mac)
            return seconds

        with_messages, without_messages = time_changes(TunnelView, changes), time_changes(_DeafView, 3)
        for mac, at in _macs(many).items():
            learn(netlink, tunnel, mac, at)
        plane = plane_of(host, tenant, kind)
        reconciler = Reconciler(_view(TunnelView, tenant, plane), plane, period)
        full_sync, again = seconds_of(reconciler.settle), seconds_of(reconciler.settle)
        if len(plane.entries()) != many:
            raise TrimtabError(f"the plane has {len(plane.entries())} MACs after a full sync of {many}")
        plane.remove()
        reconciler.close()
    return {
        "changes": with_messages,
        "without_messages": without_messages,
        "full_sync": full_sync,
        "compared_again": again,
    }


@contextmanager
def _running(
    namespace: NetworkNamespace, host: FabricHost, view: type[TunnelView], period: float, kind: str | None
) -> Iterator[DataPlane]:
    """The plane of a reconciler at work in the namespace."""
    tenant = host.tenants[0]
    plane = plane_of(host, tenant, kind)
    reconciler = Reconciler(_view(view, tenant, plane), plane, period)
    plane.prepare()

    def work() -> None:
        namespace.enter()
        reconciler.run()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield plane
    finally:
        reconciler.stop()
        thread.join()
        plane.remove()
        reconciler.close()


def _view(view: type[TunnelView], tenant: TenantNetwork, plane: DataPlane) -> TunnelView:
    return view(tenant.tunnel, [mac_bytes(device.mac) for device in tenant.devices], plane.devices)


def _wait_for(plane: DataPlane, expected: ForwardingTable) -> None:
    deadline = time.monotonic() + _PATIENCE
    while plane.entries() != expected:
        if time.monotonic() > deadline:
            raise TrimtabError(f"the plane did not become as expected within {_PATIENCE:g} s")
        time.sleep(_POLL)


def _macs(count: int) -> dict[bytes, bytes]:
    return {
        bytes([2, 0, 0, *number.to_bytes(3, "big")]): bytes([10, 255, 1, number % 200])
        for number in range(count)
    }


def _set_up_host() -> FabricHost:
    """The devices of a host with one tenant; its uplinks lead nowhere."""
    uplinks = tuple(
        Uplink(f"p{n}", IPv4Interface(f"172.16.{n}.0/31"), IPv4Address(f"172.16.{n}.1"), 65100 + n)
        for n in (1, 2)
    )
    worker = WorkerDevice("w0", IPv4Interface("10.100.0.1/24"), "02:00:0a:64:00:01")
    tenant = TenantNetwork("measured", 100, (worker,))
    host = FabricHost("measured", IPv4Address("10.255.0.1"), 65001, uplinks, (tenant,), 1550)
    lines = [
        *(f"link add {uplink.device} up type veth peer name {uplink.device}x" for uplink in uplinks),
        f"address add {host.loopback}/32 dev lo",
        f"link add {tenant.bridge} up type bridge",
        f"link add {tenant.tunnel} type vxlan id {tenant.vni} local {host.loopback} dstport 4789 nolearning",
        f"link set {tenant.tunnel} master {tenant.bridge} up",
        f"link add {worker.name} address {worker.mac} up type veth peer name {worker.port}",
        f"link set {worker.port} master {tenant.bridge} up",
    ]
    done = subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, capture_output=True)
    if done.returncode:
        raise TrimtabError(f"`ip` did not make the devices to measure on: {one_line(done.stderr):.200}")
    return host


MACS, MANY = 1000, 10_000
CHANGES, QUICK_CHANGES = 60, 6
PERIOD = 1.0
"""Seconds after which everything is compared although no message came."""
_KEY = ("reconcile",)


def parts(quick: bool) -> list[BenchPart]:
    changes = QUICK_CHANGES if quick else CHANGES
    return [BenchPart(_KEY, partial(measure_reconciling, MACS, changes, MANY, PERIOD))]


def figures(results: Mapping[Key, Any]) -> dict[str, Any]:
    """`reconcile_ms` is of single changes."""
    seconds = results[_KEY]
    changes = seconds["changes"]
    return {
        "reconcile_ms": {"p50": median(changes) * 1e3, "max": max(changes) * 1e3, "n": len(changes)},
        "after_losing_all_s": max(seconds["without_messages"]),
        "full_sync_s_10k": seconds["full_sync"],
        "compared_again_s_10k": seconds["compared_again"],
    }


def tables(results: Mapping[Key, Any]) -> list[ResultTable]:
    shown = figures(results)
    single = shown["reconcile_ms"]
    rows = (
        (f"a change among {MACS:,} MACs, ms", f"{single['p50']:.1f}", f"{single['max']:.1f}"),
        ("the same with every message lost, s", "", f"{shown['after_losing_all_s']:.2f}"),
        (f"{MANY:,} MACs at once, s", "", f"{shown['full_sync_s_10k']:.2f}"),
        (f"{MANY:,} MACs compared again, s", "", f"{shown['compared_again_s_10k']:.2f}"),
    )
    return [ResultTable("The data plane follows", ("until it is right", "median", "worst"), rows)]
