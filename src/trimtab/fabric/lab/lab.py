"""The lab: hosts with an uplink to each of two switches, and the switches joined by a cable."""

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count, permutations
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from trimtab.core import BadInputError, NotFoundError, TrimtabError, did_you_mean, one_line
from trimtab.fabric.agent import Sessions, agent_runs, ask_sessions, read_status
from trimtab.fabric.apply import apply_plan, plan_here
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
from trimtab.fabric.topology import FabricHost, Timers
from trimtab.kernel import Owner

_EVERY = 0.05  # s
_AGENT_PATIENCE = 30.0  # s to start, or to end
_LOOK_EVERY = 0.2  # s
_ANSWER = 0.2  # s to wait for a packet
_ONE_TENANT = MappingProxyType({"lab": 100})
_numbers = count(1)


def file_of(host: FabricHost) -> str:
    """The YAML file that describes a host."""
    import yaml

    fields = {
        "host": host.name,
        "loopback": str(host.loopback),
        "asn": host.asn,
        "uplinks": [
            {**asdict(uplink), "address": str(uplink.address), "peer": str(uplink.peer)}
            for uplink in host.uplinks
        ],
        "tenants": {
            tenant.name: {
                "vni": tenant.vni,
                "devices": [
                    {"name": device.name, "address": str(device.address), "mac": device.mac}
                    for device in tenant.devices
                ],
            }
            for tenant in host.tenants
        },
        "mtu": host.mtu,
        "bfd": {"interval": host.timers.interval, "multiplier": host.timers.multiplier},
        "echo": asdict(host.timers.echo) if host.timers.echo else False,
        "hold": host.timers.hold,
        "settle": host.timers.settle,
        "rto_min": host.rto_min or False,
    }
    return yaml.safe_dump(fields, sort_keys=False)


