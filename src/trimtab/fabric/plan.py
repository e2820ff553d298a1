"""Plan of a host: the machine as it is, the steps that are missing, and refusals of what would do harm."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Interface, ip_address
from pathlib import Path

from trimtab.core import BadInputError
from trimtab.fabric.journal import Journal, journals
from trimtab.fabric.machine import Link, Machine, Space, exists
from trimtab.fabric.steps import (
    THERE,
    VXLAN_PORT,
    Address,
    Bridge,
    FunctionMac,
    LeastTimeout,
    Moved,
    Pair,
    Place,
    PortSetting,
    Setting,
    Step,
    Sysctl,
    Tunnel,
)
from trimtab.fabric.topology import Host, Tenant, Uplink, WorkerDevice


@dataclass(frozen=True, slots=True)
class MachineView:
    """The host's namespace and those of its workers, and whose the devices in the host's are."""

    spaces: Mapping[str, Space]
    reserved: Mapping[str, str] = field(default_factory=dict)  # device: what it is needed for
    visitors: tuple[str, ...] = ()  # addresses that SSH sessions come from
    ours: frozenset[str] = frozenset()  # made or changed by an earlier `up` of this host
    made: frozenset[tuple[str, str, IPv4Interface]] = frozenset()  # its addresses: namespace, device
    taken: Mapping[str, str] = field(default_factory=dict)  # device: the other fabric that has it
    has_ipv6: bool = True


def look(host: Host, machine: Machine, journal: Journal | None) -> MachineView:
    """The machine as it is now."""
    wanted = {device.namespace for tenant in host.tenants for device in tenant.devices} | {""}
    where = machine.identity()
    others = [each for each in journals() if each.name != host.name and each.where == where]
    return MachineView(
        {name: machine.space(name) for name in wanted if not name or exists(name)},
        dict(_reserved(host, machine)),
        machine.visitors(),
        journal.devices if journal else frozenset(),
        journal.addresses if journal else frozenset(),
        {device: other.name for other in others for device in other.devices - {"lo"}},
        Path("/proc/sys/net/ipv6").exists(),
    )


def _reserved(host: Host, machine: Machine) -> Iterator[tuple[str, str]]:
    """Devices by which people and everything else reach the machine, and what those stand on."""
    links = machine.space().links
    for device in host.management:
        yield from _with_below(device, "is the management interface", links)
    for address in machine.visitors():
        yield from _with_below(machine.toward(address), f"carries an SSH session from {address}", links)
    for device in machine.space().ways_out:
        yield from _with_below(device, "carries the machine's default route", links)


def _with_below(device: str, why: str, links: Mapping[str, Link]) -> Iterator[tuple[str, str]]:
    link = links.get(device)
    if link is None or device == "lo":
        return
    yield device, why
    parts = [each.name for each in links.values() if each.master == device]
    for lower in (*parts, link.below):
        if lower and lower != device:
            yield from _with_below(lower, f"is what {device} stands on, which {why}", links)


def refuse_harm(host: Host, view: MachineView) -> None:
    """A sentence for the first thing that cannot be done here, or not without harm."""
    for uplink in host.uplinks:
        _check_uplink(uplink.device, host, view)
    for tenant in host.tenants:
        _check_new(tenant.bridge, "", view)
        _check_new(tenant.tunnel, "", view)
        _check_number(tenant, view)
        for worker in tenant.devices:
            _check_worker(worker, view)
    for space, device, address in _addresses(host):
        _check_address(space, device, address, view)


def _check_uplink(device: str, host: Host, view: MachineView) -> None:
    link = view.spaces[""].links.get(device)
    if link is None:
        raise BadInputError(f"there is no device {device} for an uplink; {_known(view.spaces[''])}")
    if device == "lo":
        raise BadInputError("lo is the machine itself, and no port to a switch")
    if device in view.taken:
        raise BadInputError(f"{device} is an uplink of the fabric {view.taken[device]}; take that down first")
    if device in view.reserved and device not in view.ours:
        raise BadInputError(
            f"{device} {view.reserved[device]}, so it is no uplink for a fabric; "
            f"name a port that carries training traffic only"
        )
    if link.master:
        raise BadInputError(
            f"{device} is a part of {link.master}; take it out, or name {link.master} as uplink"
        )
    if link.most_mtu and host.mtu > link.most_mtu:
        raise BadInputError(
            f"{device} has an mtu of {link.most_mtu} at most; say a smaller mtu than {host.mtu}"
        )


def _check_worker(device: WorkerDevice, view: MachineView) -> None:
    if device.namespace and device.namespace not in view.spaces:
        raise BadInputError(
            f"there is no network namespace {device.namespace} for {device.name}; "
            f"ip netns add {device.namespace} makes one"
        )
    if device.function is None:
        _check_new(device.port, "", view)
        _check_new(device.name, device.namespace, view)
        return
    here = view.spaces[""].links
    for name in (device.function.device, device.port):
        _check_part(name, device, view)
    if device.name not in here and device.name not in view.spaces[device.namespace].links:
        raise BadInputError(f"there is no device {device.name}, which should be a virtual function")
    if device.function.index not in here[device.function.device].functions:
        raise BadInputError(f"{device.function.device} has no virtual function {device.function.index}")


def _check_part(name: str, device: WorkerDevice, view: MachineView) -> None:
    if name not in view.spaces[""].links:
        raise BadInputError(f"there is no device {name}, which {device.name} needs as a virtual function")
    if name in view.reserved and name not in view.ours:
        raise BadInputError(f"{name} {view.reserved[name]}, so {device.name} cannot be made of it")


def _check_new(name: str, namespace: str, view: MachineView) -> None:
    if name in view.spaces[namespace].links and name not in view.ours:
        whose = f"of the fabric {view.taken[name]}" if name in view.taken else "and not of this fabric"
        raise BadInputError(
            f"there is a device {name} already, {whose}; remove it, or choose another name or vni"
        )


def _check_number(tenant: Tenant, view: MachineView) -> None:
    for link in view.spaces[""].links.values():
        tunneled = link.tunneled
        if tunneled is None or link.name == tenant.tunnel or tunneled.port != VXLAN_PORT:
            continue
        if tunneled.external or tunneled.vni == tenant.vni:
            raise BadInputError(
                f"tenant {tenant.name}: {link.name} has the vni {tenant.vni} at port {VXLAN_PORT} already; "
                f"choose another vni, or remove {link.name}"
            )


def _addresses(host: Host) -> Iterable[tuple[str, str, IPv4Interface]]:
    yield "", "lo", IPv4Interface(host.loopback)
    for uplink in host.uplinks:
        yield "", uplink.device, uplink.address
    for tenant in host.tenants:
        for device in tenant.devices:
            yield device.namespace, device.name, device.address


def _check_address(space: str, device: str, address: IPv4Interface, view: MachineView) -> None:
    for visitor in view.visitors if not space and (space, device, address) not in view.made else ():
        if ip_address(visitor) in address.network:
            raise BadInputError(
                f"{address.network} of {device} has {visitor} in it, from where an SSH session comes; "
                f"it would be cut off, so choose other addresses"
            )
    for other, taken in view.spaces[space].addresses:
        if taken.ip == address.ip and other != device and (space, other, taken) not in view.made:
            raise BadInputError(f"{address.ip}, which {device} should get, is an address of {other} already")
    made = {(where, name, known.network) for where, name, known in view.made}
    for route in view.spaces[space].routes:
        others = [
            name for name in route.devices if name != device and (space, name, route.network) not in made
        ]
        if others and route.network.overlaps(address.network):
            raise BadInputError(
                f"{address.network} of {device} overlaps {route.network}, which is routed to {others[0]}; "
                f"choose other addresses"
            )


def _known(space: Space) -> str:
    cards = sorted(name for name, link in space.links.items() if name != "lo")
    return f"this machine has {', '.join(cards)}" if cards else "this machine has none"


_LOOSE = "2"  # rp_filter: from anywhere that can be answered, by whatever uplink it came


@dataclass(frozen=True, slots=True)
class Plan:
    """Of the host of that name: what to do, in order."""

    name: str
    steps: tuple[Step, ...]


def plan(host: Host, view: MachineView) -> Plan:
    """The steps; refused with a sentence where they would take something from someone else."""
    refuse_harm(host, view)
    return Plan(host.name, tuple(_steps(host, view.has_ipv6)))


def _steps(host: Host, ipv6: bool) -> Iterator[Step]:
    yield Step(Sysctl("net/ipv4/fib_multipath_hash_policy"), "1")  # by ports too, so that flows spread
    yield Step(Setting("lo", "state"), "up")
    yield _is_present(Address("lo", f"{host.loopback}/32"))
    for uplink in host.uplinks:
        yield from _uplink(uplink, host.mtu)
    for tenant in host.tenants:
        yield from _tenant(host, tenant, ipv6)
        for device in tenant.devices:
            yield from _worker(device, tenant, host.worker_mtu, ipv6)
            # One lost packet would hold up a job for the kernel's 200 ms, although another path was there
            # after 30.
            if host.rto_min:
                at = LeastTimeout(device.name, str(device.address), device.namespace)
                yield Step(at, f"{round(host.rto_min * 1000)}ms")


def _uplink(uplink: Uplink, mtu: int) -> Iterator[Step]:
    yield from _answers_for_itself(uplink.device)
    # A path whose cable is out is none, also before anybody has removed it.
    yield Step(Sysctl(f"net/ipv4/conf/{uplink.device}/ignore_routes_with_linkdown"), "1")
    yield Step(Setting(uplink.device, "mtu"), str(mtu))
    yield _is_present(Address(uplink.device, str(uplink.address)))
    yield Step(Setting(uplink.device, "state"), "up")


def _tenant(host: Host, tenant: Tenant, ipv6: bool) -> Iterator[Step]:
    yield _is_present(Bridge(tenant.bridge))
    yield from _silent(tenant.bridge, ipv6)
    # The bridge hears questions for workers of this namespace too, and would answer with its own MAC. It
    # would also take packets for any address of the host; none has a way back there, so strictly all go.
    yield Step(Sysctl(f"net/ipv4/conf/{tenant.bridge}/arp_ignore"), "1")
    yield Step(Sysctl(f"net/ipv4/conf/{tenant.bridge}/rp_filter"), "1")
    yield Step(Setting(tenant.bridge, "mtu"), str(host.worker_mtu))
    yield _is_present(Tunnel(tenant.tunnel, tenant.vni, str(host.loopback)))
    yield from _uplink_port(tenant.tunnel, tenant.bridge, host.worker_mtu, ipv6)
    # Who is where is said by the control plane, which also knows the answers to most broadcast questions.
    yield Step(PortSetting(tenant.tunnel, "learning"), "off")
    yield Step(PortSetting(tenant.tunnel, "neigh_suppress"), "on")
    yield Step(Setting(tenant.tunnel, "state"), "up")
    yield Step(Setting(tenant.bridge, "state"), "up")


def _worker(device: WorkerDevice, tenant: Tenant, mtu: int, ipv6: bool) -> Iterator[Step]:
    where = device.namespace
    if device.function is None:
        yield _is_present(Pair(device.port, device.name, device.mac, where))
    else:
        yield Step(FunctionMac(device.function.device, device.function.index), device.mac)
        if where:
            yield _is_present(Moved(device.name, where))
    yield from _uplink_port(device.port, tenant.bridge, mtu, ipv6)
    yield Step(Setting(device.port, "state"), "up")
    yield from _answers_for_itself(device.name, where)
    yield Step(Setting(device.name, "address", where), device.mac)
    yield Step(Setting(device.name, "mtu", where), str(mtu))
    yield _is_present(Address(device.name, str(device.address), where))
    yield Step(Setting(device.name, "state", where), "up")


def _uplink_port(device: str, bridge: str, mtu: int, ipv6: bool) -> Iterator[Step]:
    yield from _silent(device, ipv6)
    yield Step(Setting(device, "mtu"), str(mtu))
    yield Step(Setting(device, "master"), bridge)


def _silent(device: str, ipv6: bool) -> Iterator[Step]:
    """The host itself is no member of a tenant's network, and makes itself no address there."""
    if ipv6:
        yield Step(Sysctl(f"net/ipv6/conf/{device}/disable_ipv6"), "1")


def _answers_for_itself(device: str, namespace: str = "") -> Iterator[Step]:
    """Asks and answers with its own address only, and takes packets that came the other way round."""
    conf = f"net/ipv4/conf/{device}"
    yield Step(Sysctl(f"{conf}/rp_filter", namespace), _LOOSE)
    yield Step(Sysctl(f"{conf}/arp_ignore", namespace), "1")
    yield Step(Sysctl(f"{conf}/arp_announce", namespace), "2")


def _is_present(place: Place) -> Step:
    return Step(place, THERE)
