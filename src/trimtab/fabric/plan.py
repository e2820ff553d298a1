"""Plan of a host: the machine's state, the steps to make, and refusals of steps that would do harm."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Interface, ip_address
from pathlib import Path

from trimtab.core import BadInputError
from trimtab.fabric.journal import Journal, journals
from trimtab.fabric.machine import Link, Machine, NamespaceState, exists
from trimtab.fabric.steps import (
    VXLAN_PORT,
    Bridge,
    DeviceAddress,
    FunctionMac,
    LeastTimeout,
    LinkSetting,
    Moved,
    Pair,
    PlanStep,
    PortSetting,
    Sysctl,
    Tunnel,
)
from trimtab.fabric.topology import FabricHost, TenantNetwork, WorkerDevice

_LOOSE = "2"  # rp_filter: accept a packet by any uplink if its sender can be answered


@dataclass(frozen=True, slots=True)
class MachineView:
    """The namespaces of the host and its workers, and which devices belong to whom."""

    namespaces: Mapping[str, NamespaceState]
    reserved: Mapping[str, str] = field(default_factory=dict)  # device: why it must not be changed
    ssh_clients: tuple[str, ...] = ()
    own_devices: frozenset[str] = frozenset()  # made or changed by an earlier `up` of this host
    own_addresses: frozenset[tuple[str, str, IPv4Interface]] = frozenset()  # namespace, device, address
    taken: Mapping[str, str] = field(default_factory=dict)  # device: the other fabric that has it
    has_ipv6: bool = True


def view_machine(host: FabricHost, machine: Machine, journal: Journal | None) -> MachineView:
    """The machine's state now."""
    names = {device.namespace for tenant in host.tenants for device in tenant.devices} | {""}
    identity = machine.identity()
    others = [other for other in journals() if other.name != host.name and other.where == identity]
    return MachineView(
        {name: machine.state(name) for name in names if not name or exists(name)},
        dict(_reserved(host, machine)),
        machine.ssh_clients(),
        journal.devices if journal else frozenset(),
        journal.addresses if journal else frozenset(),
        {device: other.name for other in others for device in other.devices - {"lo"}},
        Path("/proc/sys/net/ipv6").exists(),
    )


def _reserved(host: FabricHost, machine: Machine) -> Iterator[tuple[str, str]]:
    """Devices by which people and other services reach the machine, and the devices below them."""
    links = machine.state().links
    for device in host.management:
        yield from _with_below(device, "is the management interface", links)
    for address in machine.ssh_clients():
        device = machine.device_toward(address)
        yield from _with_below(device, f"carries an SSH session from {address}", links)
    for device in machine.state().ways_out:
        yield from _with_below(device, "carries the machine's default route", links)


def _with_below(device: str, why: str, links: Mapping[str, Link]) -> Iterator[tuple[str, str]]:
    link = links.get(device)
    if link is None or device == "lo":
        return
    yield device, why
    parts = [other.name for other in links.values() if other.master == device]
    for lower in (*parts, link.below):
        if lower and lower != device:
            yield from _with_below(lower, f"is below {device}, which {why}", links)


def _refuse_harm(host: FabricHost, view: MachineView) -> None:
    """Raise for the first step that cannot be made here, or would do harm."""
    for uplink in host.uplinks:
        _check_uplink(uplink.device, host, view)
    addresses = [("", "lo", IPv4Interface(host.loopback))]
    addresses += [("", uplink.device, uplink.address) for uplink in host.uplinks]
    for tenant in host.tenants:
        _check_unused(tenant.bridge, "", view)
        _check_unused(tenant.tunnel, "", view)
        for link in view.namespaces[""].links.values():
            tunneled = link.tunneled
            if tunneled is None or link.name == tenant.tunnel or tunneled.port != VXLAN_PORT:
                continue
            if tunneled.external or tunneled.vni == tenant.vni:
                raise BadInputError(
                    f"tenant {tenant.name}: {link.name} already has the vni {tenant.vni} "
                    f"at port {VXLAN_PORT}; choose another vni, or remove {link.name}"
                )
        for worker in tenant.devices:
            _check_worker(worker, view)
            addresses.append((worker.namespace, worker.name, worker.address))
    for namespace, device, address in addresses:
        _check_address(namespace, device, address, view)


