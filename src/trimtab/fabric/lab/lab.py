"""Who is who in the lab: hosts with an uplink to each of two switches, and the switches joined by a cable."""

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from trimtab.core import (
    BadInputError,
    NotFoundError,
    TrimtabError,
    did_you_mean,
    one_line,
)
from trimtab.fabric.agent import Sessions, agent_runs, ask_sessions, read_status
from trimtab.fabric.apply import apply_plan, plan_here
from trimtab.fabric.failover.keeper import UplinkNow
from trimtab.fabric.frr.configuration import host_files, switch_files
from trimtab.fabric.frr.daemons import Daemons, find_programs
from trimtab.fabric.journal import RUN
from trimtab.fabric.lab.faults import KINDS, Cycle, Fault
from trimtab.fabric.lab.layout import (
    MOST_HOSTS,
    PEER_DEVICE,
    SWITCHES,
    LabHost,
    LabSwitch,
    Plugged,
    cables,
    configure,
    entering,
    host_of_lab,
    make_namespace,
    peer_address,
    remove_namespace,
    remove_state,
    sweep,
    switch_of_lab,
    traffic_control,
)
from trimtab.fabric.machine import inside
from trimtab.fabric.topology import Host, Timers
from trimtab.kernel import Owner

_EVERY = 0.05  # s
_AGENT_PATIENCE = 30.0  # s to start, or to end

Run = Callable[..., "subprocess.Popen[Any]"]


def start_agents(hosts: Sequence[LabHost], run: Run) -> "list[subprocess.Popen[Any]]":
    """One for each host, all at work; `run` starts a process inside a host, counted from 0."""
    started = []
    for number, host in enumerate(hosts):
        file = host.daemons.folder / "host.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(file_of(host.host))
        words = [sys.executable, "-m", "trimtab.fabric.lab.agent_process", str(file)]
        with _said(host).open("wb") as said:
            started.append(run(number, words, stdin=subprocess.DEVNULL, stdout=said, stderr=said))
    give_up = time.monotonic() + _AGENT_PATIENCE
    for host, process in zip(hosts, started, strict=True):
        while not _works(host):
            if process.poll() is not None or time.monotonic() > give_up:
                told = _said(host).read_text(errors="replace").strip().splitlines() or ["it does not say why"]
                raise TrimtabError(f"the agent of {host.label} does not start: {one_line(told[-1])}")
            time.sleep(_EVERY)
    return started


def stop_agents(processes: "Sequence[subprocess.Popen[Any]]") -> None:
    """The network stays as it is."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(_AGENT_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def file_of(host: Host) -> str:
    """The file that describes a host."""
    import yaml

    uplinks = [
        {
            "device": each.device,
            "address": str(each.address),
            "peer": str(each.peer),
            "peer_asn": each.peer_asn,
        }
        for each in host.uplinks
    ]
    tenants = {
        tenant.name: {
            "vni": tenant.vni,
            "devices": [
                {"name": device.name, "address": str(device.address), "mac": device.mac}
                for device in tenant.devices
            ],
        }
        for tenant in host.tenants
    }
    told = {
        "host": host.name,
        "loopback": str(host.loopback),
        "asn": host.asn,
        "uplinks": uplinks,
        "tenants": tenants,
        "mtu": host.mtu,
        "bfd": {"interval": host.timers.interval, "multiplier": host.timers.multiplier},
        "echo": asdict(host.timers.echo) if host.timers.echo else False,
        "hold": host.timers.hold,
        "settle": host.timers.settle,
        "rto_min": host.rto_min or False,
    }
    return yaml.safe_dump(told, sort_keys=False)


def _works(host: LabHost) -> bool:
    try:
        return agent_runs(host.host.name) and bool(read_status(host.host.name).uplinks)
    except NotFoundError:
        return False


def _said(host: LabHost) -> Path:
    return host.daemons.folder / "agent.log"


_LOOK_EVERY = 0.2  # s
_ANSWER = 0.2  # s to wait for a packet


def wait_ready(lab: "Lab", timeout: float) -> None:
    """Until nothing is amiss; a sentence about what still is when time is over."""
    give_up = time.monotonic() + timeout
    with contextlib.ExitStack() as stack:
        workers = [_Workers(stack, host) for host in lab.hosts]
        while (amiss := _amiss(lab, workers)) is not None:
            if time.monotonic() > give_up:
                raise TrimtabError(f"the lab is not ready after {timeout:g} s: {amiss}")
            time.sleep(_LOOK_EVERY)


def _amiss(lab: "Lab", workers: list["_Workers"]) -> str | None:
    """The first thing that is not as it should be; cheap questions come first."""
    try:
        for told in (_of_sessions(lab), _of_paths(lab), _of_workers(workers), _of_tunnels(lab)):
            for amiss in told:
                return amiss
    except TrimtabError as error:
        return str(error)
    return None


def _of_sessions(lab: "Lab") -> Iterator[str]:
    wanted = [
        *((host.label, host.daemons, len(host.host.uplinks)) for host in lab.hosts),
        *((switch.label, switch.daemons, len(switch.switch.ports)) for switch in lab.switches),
    ]
    for label, daemons, number in wanted:
        up = _peers_up(ask_sessions(daemons.vtysh))
        if len(up) != number:
            yield f"{label} has {len(up)} of {number} sessions up"


def _peers_up(told: Sessions) -> list[str]:
    return [
        peer
        for peer, state in told.bfd.items()
        if state == "up" and told.bgp.get(peer) == told.evpn.get(peer) == "Established"
    ]


def _of_paths(lab: "Lab") -> Iterator[str]:
    """Every host knows every other by all of its uplinks."""
    for host in lab.hosts:
        ways = _ways(host)
        for other in lab.hosts:
            found = ways.get(str(other.host.loopback), 0)
            if other is not host and found != len(host.host.uplinks):
                yield f"{host.label} has {found} of {len(host.host.uplinks)} paths to {other.label}"


def _of_workers(workers: list["_Workers"]) -> Iterator[str]:
    for one in workers:
        for other in workers:
            if one is not other:
                yield from one.unreachable(other)


def _of_tunnels(lab: "Lab") -> Iterator[str]:
    """Every host was told where the others' workers are, and does not have to ask all of them."""
    for host in lab.hosts:
        for tenant in host.host.tenants:
            known = _known_macs(host, tenant.tunnel)
            for other in lab.hosts:
                theirs = next(each for each in other.host.tenants if each.name == tenant.name)
                for device in theirs.devices if other is not host else ():
                    if device.mac not in known:
                        yield f"{host.label} was not told where {device.mac} of {other.label} is"


