"""Hosts and switches in network namespaces of this machine, joined by cables that can be broken."""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from trimtab.core import BadInputError, NotFoundError, did_you_mean
from trimtab.fabric.apply import apply_plan, plan_here
from trimtab.fabric.frr import Daemons, find_programs, host_files, switch_files
from trimtab.fabric.journal import RUN
from trimtab.fabric.lab.agents import start_agents, stop_agents
from trimtab.fabric.lab.faults import Cycle, Fault
from trimtab.fabric.lab.kinds import KINDS
from trimtab.fabric.lab.layout import (
    MOST_HOSTS,
    PEER_DEVICE,
    SWITCHES,
    cables,
    host_of_lab,
    peer_address,
    switch_of_lab,
)
from trimtab.fabric.lab.namespaces import (
    configure,
    entering,
    make_namespace,
    remove_namespace,
    remove_state,
    sweep,
    traffic_control,
)
from trimtab.fabric.lab.nodes import LabHost, LabSwitch, Plugged
from trimtab.fabric.machine import inside
from trimtab.fabric.topology import Timers
from trimtab.kernel import Owner

_ONE_TENANT = MappingProxyType({"lab": 100})
_numbers = count(1)


class Lab:
    """A context: everything is there at its beginning and gone at its end.

    `tenants` are names and the numbers of their networks. What a killed lab left is removed first.
    """

    def __init__(
        self,
        hosts: int = 2,
        timers: Timers | None = None,
        tenants: Mapping[str, int] = _ONE_TENANT,
        start_daemons: bool = True,
        mtu: int = 9000,
    ) -> None:
        if not 2 <= hosts <= MOST_HOSTS:
            raise BadInputError(f"a lab has 2 to {MOST_HOSTS} hosts, not {hosts}")
        self.name = Owner.current().name(f"lab{next(_numbers)}")
        self.folder = RUN / self.name
        self.swept: tuple[str, ...] = ()
        self._mtu = mtu
        self._start_daemons = start_daemons
        self._processes: list[subprocess.Popen[Any]] = []
        self._agents: list[subprocess.Popen[Any]] = []
        self._cycles: list[Cycle] = []
        used = timers or Timers()
        self.hosts = [self._host(number, used, tenants) for number in range(1, hosts + 1)]
        self.switches = [self._switch(number, used, hosts) for number in range(1, SWITCHES + 1)]

    def __enter__(self) -> Self:
        if self._start_daemons:
            find_programs()
        self.swept = sweep()
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """End what runs in the lab and remove all of it."""
        for turning in self._cycles:
            turning.stop()
        self.stop_agents()
        for node in self._nodes:
            node.daemons.stop()
            remove_namespace(node.namespace)
        for process in self._processes:
            process.kill()
            process.wait()
        remove_state(self.name)

    def run(self, host: int, words: Sequence[str], **popen: Any) -> subprocess.Popen[Any]:
        """Start a process inside a host, counted from 0; it is killed with the lab."""
        process = subprocess.Popen(entering(self.hosts[host].namespace, words), **popen)
        self._processes.append(process)
        return process

    def start_agents(self) -> None:
        """Start every host's agent, as on a real host: failover that does not wait for BGP, and repairs."""
        self._agents += start_agents(self.hosts, self.run)

    def stop_agents(self) -> None:
        """End them; FRR goes on by itself."""
        stop_agents(self._agents)
        self._agents.clear()

    def wait_ready(self, timeout: float = 30.0) -> None:
        """Until sessions are up, both paths are known everywhere and every worker reaches every other."""
        from trimtab.fabric.lab.readiness import wait_ready

        wait_ready(self, timeout)

    def fault(self, kind: str, host: int = 0, uplink: str = "p1", **options: Any) -> Fault:
        """Something of `KINDS` that breaks at a host (counted from 0), its uplink or the switch behind it."""
        if kind not in KINDS:
            raise BadInputError(f"there is no fault {kind!r}{did_you_mean(kind, KINDS)}")
        made = KINDS[kind](self._plugged(host, uplink), **options)
        if isinstance(made, Cycle):
            self._cycles.append(made)
        return made

    def cycle(self, kind: str = "blackhole", down: float = 20.0, up: float = 20.0) -> Cycle:
        """The fault at every uplink of every host in turn."""
        broken = [
            self.fault(kind, number, uplink.device)
            for number, each in enumerate(self.hosts)
            for uplink in each.host.uplinks
        ]
        turning = Cycle(f"{kind} in turn", broken, down, up)
        self._cycles.append(turning)
        return turning

    @property
    def _nodes(self) -> list[LabHost | LabSwitch]:
        return [*self.hosts, *self.switches]

    def _host(self, number: int, timers: Timers, tenants: Mapping[str, int]) -> LabHost:
        name = f"{self.name}h{number}"
        host = host_of_lab(name, number, timers, tenants, self._mtu)
        return LabHost(f"h{number}", name, host, Daemons(RUN / name, host_files(host), name))

    def _switch(self, number: int, timers: Timers, hosts: int) -> LabSwitch:
        name = f"{self.name}s{number}"
        switch = switch_of_lab(name, number, hosts, timers)
        return LabSwitch(f"s{number}", name, switch, Daemons(RUN / name, switch_files(switch), name))

    def _plugged(self, host: int, uplink: str) -> Plugged:
        for cable in cables(len(self.hosts)):
            if (cable.host - 1, cable.uplink) == (host, uplink):
                return Plugged(cable, self.hosts[host], self.switches[cable.switch - 1])
        raise NotFoundError(
            f"there is no uplink {uplink} at host {host}: hosts are 0 to {len(self.hosts) - 1}, "
            f"uplinks are {', '.join(each.device for each in self.hosts[0].host.uplinks)}"
        )

    def _build(self) -> None:
        for node in self._nodes:
            make_namespace(node.namespace)
        configure(self._cabling())
        for number, switch in enumerate(self.switches, start=1):
            configure(self._addresses(number), switch.namespace)
            inside(switch.namespace, _let_through)
            ports = [port.device for port in switch.switch.ports]
            traffic_control([f"qdisc add dev {port} clsact" for port in ports], switch.namespace)
        for host in self.hosts:
            apply_plan(plan_here(host.host, host.namespace), host.namespace)
        if self._start_daemons:
            for node in self._nodes:
                node.daemons.start()

    def _cabling(self) -> Iterator[str]:
        ends = [
            (self.hosts[cable.host - 1].namespace, cable.uplink, cable.switch, cable.port)
            for cable in cables(len(self.hosts))
        ]
        ends.append((self.switches[0].namespace, PEER_DEVICE, 2, PEER_DEVICE))
        for namespace, device, switch, port in ends:
            there = f"name {port} netns {self.switches[switch - 1].namespace} mtu {self._mtu}"
            yield f"link add {device} netns {namespace} mtu {self._mtu} type veth peer {there}"

    def _addresses(self, switch: int) -> Iterator[str]:
        """Of a switch, and all its devices up."""
        addresses = {
            cable.port: cable.switch_address for cable in cables(len(self.hosts)) if cable.switch == switch
        }
        addresses[PEER_DEVICE] = peer_address(switch)
        yield "link set lo up"
        yield f"addr add {self.switches[switch - 1].switch.loopback}/32 dev lo"
        for device, address in addresses.items():
            yield f"addr add {address} dev {device}"
            yield f"link set {device} up"


def _let_through() -> None:
    """Make this network namespace one that passes packets on, each flow over one of the equal paths.

    What a host sends to itself comes back by the port it came from, with no word about a shorter way.
    """
    settings = Path("/proc/sys/net/ipv4")
    for setting in ("ip_forward", "fib_multipath_hash_policy"):
        (settings / setting).write_text("1")
    for place in (settings / "conf").iterdir():
        (place / "send_redirects").write_text("0")
