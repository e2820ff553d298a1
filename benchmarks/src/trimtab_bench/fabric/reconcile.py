"""How fast does the data plane follow? One host in a namespace of its own, zebra played."""

import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv4Interface
from statistics import median
from typing import Any

from trimtab.core import TrimtabError, one_line
from trimtab.fabric.reconcile.forwarding import learn, unlearn
from trimtab.fabric.reconcile.planes import DataPlane, Table as ForwardingTable, mac_bytes
from trimtab.fabric.reconcile.reconciler import Heard, Reconciler, TunnelView, plane_of
from trimtab.fabric.topology import Host, Tenant, Uplink, WorkerDevice
from trimtab.kernel import NetworkNamespace, rtnetlink
from trimtab_bench.harness import Key, Part, Table

_PATIENCE = 30.0
_LOOK_AGAIN = 0.001


@dataclass(frozen=True, slots=True)
class ReconcileFigures:
    """Seconds from each change to a plane that is right, also with all messages lost; and for many."""

    changes: tuple[float, ...]
    without_messages: tuple[float, ...]
    full_sync: float
    compared_again: float


class _DeafView(TunnelView):
    """Loses every message."""

    def heard(self) -> Heard:
        super().heard()
        return Heard()


def measure_reconciling(
    macs: int = 1000, changes: int = 30, many: int = 10_000, period: float = 1.0, plane: str | None = None
) -> ReconcileFigures:
    """With `macs` MACs at other hosts for single changes, and `many` for all at once; takes some seconds."""
    with NetworkNamespace() as namespace, ThreadPoolExecutor(1, initializer=namespace.enter) as inside:
        return inside.submit(_measure, namespace, macs, changes, many, period, plane).result()


def _measure(
    namespace: NetworkNamespace, macs: int, changes: int, many: int, period: float, wanted: str | None
) -> ReconcileFigures:
    host = _put_up()
    tenant = host.tenants[0]
    with rtnetlink.Netlink() as netlink:
        tunnel = rtnetlink.index_of(tenant.tunnel) or 0
        held = _many(macs)
        for mac, at in held.items():
            learn(netlink, tunnel, mac, at)
        heard = _changes_seen(namespace, netlink, host, TunnelView, period, changes, dict(held), wanted)
        deaf = _changes_seen(namespace, netlink, host, _DeafView, period, 3, dict(held), wanted)
        for mac, at in _many(many).items():
            learn(netlink, tunnel, mac, at)
        plane = plane_of(host, tenant, wanted)
        reconciler = Reconciler(_view(TunnelView, tenant, plane), plane, period)
        full_sync, again = _timed(reconciler.settle), _timed(reconciler.settle)
        if len(plane.entries()) != many:
            raise TrimtabError(f"the plane has {len(plane.entries())} MACs after a full sync of {many}")
        plane.remove()
        reconciler.close()
    return ReconcileFigures(heard, deaf, full_sync, again)