def _check_uplink(device: str, host: FabricHost, view: MachineView) -> None:
    links = view.namespaces[""].links
    link = links.get(device)
    if link is None:
        names = ", ".join(sorted(name for name in links if name != "lo"))
        raise BadInputError(f"there is no device {device} for an uplink; this machine has {names or 'none'}")
    if device == "lo":
        raise BadInputError("lo is the loopback device and cannot be an uplink; name a port to a switch")
    if device in view.taken:
        raise BadInputError(f"{device} is an uplink of the fabric {view.taken[device]}; take that down first")
    if device in view.reserved and device not in view.own_devices:
        raise BadInputError(
            f"{device} {view.reserved[device]}, so it cannot be an uplink; "
            f"name a port that carries training traffic only"
        )
    if link.master:
        raise BadInputError(
            f"{device} is a part of {link.master}; take it out, or name {link.master} as uplink"
        )
    if link.most_mtu and host.mtu > link.most_mtu:
        raise BadInputError(f"{device} has an mtu of {link.most_mtu} at most; set mtu below {host.mtu}")


def _check_worker(device: WorkerDevice, view: MachineView) -> None:
    if device.namespace and device.namespace not in view.namespaces:
        raise BadInputError(
            f"there is no network namespace {device.namespace} for {device.name}; "
            f"make it with ip netns add {device.namespace}"
        )
    function = device.function
    if function is None:
        _check_unused(device.port, "", view)
        _check_unused(device.name, device.namespace, view)
        return
    here = view.namespaces[""].links
    for name in (function.device, device.port):
        if name not in here:
            raise BadInputError(f"there is no device {name}, which {device.name} needs as a virtual function")
        if name in view.reserved and name not in view.own_devices:
            raise BadInputError(f"{name} {view.reserved[name]}, so {device.name} cannot be made from it")
    if device.name not in here and device.name not in view.namespaces[device.namespace].links:
        raise BadInputError(f"there is no device {device.name}, which should be a virtual function")
    if function.index not in here[function.device].functions:
        raise BadInputError(f"{function.device} has no virtual function {function.index}")


def _check_unused(name: str, namespace: str, view: MachineView) -> None:
    if name in view.namespaces[namespace].links and name not in view.own_devices:
        owner = f"of the fabric {view.taken[name]}" if name in view.taken else "and not of this fabric"
        raise BadInputError(
            f"there is a device {name} already, {owner}; remove it, or choose another name or vni"
        )


def _check_address(namespace: str, device: str, address: IPv4Interface, view: MachineView) -> None:
    if not namespace and (namespace, device, address) not in view.own_addresses:
        for client in view.ssh_clients:
            if ip_address(client) in address.network:
                raise BadInputError(
                    f"{address.network} of {device} contains {client}, from where an SSH session comes; "
                    f"it would be cut off, so choose other addresses"
                )
    for other, taken in view.namespaces[namespace].addresses:
        if taken.ip == address.ip and other != device and (namespace, other, taken) not in view.own_addresses:
            raise BadInputError(f"{address.ip} for {device} is already an address of {other}")
    own_networks = {(where, name, own.network) for where, name, own in view.own_addresses}
    for route in view.namespaces[namespace].routes:
        others = [
            name
            for name in route.devices
            if name != device and (namespace, name, route.network) not in own_networks
        ]
        if others and route.network.overlaps(address.network):
            raise BadInputError(
                f"{address.network} of {device} overlaps {route.network}, which is routed to {others[0]}; "
                f"choose other addresses"
            )


@dataclass(frozen=True, slots=True)
class HostPlan:
    """The steps for the host of that name, in order."""

    name: str
    steps: tuple[PlanStep, ...]


def plan(host: FabricHost, view: MachineView) -> HostPlan:
    """The steps; BadInputError where they would take something from someone else."""
    _refuse_harm(host, view)
    return HostPlan(host.name, tuple(_steps(host, view.has_ipv6)))


