"""Who is who in the lab: hosts with an uplink to each of two switches, and the switches joined by a cable."""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface

from trimtab.fabric.frr import Port, Switch
from trimtab.fabric.host_file import local_mac
from trimtab.fabric.topology import Host, Tenant, Timers, Uplink, WorkerDevice

SWITCHES = 2
MOST_HOSTS = 100
PEER_DEVICE = "peer"
"""A switch's port to the other switch, for traffic between hosts that have lost different uplinks."""


@dataclass(frozen=True, slots=True)
class Cable:
    """A host's uplink and the switch's port that it is plugged into; both counted from 1."""

    host: int
    switch: int

    @property
    def uplink(self) -> str:
        """The host's end."""
        return f"p{self.switch}"

    @property
    def port(self) -> str:
        """The switch's end."""
        return f"h{self.host}"

    @property
    def host_address(self) -> IPv4Interface:
        """Of the host's end."""
        return IPv4Interface(f"172.16.{self.switch}.{2 * self.host}/31")

    @property
    def switch_address(self) -> IPv4Interface:
        """Of the switch's end."""
        return IPv4Interface(f"172.16.{self.switch}.{2 * self.host + 1}/31")


def cables(hosts: int) -> list[Cable]:
    """All of them, host by host."""
    return [Cable(host, switch) for host in range(1, hosts + 1) for switch in range(1, SWITCHES + 1)]


def host_of_lab(name: str, number: int, timers: Timers, tenants: Mapping[str, int], mtu: int) -> Host:
    """The host of that number, with a worker device for each tenant: w0, w1 and so on."""
    ends = [Cable(number, switch) for switch in range(1, SWITCHES + 1)]
    return Host(
        name,
        IPv4Address(f"10.255.0.{number}"),
        65000 + number,
        tuple(
            Uplink(end.uplink, end.host_address, end.switch_address.ip, 65100 + end.switch) for end in ends
        ),
        tuple(
            Tenant(tenant, vni, (_worker(place, number),))
            for place, (tenant, vni) in enumerate(tenants.items())
        ),
        mtu,
        timers,
    )


def switch_of_lab(name: str, number: int, hosts: int, timers: Timers) -> Switch:
    """The switch of that number, with a port to each host and one to the other switch."""
    other = SWITCHES + 1 - number
    to_hosts = [
        Port(end.port, end.host_address.ip, 65000 + end.host) for end in cables(hosts) if end.switch == number
    ]
    to_other = Port(PEER_DEVICE, peer_address(other).ip, 65100 + other)
    return Switch(name, IPv4Address(f"10.254.0.{number}"), 65100 + number, (*to_hosts, to_other), timers)


def peer_address(switch: int) -> IPv4Interface:
    """Of a switch's end of the cable between both."""
    return IPv4Interface(f"172.16.0.{switch - 1}/31")


def _worker(tenant: int, number: int) -> WorkerDevice:
    address = IPv4Interface(f"10.{100 + tenant}.0.{number}/24")
    return WorkerDevice(f"w{tenant}", address, local_mac(address.ip))