class Lab:
    """A context: everything is made at its beginning and removed at its end.

    `tenants` are names and the VNIs of their networks. Remains of a killed lab are removed first.
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
        timers = timers or Timers()
        self.hosts, self.switches = list[LabHost](), list[LabSwitch]()
        for number in range(1, hosts + 1):
            name = f"{self.name}h{number}"
            host = host_of_lab(name, number, timers, tenants, mtu)
            daemons = Daemons(RUN / name, host_files(host), name)
            self.hosts.append(LabHost(f"h{number}", name, host, daemons))
        for number in range(1, SWITCHES + 1):
            name = f"{self.name}s{number}"
            switch = switch_of_lab(name, number, hosts, timers)
            daemons = Daemons(RUN / name, switch_files(switch), name)
            self.switches.append(LabSwitch(f"s{number}", name, switch, daemons))

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
        """End the lab's processes and remove all of it."""
        for running in self._cycles:
            running.stop()
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
        """Start every host's agent, as on a real host, and wait until all are at work."""
        started = []
        for number, host in enumerate(self.hosts):
            file = host.daemons.folder / "host.yaml"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(file_of(host.host))
            words = [sys.executable, "-m", "trimtab.fabric.lab.agent_process", str(file)]
            with (host.daemons.folder / "agent.log").open("wb") as log:
                started.append(self.run(number, words, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        self._agents += started
        give_up = time.monotonic() + _AGENT_PATIENCE
        for host, process in zip(self.hosts, started, strict=True):
            while not (agent_runs(host.host.name) and _reported_uplinks(host)):
                if process.poll() is not None or time.monotonic() > give_up:
                    text = (host.daemons.folder / "agent.log").read_text(errors="replace")
                    reason = (text.strip().splitlines() or ["it gives no reason"])[-1]
                    raise TrimtabError(f"the agent of {host.label} does not start: {one_line(reason)}")
                time.sleep(_EVERY)

    def stop_agents(self) -> None:
        """End them; FRR goes on by itself."""
        for process in self._agents:
            process.terminate()
        for process in self._agents:
            try:
                process.wait(_AGENT_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._agents.clear()

    def wait_ready(self, timeout: float = 30.0) -> None:
        """Wait until sessions are up, all paths are known and every worker reaches every other."""
        give_up = time.monotonic() + timeout
        with contextlib.ExitStack() as stack:
            workers = [_WorkerSockets(stack, host) for host in self.hosts]
            while (problem := self._first_problem(workers)) is not None:
                if time.monotonic() > give_up:
                    raise TrimtabError(f"the lab is not ready after {timeout:g} s: {problem}")
                time.sleep(_LOOK_EVERY)

    def fault(self, kind: str, host: int = 0, uplink: str = "p1", **options: Any) -> Fault:
        """A fault of `KINDS` at a host (counted from 0), its uplink or the switch behind it."""
        if kind not in KINDS:
            raise BadInputError(f"there is no fault {kind!r}{did_you_mean(kind, KINDS)}")
        plugged = next(
            (
                Plugged(cable, self.hosts[host], self.switches[cable.switch - 1])
                for cable in cables(len(self.hosts))
                if (cable.host - 1, cable.uplink) == (host, uplink)
            ),
            None,
        )
        if plugged is None:
            raise NotFoundError(
                f"there is no uplink {uplink} at host {host}: hosts are 0 to {len(self.hosts) - 1}, "
                f"uplinks are {', '.join(port.device for port in self.hosts[0].host.uplinks)}"
            )
        fault = KINDS[kind](plugged, **options)
        if isinstance(fault, Cycle):
            self._cycles.append(fault)
        return fault

    def cycle(self, kind: str = "blackhole", down: float = 20.0, up: float = 20.0) -> Cycle:
        """The fault at every uplink of every host in turn."""
        faults = [
            self.fault(kind, number, uplink.device)
            for number, host in enumerate(self.hosts)
            for uplink in host.host.uplinks
        ]
        faults_in_turn = Cycle(f"{kind} in turn", faults, down, up)
        self._cycles.append(faults_in_turn)
        return faults_in_turn

    @property
    def _nodes(self) -> list[LabHost | LabSwitch]:
        return [*self.hosts, *self.switches]

    def _build(self) -> None:
        for node in self._nodes:
            make_namespace(node.namespace)
        configure(self._cabling())
        for number, switch in enumerate(self.switches, start=1):
            configure(self._addresses(number), switch.namespace)
            inside(switch.namespace, _forward_packets)
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
            peer = f"name {port} netns {self.switches[switch - 1].namespace} mtu {self._mtu}"
            yield f"link add {device} netns {namespace} mtu {self._mtu} type veth peer {peer}"

    def _addresses(self, switch: int) -> Iterator[str]:
        """Lines for `ip` that give a switch its addresses and turn its devices on."""
        addresses = {
            cable.port: cable.switch_address for cable in cables(len(self.hosts)) if cable.switch == switch
        }
        addresses[PEER_DEVICE] = peer_address(switch)
        yield "link set lo up"
        yield f"addr add {self.switches[switch - 1].switch.loopback}/32 dev lo"
        for device, address in addresses.items():
            yield f"addr add {address} dev {device}"
            yield f"link set {device} up"

    def _first_problem(self, workers: list["_WorkerSockets"]) -> str | None:
        """Why the lab is not ready; cheap checks come first."""
        try:
            return next(self._problems(workers), None)
        except TrimtabError as error:
            return str(error)

    def _problems(self, workers: list["_WorkerSockets"]) -> Iterator[str]:
        for node in self._nodes:
            expected = len(node.host.uplinks if isinstance(node, LabHost) else node.switch.ports)
            sessions = ask_sessions(node.daemons.vtysh)
            up = [
                peer
                for peer, state in sessions.bfd.items()
                if state == "up" and sessions.bgp.get(peer) == sessions.evpn.get(peer) == "Established"
            ]
            if len(up) != expected:
                yield f"{node.label} has {len(up)} of {expected} sessions up"
        for host in self.hosts:
            routes = _json_of(["ip", "-n", host.namespace, "-j", "route", "show"])
            paths = {route["dst"]: len(route.get("nexthops", [route])) for route in routes}
            expected = len(host.host.uplinks)
            for other in self.hosts:
                number = paths.get(str(other.host.loopback), 0)
                if other is not host and number != expected:
                    yield f"{host.label} has {number} of {expected} paths to {other.label}"
        for one, another in permutations(workers, 2):
            yield from one.unreachable(another)
        # Every host was told where the others' workers are, and does not have to flood.
        for host in self.hosts:
            for place, tenant in enumerate(host.host.tenants):
                entries = _json_of(
                    ["bridge", "-n", host.namespace, "-j", "fdb", "show", "dev", tenant.tunnel]
                )
                macs = {entry["mac"] for entry in entries if "dst" in entry}
                for other in self.hosts:
                    for device in other.host.tenants[place].devices if other is not host else ():
                        if device.mac not in macs:
                            yield f"{host.label} was not told where {device.mac} of {other.label} is"


class _WorkerSockets:
    """A socket on each worker device of a host."""

    def __init__(self, stack: contextlib.ExitStack, host: LabHost) -> None:
        self.host = host
        self.sockets = dict[str, socket.socket]()
        for tenant in host.host.tenants:
            opened = inside(host.namespace, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            self.sockets[tenant.name] = stack.enter_context(opened)
            opened.settimeout(_ANSWER)
            opened.bind((str(tenant.devices[0].address.ip), 0))

    def unreachable(self, other: "_WorkerSockets") -> Iterator[str]:
        """Tenants in which a packet from here does not arrive at the other."""
        for tenant, sending in self.sockets.items():
            packet = f"{time.monotonic()}".encode()
            with contextlib.suppress(OSError):
                sending.sendto(packet, other.sockets[tenant].getsockname())
            with contextlib.suppress(OSError):
                while other.sockets[tenant].recv(100) != packet:
                    pass
                continue
            yield f"{other.host.label} cannot be reached from {self.host.label} by tenant {tenant}"


def _json_of(words: list[str]) -> list[dict[str, Any]]:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    rows: list[dict[str, Any]] = json.loads(done.stdout or "[]")
    return rows


def _forward_packets() -> None:
    """Make this network namespace forward packets, each flow over one of the equal paths.

    A host's packets to itself come back by the port they came from, with no redirect to a shorter way.
    """
    settings = Path("/proc/sys/net/ipv4")
    for setting in ("ip_forward", "fib_multipath_hash_policy"):
        (settings / setting).write_text("1")
    for folder in (settings / "conf").iterdir():
        (folder / "send_redirects").write_text("0")


def _reported_uplinks(host: LabHost) -> dict[str, Any]:
    """State of the host's uplinks by device, as its agent reports it; empty without one."""
    try:
        return {uplink.device: uplink for uplink in read_status(host.host.name).uplinks}
    except NotFoundError:
        return {}


@dataclass(frozen=True, slots=True)
class UplinkState:
    """An uplink of a host: whether its device is up, and its BFD and BGP states in FRR's words.

    `used` is the agent's state, "" without an agent; `failovers` is how often it moved traffic away.
    """

    host: str
    uplink: str
    link: str
    bfd: str
    bgp: str
    used: str
    failovers: int


def uplink_states(lab: Lab) -> tuple[UplinkState, ...]:
    """States of the uplinks of all hosts, in order."""
    states = list[UplinkState]()
    for host in lab.hosts:
        rows = _json_of(["ip", "-n", host.namespace, "-j", "link", "show"])
        links = {row["ifname"]: str(row["operstate"]).lower() for row in rows}
        try:
            sessions = ask_sessions(host.daemons.vtysh)
        except TrimtabError:  # a daemon that was killed does not answer
            sessions = Sessions()
        reported = _reported_uplinks(host)
        for uplink in host.host.uplinks:
            peer, agent = str(uplink.peer), reported.get(uplink.device)
            states.append(
                UplinkState(
                    host.label,
                    uplink.device,
                    links.get(uplink.device, "gone"),
                    sessions.bfd.get(peer, ""),
                    sessions.bgp.get(peer, ""),
                    agent.state if agent else "",
                    agent.failures if agent else 0,
                )
            )
    return tuple(states)


def instructions(lab: Lab) -> tuple[str, ...]:
    """Commands that show the lab or break it, with comments."""
    one, other, switch = lab.hosts[0], lab.hosts[1], lab.switches[0]
    device = one.host.tenants[0].devices[0]
    target = other.host.tenants[0].devices[0].address.ip
    return (
        f"ip netns exec {one.namespace} bash    # a shell on {one.label}; workers bind to {device.name}, "
        f"{device.address.ip}",
        f"ip netns exec {one.namespace} torchrun ...    # any job; with GLOO_SOCKET_IFNAME={device.name} "
        f"it reaches {target} on {other.label}",
        f"ip -n {one.namespace} route    # paths of {one.label}",
        f"trimtab fabric status {one.host.name}    # state of its agent",
        f"ip -n {switch.namespace} link set h1 down    # a cable out; and back with: up",
        f"vtysh --vty_socket {one.daemons.folder} -c 'show bfd peers'    # FRR of {one.label}",
    )