def _steps(host: FabricHost, ipv6: bool) -> Iterator[PlanStep]:
    yield PlanStep(Sysctl("net/ipv4/fib_multipath_hash_policy"), "1")  # by ports too, so that flows spread
    yield PlanStep(LinkSetting("lo", "state"), "up")
    yield PlanStep(DeviceAddress("lo", f"{host.loopback}/32"))
    for uplink in host.uplinks:
        yield from _own_address_only(uplink.device)
        # A path whose cable is out is unusable even before a daemon has removed it.
        yield PlanStep(Sysctl(f"net/ipv4/conf/{uplink.device}/ignore_routes_with_linkdown"), "1")
        yield PlanStep(LinkSetting(uplink.device, "mtu"), str(host.mtu))
        yield PlanStep(DeviceAddress(uplink.device, str(uplink.address)))
        yield PlanStep(LinkSetting(uplink.device, "state"), "up")
    for tenant in host.tenants:
        yield from _tenant(host, tenant, ipv6)
        for device in tenant.devices:
            yield from _worker(device, tenant, host.worker_mtu, ipv6)
            # With the kernel's 200 ms one lost packet would stall a job long after failover, at 30 ms.
            if host.rto_min:
                timeout = LeastTimeout(device.name, str(device.address), device.namespace)
                yield PlanStep(timeout, f"{round(host.rto_min * 1000)}ms")


def _tenant(host: FabricHost, tenant: TenantNetwork, ipv6: bool) -> Iterator[PlanStep]:
    yield PlanStep(Bridge(tenant.bridge))
    yield from _without_ipv6(tenant.bridge, ipv6)
    # The bridge receives ARP requests for workers of this namespace too, and would answer with its own MAC.
    # It would also accept packets for any address of the host; a strict rp_filter drops them all.
    yield PlanStep(Sysctl(f"net/ipv4/conf/{tenant.bridge}/arp_ignore"), "1")
    yield PlanStep(Sysctl(f"net/ipv4/conf/{tenant.bridge}/rp_filter"), "1")
    yield PlanStep(LinkSetting(tenant.bridge, "mtu"), str(host.worker_mtu))
    yield PlanStep(Tunnel(tenant.tunnel, tenant.vni, str(host.loopback)))
    yield from _bridge_port(tenant.tunnel, tenant.bridge, host.worker_mtu, ipv6)
    # The control plane says which MAC is where, and answers most broadcast requests.
    yield PlanStep(PortSetting(tenant.tunnel, "learning"), "off")
    yield PlanStep(PortSetting(tenant.tunnel, "neigh_suppress"), "on")
    yield PlanStep(LinkSetting(tenant.tunnel, "state"), "up")
    yield PlanStep(LinkSetting(tenant.bridge, "state"), "up")


def _worker(device: WorkerDevice, tenant: TenantNetwork, mtu: int, ipv6: bool) -> Iterator[PlanStep]:
    namespace = device.namespace
    if device.function is None:
        yield PlanStep(Pair(device.port, device.name, device.mac, namespace))
    else:
        yield PlanStep(FunctionMac(device.function.device, device.function.index), device.mac)
        if namespace:
            yield PlanStep(Moved(device.name, namespace))
    yield from _bridge_port(device.port, tenant.bridge, mtu, ipv6)
    yield PlanStep(LinkSetting(device.port, "state"), "up")
    yield from _own_address_only(device.name, namespace)
    yield PlanStep(LinkSetting(device.name, "address", namespace), device.mac)
    yield PlanStep(LinkSetting(device.name, "mtu", namespace), str(mtu))
    yield PlanStep(DeviceAddress(device.name, str(device.address), namespace))
    yield PlanStep(LinkSetting(device.name, "state", namespace), "up")


def _bridge_port(device: str, bridge: str, mtu: int, ipv6: bool) -> Iterator[PlanStep]:
    yield from _without_ipv6(device, ipv6)
    yield PlanStep(LinkSetting(device, "mtu"), str(mtu))
    yield PlanStep(LinkSetting(device, "master"), bridge)


def _without_ipv6(device: str, ipv6: bool) -> Iterator[PlanStep]:
    """The host itself is no member of a tenant's network, and gives itself no address there."""
    if ipv6:
        yield PlanStep(Sysctl(f"net/ipv6/conf/{device}/disable_ipv6"), "1")


def _own_address_only(device: str, namespace: str = "") -> Iterator[PlanStep]:
    """ARP for the device's own address only; packets that came by the other uplink are accepted."""
    conf = f"net/ipv4/conf/{device}"
    yield PlanStep(Sysctl(f"{conf}/rp_filter", namespace), _LOOSE)
    yield PlanStep(Sysctl(f"{conf}/arp_ignore", namespace), "1")
    yield PlanStep(Sysctl(f"{conf}/arp_announce", namespace), "2")
