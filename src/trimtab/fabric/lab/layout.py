"""Layout of a lab: hosts, switches and cables, each host and switch a network namespace."""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path

from trimtab.core import BadInputError, MissingDependencyError, TrimtabError, one_line
from trimtab.fabric.frr.configuration import Port, Switch
from trimtab.fabric.frr.daemons import Daemons, remove_crash_folder
from trimtab.fabric.host_file import local_mac
from trimtab.fabric.journal import RUN
from trimtab.fabric.machine import NAMESPACES
from trimtab.fabric.topology import FabricHost, TenantNetwork, Timers, Uplink, WorkerDevice
from trimtab.kernel import Owner, processes

SWITCHES = 2
MOST_HOSTS = 100
_PATIENCE = 5.0  # s for processes to end after they were killed
PEER_DEVICE = "peer"
"""A switch's port to the other switch, for traffic between hosts that have lost different uplinks."""


@dataclass(frozen=True, slots=True)
class Cable:
    """A host's uplink and the switch's port that it is plugged into; both counted from 1."""

    host: int
    switch: int

    @property
    def uplink(self) -> str:
        """Device at the host's end."""
        return f"p{self.switch}"

    @property
    def port(self) -> str:
        """Device at the switch's end."""
        return f"h{self.host}"

    @property
    def host_address(self) -> IPv4Interface:
        return IPv4Interface(f"172.16.{self.switch}.{2 * self.host}/31")

    @property
    def switch_address(self) -> IPv4Interface:
        return IPv4Interface(f"172.16.{self.switch}.{2 * self.host + 1}/31")


def cables(hosts: int) -> list[Cable]:
    return [Cable(host, switch) for host in range(1, hosts + 1) for switch in range(1, SWITCHES + 1)]


def host_of_lab(name: str, number: int, timers: Timers, tenants: Mapping[str, int], mtu: int) -> FabricHost:
    """The host of that number, with a worker device for each tenant: w0, w1, …"""
    ends = [Cable(number, switch) for switch in range(1, SWITCHES + 1)]
    return FabricHost(
        name,
        IPv4Address(f"10.255.0.{number}"),
        65000 + number,
        tuple(
            Uplink(end.uplink, end.host_address, end.switch_address.ip, 65100 + end.switch) for end in ends
        ),
        tuple(
            TenantNetwork(tenant, vni, (WorkerDevice(f"w{place}", address, local_mac(address.ip)),))
            for place, (tenant, vni) in enumerate(tenants.items())
            for address in [IPv4Interface(f"10.{100 + place}.0.{number}/24")]
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
    """Address of a switch's end of the cable between both switches."""
    return IPv4Interface(f"172.16.0.{switch - 1}/31")


@dataclass(frozen=True, slots=True)
class LabHost:
    """A host: its short name, its namespace, its description and its daemons."""

    label: str
    namespace: str
    host: FabricHost
    daemons: Daemons


@dataclass(frozen=True, slots=True)
class LabSwitch:
    """A switch: its short name, its namespace, its description and its daemons."""

    label: str
    namespace: str
    switch: Switch
    daemons: Daemons


@dataclass(frozen=True, slots=True)
class Plugged:
    """A cable with the host and the switch at its ends."""

    cable: Cable
    host: LabHost
    switch: LabSwitch

    def __str__(self) -> str:
        return f"{self.host.label} {self.cable.uplink}"


def make_namespace(name: str) -> None:
    if os.geteuid() != 0:
        raise BadInputError("network namespaces are made by root; run this as root")
    if (NAMESPACES / name).exists():
        raise BadInputError(f"there is a network namespace {name} already; remove it: ip netns del {name}")
    configure(["netns add " + name])


def configure(lines: Iterable[str], namespace: str | None = None) -> None:
    """Run `ip` with each of these lines, in a namespace or here."""
    _run_batch(["ip", *(["-n", namespace] if namespace else [])], lines)


def traffic_control(lines: Iterable[str], namespace: str) -> None:
    """Run `tc` with each of these lines in a namespace, one right after the other."""
    _run_batch(["tc", "-n", namespace], lines)


def _run_batch(words: Sequence[str], lines: Iterable[str]) -> None:
    batch = "".join(f"{line}\n" for line in lines)
    try:
        done = subprocess.run(
            [*words, "-batch", "-"], input=batch, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise MissingDependencyError(
            f"the program {words[0]} is not installed here: apt-get install iproute2"
        ) from None
    if done.returncode != 0:
        reason = one_line((done.stderr.strip().splitlines() or ["it gives no reason"])[0])
        raise TrimtabError(f"{' '.join(words)} failed on {batch.strip()}: {reason}")


def entering(namespace: str, words: Sequence[str]) -> list[str]:
    """The words that run a command inside."""
    return ["nsenter", f"--net={NAMESPACES / namespace}", "--", *words]


def remove_namespace(name: str) -> None:
    """Kill its processes, then remove it, its devices and its state folder, as far as they exist."""
    path = NAMESPACES / name
    if path.exists():
        give_up = time.monotonic() + _PATIENCE
        # Repeated, because a process may start another before it is killed itself.
        while (pids := _pids_inside(path)) and time.monotonic() < give_up:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                remove_crash_folder(pid)
            time.sleep(0.01)
        with contextlib.suppress(TrimtabError):
            configure(["netns del " + name])
        path.unlink(missing_ok=True)
    remove_state(name)


def remove_state(name: str) -> None:
    """Remove the state folder of that name, with its mounts.

    A line of `/proc/self/mounts` is "what where type options 0 0".
    """
    folder = RUN / name
    for line in Path("/proc/self/mounts").read_text().splitlines():
        point = line.split()[1]
        if Path(point).is_relative_to(folder):
            subprocess.run(["umount", "-l", point], check=False, capture_output=True)
    shutil.rmtree(folder, ignore_errors=True)


def sweep() -> tuple[str, ...]:
    """Remove namespaces and folders of processes that have ended; their names."""
    names = set[str]()
    for folder in (NAMESPACES, RUN):
        with contextlib.suppress(FileNotFoundError):
            names |= set(os.listdir(folder))
    stale = sorted(name for name in names if (owner := Owner.of(name)) is not None and owner.is_gone())
    for name in stale:
        remove_namespace(name)
    return tuple(stale)


def _pids_inside(path: Path) -> list[int]:
    pids = []
    with contextlib.suppress(OSError):
        namespace = path.stat()
        for process in processes():
            with contextlib.suppress(OSError):
                own = os.stat(f"/proc/{process.pid}/ns/net")
                if os.path.samestat(own, namespace) and not process.zombie:
                    pids.append(process.pid)
    return pids