def _changes_seen(
    namespace: NetworkNamespace,
    netlink: rtnetlink.Netlink,
    host: Host,
    view: type[TunnelView],
    period: float,
    count: int,
    held: dict[bytes, bytes],
    wanted: str | None,
) -> tuple[float, ...]:
    """Seconds until each of some changes, one of each kind in turn, is in the plane; undone at the end."""
    tenant = host.tenants[0]
    tunnel, before = rtnetlink.index_of(tenant.tunnel) or 0, dict(held)
    took = list[float]()
    with _running(namespace, host, view, period, wanted) as plane:
        _seen(plane, held)
        for number in range(count):
            mac, at = bytes([6, 0, 0, 0, 0, number // 3]), bytes([10, 254, number % 3, 1])
            started = time.monotonic()
            if number % 3 == 2:
                unlearn(netlink, tunnel, mac)
                del held[mac]
            else:
                learn(netlink, tunnel, mac, at)
                held[mac] = at
            _seen(plane, held)
            took.append(time.monotonic() - started)
        for mac in held.keys() - before.keys():
            unlearn(netlink, tunnel, mac)
    return tuple(took)


@contextmanager
def _running(
    namespace: NetworkNamespace, host: Host, view: type[TunnelView], period: float, wanted: str | None
) -> Iterator[DataPlane]:
    """The plane of a reconciler at work in the namespace."""
    tenant = host.tenants[0]
    plane = plane_of(host, tenant, wanted)
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


def _view(view: type[TunnelView], tenant: Tenant, plane: DataPlane) -> TunnelView:
    return view(tenant.tunnel, [mac_bytes(device.mac) for device in tenant.devices], plane.devices)


def _seen(plane: DataPlane, expected: ForwardingTable) -> None:
    deadline = time.monotonic() + _PATIENCE
    while plane.entries() != expected:
        if time.monotonic() > deadline:
            raise TrimtabError(f"the plane did not become what it should be within {_PATIENCE:g} s")
        time.sleep(_LOOK_AGAIN)


def _timed(work: Callable[[], None]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


def _many(count: int) -> dict[bytes, bytes]:
    """MACs at two hundred hosts."""
    return {
        bytes([2, 0, 0, *number.to_bytes(3, "big")]): bytes([10, 255, 1, number % 200])
        for number in range(count)
    }


def _put_up() -> Host:
    """The devices of a host with one tenant; its uplinks lead nowhere."""
    uplinks = tuple(
        Uplink(f"p{n}", IPv4Interface(f"172.16.{n}.0/31"), IPv4Address(f"172.16.{n}.1"), 65100 + n)
        for n in (1, 2)
    )
    worker = WorkerDevice("w0", IPv4Interface("10.100.0.1/24"), "02:00:0a:64:00:01")
    tenant = Tenant("measured", 100, (worker,))
    host = Host("measured", IPv4Address("10.255.0.1"), 65001, uplinks, (tenant,), 1550)
    lines = [
        *(f"link add {uplink.device} up type veth peer name {uplink.device}x" for uplink in uplinks),
        f"address add {host.loopback}/32 dev lo",
        f"link add {tenant.bridge} up type bridge",
        f"link add {tenant.tunnel} type vxlan id {tenant.vni} local {host.loopback} dstport 4789 nolearning",
        f"link set {tenant.tunnel} master {tenant.bridge} up",
        f"link add {worker.name} address {worker.mac} up type veth peer name {worker.port}",
        f"link set {worker.port} master {tenant.bridge} up",
    ]
    made = subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, capture_output=True)
    if made.returncode:
        raise TrimtabError(f"`ip` did not make the devices to measure on: {one_line(made.stderr):.200}")
    return host


MACS, MANY = 1000, 10_000
CHANGES, QUICK_CHANGES = 60, 6
PERIOD = 1.0
"""Seconds after which everything is compared although nothing was heard."""
_KEY = ("reconcile",)


def parts(quick: bool) -> list[Part]:
    """All in one."""
    return [Part(_KEY, partial(reconcile_seconds, QUICK_CHANGES if quick else CHANGES))]


def reconcile_seconds(changes: int) -> dict[str, Any]:
    """Seconds of each change, heard of or not, and of all MACs at once."""
    told = measure_reconciling(MACS, changes, MANY, PERIOD)
    return {
        "changes": told.changes,
        "without_messages": told.without_messages,
        "full_sync": told.full_sync,
        "compared_again": told.compared_again,
    }


def figures(found: Mapping[Key, Any]) -> dict[str, Any]:
    """`reconcile_ms` is of single changes."""
    told = found[_KEY]
    return {
        "reconcile_ms": {
            "p50": median(told["changes"]) * 1e3,
            "max": max(told["changes"]) * 1e3,
            "n": len(told["changes"]),
        },
        "after_losing_all_s": max(told["without_messages"]),
        "full_sync_s_10k": told["full_sync"],
        "compared_again_s_10k": told["compared_again"],
    }


def tables(found: Mapping[Key, Any]) -> list[Table]:
    """One row for each question."""
    told = figures(found)
    single = told["reconcile_ms"]
    rows = (
        (f"a change among {MACS:,} MACs, ms", f"{single['p50']:.1f}", f"{single['max']:.1f}"),
        ("the same with every message lost, s", "", f"{told['after_losing_all_s']:.2f}"),
        (f"{MANY:,} MACs at once, s", "", f"{told['full_sync_s_10k']:.2f}"),
        (f"{MANY:,} MACs compared again, s", "", f"{told['compared_again_s_10k']:.2f}"),
    )
    return [Table("The data plane follows", ("until it is right", "median", "worst"), rows)]
