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
from trimtab.fabric.topology import Host, Tenant, Timers, Uplink, WorkerDevice
from trimtab.kernel import Owner, processes

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


@dataclass(frozen=True, slots=True)
class LabHost:
    """A host: its short name, its namespace, what it is made of and its daemons."""

    label: str
    namespace: str
    host: Host
    daemons: Daemons


@dataclass(frozen=True, slots=True)
class LabSwitch:
    """A switch: its short name, its namespace, what it is made of and its daemons."""

    label: str
    namespace: str
    switch: Switch
    daemons: Daemons


@dataclass(frozen=True, slots=True)
class Plugged:
    """A cable and what is at its ends."""

    cable: Cable
    host: LabHost
    switch: LabSwitch

    def __str__(self) -> str:
        return f"{self.host.label} {self.cable.uplink}"


_PATIENCE = 5.0  # s for processes to be gone after they were killed


def make_namespace(name: str) -> None:
    """An empty namespace."""
    if os.geteuid() != 0:
        raise BadInputError("network namespaces are made by root; run this as root")
    if (NAMESPACES / name).exists():
        raise BadInputError(f"there is a network namespace {name} already; remove it: ip netns del {name}")
    configure(["netns add " + name])


def configure(lines: Iterable[str], namespace: str | None = None) -> None:
    """Run `ip` with each of these lines, in a namespace or here."""
    words = ["ip", *(["-n", namespace] if namespace else []), "-batch", "-"]
    _run(words, "".join(f"{line}\n" for line in lines))


def traffic_control(lines: Iterable[str], namespace: str) -> None:
    """Run `tc` with each of these lines in a namespace, one right after the other."""
    _run(["tc", "-n", namespace, "-batch", "-"], "".join(f"{line}\n" for line in lines))


def entering(namespace: str, words: Sequence[str]) -> list[str]:
    """The words that run a command inside."""
    return ["nsenter", f"--net={NAMESPACES / namespace}", "--", *words]


def remove_namespace(name: str) -> None:
    """Kill what runs inside, then remove it, its devices and its state folder; nothing there is fine."""
    path = NAMESPACES / name
    if path.exists():
        _kill_inside(path)
        with contextlib.suppress(TrimtabError):
            configure(["netns del " + name])
        path.unlink(missing_ok=True)
    remove_state(name)


def remove_state(name: str) -> None:
    """Remove the state folder of that name, with what is mounted in it."""
    folder = RUN / name
    for point in _mount_points():
        if Path(point).is_relative_to(folder):
            subprocess.run(["umount", "-l", point], check=False, capture_output=True)
    shutil.rmtree(folder, ignore_errors=True)


def sweep() -> tuple[str, ...]:
    """Remove what was made by processes that are gone; the names of what was there."""
    names = set[str]()
    for folder in (NAMESPACES, RUN):
        with contextlib.suppress(FileNotFoundError):
            names |= set(os.listdir(folder))
    gone = sorted(name for name in names if (owner := Owner.of(name)) is not None and owner.is_gone())
    for name in gone:
        remove_namespace(name)
    return tuple(gone)


def _mount_points() -> list[str]:
    """A line of `/proc/self/mounts` is "what where type options 0 0"."""
    return [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]


def _kill_inside(path: Path) -> None:
    """Until nobody is inside, because a process may start another before it is killed itself."""
    give_up = time.monotonic() + _PATIENCE
    while (pids := _inside(path)) and time.monotonic() < give_up:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            remove_crash_folder(pid)
        time.sleep(0.01)


def _inside(path: Path) -> list[int]:
    found = []
    with contextlib.suppress(OSError):
        wanted = path.stat()
        for process in processes():
            with contextlib.suppress(OSError):
                at = os.stat(f"/proc/{process.pid}/ns/net")
                if (at.st_dev, at.st_ino) == (wanted.st_dev, wanted.st_ino) and not process.zombie:
                    found.append(process.pid)
    return found


def _run(words: Sequence[str], told: str = "") -> None:
    try:
        done = subprocess.run(words, input=told, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise MissingDependencyError(
            f"the program {words[0]} is not installed here: apt-get install iproute2"
        ) from None
    if done.returncode != 0:
        said = one_line(done.stderr.strip().splitlines()[0] if done.stderr.strip() else "it does not say why")
        raise TrimtabError(f"{' '.join(words[:3])} failed on {told.strip() or ' '.join(words)!r}: {said}")