def _ways(host: LabHost) -> dict[str, int]:
    """Destinations and by how many next hops each is reached."""
    told = _asked(["ip", "-n", host.namespace, "-j", "route", "show"])
    return {each["dst"]: len(each.get("nexthops", [each])) for each in told}


def _known_macs(host: LabHost, tunnel: str) -> set[str]:
    told = _asked(["bridge", "-n", host.namespace, "-j", "fdb", "show", "dev", tunnel])
    return {each["mac"] for each in told if "dst" in each}


def _asked(words: list[str]) -> list[dict[str, Any]]:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    found: list[dict[str, Any]] = json.loads(done.stdout or "[]")
    return found


class _Workers:
    """A socket on each worker device of a host."""

    def __init__(self, stack: contextlib.ExitStack, host: LabHost) -> None:
        self.host = host
        self.sockets = {
            tenant.name: stack.enter_context(inside(host.namespace, _socket)) for tenant in host.host.tenants
        }
        for tenant in host.host.tenants:
            self.sockets[tenant.name].bind((str(tenant.devices[0].address.ip), 0))

    def unreachable(self, other: "_Workers") -> Iterator[str]:
        """Tenants in which a packet from here does not arrive at the other."""
        for tenant, sending in self.sockets.items():
            question = f"{time.monotonic()}".encode()
            with contextlib.suppress(OSError):
                sending.sendto(question, other.sockets[tenant].getsockname())
            with contextlib.suppress(OSError):
                while other.sockets[tenant].recv(100) != question:
                    pass
                continue
            yield f"{other.host.label} cannot be reached from {self.host.label} by tenant {tenant}"


def _socket() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.settimeout(_ANSWER)
    return made


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
        from trimtab.fabric.lab.lab import wait_ready

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


@dataclass(frozen=True, slots=True)
class UplinkState:
    """An uplink of a host: whether its device is up, and what BFD and BGP say in FRR's words.

    `used` is what the host's agent says, "" without one; `failovers` is how often it moved traffic away.
    """

    host: str
    uplink: str
    link: str
    bfd: str
    bgp: str
    used: str
    failovers: int


def uplink_states(lab: Lab) -> tuple[UplinkState, ...]:
    """Of all hosts, in order."""
    return tuple(state for host in lab.hosts for state in _of_host(host))


def instructions(lab: Lab) -> tuple[str, ...]:
    """Commands that show the lab or break it, and what they do."""
    one, other, switch = lab.hosts[0], lab.hosts[1], lab.switches[0]
    device = one.host.tenants[0].devices[0]
    theirs = other.host.tenants[0].devices[0].address.ip
    return (
        f"ip netns exec {one.namespace} bash    # a shell on {one.label}; workers bind to {device.name}, "
        f"{device.address.ip}",
        f"ip netns exec {one.namespace} torchrun ...    # any job; with GLOO_SOCKET_IFNAME={device.name} "
        f"it reaches {theirs} on {other.label}",
        f"ip -n {one.namespace} route    # paths of {one.label}",
        f"trimtab fabric status {one.host.name}    # what its agent does",
        f"ip -n {switch.namespace} link set h1 down    # a cable out; and back with: up",
        f"vtysh --vty_socket {one.daemons.folder} -c 'show bfd peers'    # FRR of {one.label}",
    )


def _of_host(host: LabHost) -> Iterator[UplinkState]:
    words = ["ip", "-n", host.namespace, "-j", "link", "show"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    links = {each["ifname"]: str(each["operstate"]).lower() for each in json.loads(done.stdout or "[]")}
    try:
        told = ask_sessions(host.daemons.vtysh)
    except TrimtabError:  # a daemon that was killed does not answer
        told = Sessions()
    agents = {each.device: each for each in _agents_view(host)}
    for uplink in host.host.uplinks:
        peer, agent = str(uplink.peer), agents.get(uplink.device)
        yield UplinkState(
            host.label,
            uplink.device,
            links.get(uplink.device, "gone"),
            told.bfd.get(peer, ""),
            told.bgp.get(peer, ""),
            agent.state if agent else "",
            agent.failures if agent else 0,
        )


def _agents_view(host: LabHost) -> tuple[UplinkNow, ...]:
    try:
        return read_status(host.host.name).uplinks
    except NotFoundError:
        return ()
