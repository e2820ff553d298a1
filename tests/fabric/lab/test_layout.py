"""The lab's hosts are such as a host's file could describe, and both ends of a cable agree."""

import pytest

from trimtab.fabric import Timers
from trimtab.fabric.lab.layout import MOST_HOSTS, cables, host_of_lab, switch_of_lab


@pytest.mark.parametrize("hosts", [2, 5, MOST_HOSTS])
def test_nothing_has_the_address_of_another(hosts: int) -> None:
    made = [host_of_lab(f"h{n}", n, Timers(), {"lab": 100, "other": 200}, 9000) for n in range(1, hosts + 1)]
    ends = [end for cable in cables(hosts) for end in (cable.host_address, cable.switch_address)]
    devices = [device for host in made for tenant in host.tenants for device in tenant.devices]
    addresses = [*(end.ip for end in ends), *(device.address.ip for device in devices)]
    addresses += [host.loopback for host in made]
    assert len(set(addresses)) == len(addresses) == hosts * (4 + 2 + 1)
    assert len({device.mac for device in devices}) == len(devices)


@pytest.mark.parametrize("hosts", [2, 5, MOST_HOSTS])
def test_switches_and_hosts_know_each_other(hosts: int) -> None:
    switches = [switch_of_lab(f"s{n}", n, hosts, Timers()) for n in (1, 2)]
    for number in range(1, hosts + 1):
        host = host_of_lab(f"h{number}", number, Timers(), {}, 9000)
        for uplink, switch in zip(host.uplinks, switches, strict=True):
            port = next(port for port in switch.ports if port.peer == uplink.address.ip)
            assert (port.peer_asn, uplink.peer_asn) == (host.asn, switch.asn)
