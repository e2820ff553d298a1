"""From a host's file to the steps that make it so, if this machine is one where they do no harm."""

from collections.abc import Iterator
from dataclasses import dataclass

from trimtab.fabric.devices import Bridge, FunctionMac, Moved, Pair, Tunnel
from trimtab.fabric.steps import THERE, Address, LeastTimeout, Place, PortSetting, Setting, Step, Sysctl
from trimtab.fabric.topology import Host, Tenant, Uplink, WorkerDevice
from trimtab.fabric.view import MachineView, refuse_harm

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
    yield _there(Address("lo", f"{host.loopback}/32"))
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
    yield _there(Address(uplink.device, str(uplink.address)))
    yield Step(Setting(uplink.device, "state"), "up")


def _tenant(host: Host, tenant: Tenant, ipv6: bool) -> Iterator[Step]:
    yield _there(Bridge(tenant.bridge))
    yield from _silent(tenant.bridge, ipv6)
    # The bridge hears questions for workers of this namespace too, and would answer with its own MAC. It
    # would also take packets for any address of the host; none has a way back there, so strictly all go.
    yield Step(Sysctl(f"net/ipv4/conf/{tenant.bridge}/arp_ignore"), "1")
    yield Step(Sysctl(f"net/ipv4/conf/{tenant.bridge}/rp_filter"), "1")
    yield Step(Setting(tenant.bridge, "mtu"), str(host.worker_mtu))
    yield _there(Tunnel(tenant.tunnel, tenant.vni, str(host.loopback)))
    yield from _port(tenant.tunnel, tenant.bridge, host.worker_mtu, ipv6)
    # Who is where is said by the control plane, which also knows the answers to most broadcast questions.
    yield Step(PortSetting(tenant.tunnel, "learning"), "off")
    yield Step(PortSetting(tenant.tunnel, "neigh_suppress"), "on")
    yield Step(Setting(tenant.tunnel, "state"), "up")
    yield Step(Setting(tenant.bridge, "state"), "up")


def _worker(device: WorkerDevice, tenant: Tenant, mtu: int, ipv6: bool) -> Iterator[Step]:
    where = device.namespace
    if device.function is None:
        yield _there(Pair(device.port, device.name, device.mac, where))
    else:
        yield Step(FunctionMac(device.function.device, device.function.index), device.mac)
        if where:
            yield _there(Moved(device.name, where))
    yield from _port(device.port, tenant.bridge, mtu, ipv6)
    yield Step(Setting(device.port, "state"), "up")
    yield from _answers_for_itself(device.name, where)
    yield Step(Setting(device.name, "address", where), device.mac)
    yield Step(Setting(device.name, "mtu", where), str(mtu))
    yield _there(Address(device.name, str(device.address), where))
    yield Step(Setting(device.name, "state", where), "up")


def _port(device: str, bridge: str, mtu: int, ipv6: bool) -> Iterator[Step]:
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


def _there(place: Place) -> Step:
    return Step(place, THERE)
