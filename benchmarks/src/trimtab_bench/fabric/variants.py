"""Variants of a host that the fabric bench compares, load on all cores, and precedence for measuring."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import Self

from trimtab.core import TrimtabError
from trimtab.fabric import Timers
from trimtab.fabric.lab.faults import Fault
from trimtab.fabric.lab.lab import Lab
from trimtab.fabric.lab.probes import Outage, Probes, traffic
from trimtab.kernel import LimitedGroup, NoGroupError
from trimtab_bench.fabric import pauses_process
from trimtab_bench.processes import process

_COUNTING = "while True: pass"
_MOVING = """
one, other = bytearray(64 << 20), bytearray(64 << 20)
while True:
    one[:] = other
    other[:] = one
"""


@contextlib.contextmanager
def busy_cores() -> Iterator[None]:
    """For every core, a process that counts and one that moves memory."""
    cores = len(os.sched_getaffinity(0))
    with contextlib.ExitStack() as stack:
        for code in [_COUNTING, _MOVING] * cores:
            stack.enter_context(process([sys.executable, "-I", "-S", "-c", code]))
        yield


_PRECEDENCE = 100 * 1024  # shares of a CPU, where others have 1024


class Precedence:
    """A context in which processes can be given CPU precedence, and pauses of the machine are recorded."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._group: LimitedGroup | None = None
        self._file = Path()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(NoGroupError):
                self._group = stack.enter_context(LimitedGroup.create())
                self._group.weigh_cpu(_PRECEDENCE)
            self._file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "pauses"
            words = [sys.executable, "-I", pauses_process.__file__, str(self._file)]
            watching = stack.enter_context(process(words, stdout=subprocess.PIPE))
            if watching.stdout is None or not watching.stdout.readline():
                raise TrimtabError("the process that notes pauses of this machine does not start")
            self.give(watching.pid)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def give(self, *pids: int) -> None:
        """Let these processes and their children run before others."""
        if self._group is not None:
            for pid in pids:
                self._group.add(pid)

    def longest_pause(self, begin: float, end: float) -> float:
        """Seconds for which nothing ran, at the longest, between two times of the monotonic clock."""
        content = self._file.read_bytes()
        records = memoryview(content)[
            : len(content) // pauses_process.RECORD.size * pauses_process.RECORD.size
        ]
        return max(
            (
                late
                for woke, late in pauses_process.RECORD.iter_unpack(records)
                if woke > begin and woke - late < end
            ),
            default=0.0,
        )


_READY = 60.0  # s for a new lab
_BACK = 5.0  # s for a mended one
_CALM = 0.15  # s without a loss before the next fault
_POLL = 0.1  # s
_SHARE = 0.25  # of all probes, that an uplink must carry to be worth breaking


@dataclass(frozen=True, slots=True)
class Variant:
    """With or without agents, and with which timers; `single_port`: workers use the first uplink alone."""

    timers: Timers
    agents: bool = False
    single_port: bool = False


# How soon a path that came back is used again plays no part in an outage, but in how long a repeat takes.
VARIANTS = {
    "ours": Variant(replace(Timers(), hold=0.1), agents=True),
    "frr": Variant(replace(Timers(), interval=0.010, multiplier=3)),
    "frr_50ms": Variant(replace(Timers(), interval=0.050, multiplier=3)),
    "single_port": Variant(replace(Timers(), interval=0.050, multiplier=3), single_port=True),
}


class Contestant:
    """A lab with a variant in it and probes from its first host to its second, as a context.

    `labs` counts labs that were built, because not every variant returns to both paths by itself.
    """

    def __init__(self, variant: Variant, precedence: Precedence) -> None:
        self._variant, self._precedence = variant, precedence
        self._stack = contextlib.ExitStack()
        self._comes_back = True
        self.labs = 0

    def __enter__(self) -> Self:
        self._build()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def fault(self, kind: str, host: int) -> Fault | None:
        """A fault of the uplink that carries most of the probes, or of its switch; None where none does."""
        if self._variant.single_port:
            return self._lab.fault(kind, host, self._lab.hosts[0].host.uplinks[0].device)
        sent = traffic(self._lab, 0)
        busiest = max(sent, key=lambda device: sent[device])
        if sent[busiest] < _SHARE * self._probes.rate:
            return None
        return self._lab.fault(kind, host, busiest)

    def measure(self, fault: Fault, lasting: float) -> Outage:
        """Outage that the probes measure during a fault of so many seconds."""
        return self._probes.measure(fault, lasting)

    def restore(self) -> None:
        """Wait until all paths are used again; where that once took too long, in a new lab from then on."""
        if self._comes_back:
            try:
                self._wait_for_paths(_BACK)
                return
            except TrimtabError:
                self._comes_back = False
        self._stack.close()
        self._build()

    def _build(self) -> None:
        single = self._variant.single_port
        with contextlib.ExitStack() as stack:
            self._lab = stack.enter_context(Lab(timers=self._variant.timers))
            self._lab.wait_ready(_READY)
            if self._variant.agents:
                self._lab.start_agents()
            if single:
                bind_to_one_port(self._lab)
            addresses = single_port_addresses(self._lab) if single else None
            self._probes = stack.enter_context(Probes(self._lab, addresses=addresses))
            self._precedence.give(*self._probes.pids)
            self._wait_for_paths(_READY)
            self._stack = stack.pop_all()
        self.labs += 1

    def _wait_for_paths(self, timeout: float) -> None:
        """Until all paths are in use and no probe is lost for a moment."""
        give_up = time.monotonic() + timeout
        if self._variant.single_port:
            bind_to_one_port(self._lab)
        while True:
            if self._variant.single_port or all_paths_in_use(self._lab):
                now = time.monotonic()
                if self._probes.outage(now, now + _CALM).lost == 0:
                    return
            if time.monotonic() > give_up:
                raise TrimtabError(f"not all paths are in use again after {timeout:g} s")
            time.sleep(_POLL)


def single_port_addresses(lab: Lab) -> tuple[str, str]:
    one, other = (str(host.host.uplinks[0].address.ip) for host in lab.hosts[:2])
    return one, other


def bind_to_one_port(lab: Lab) -> None:
    """Let the first uplinks of two hosts reach each other, by the switch between them and no other way."""
    addresses = single_port_addresses(lab)
    for host, other in zip(lab.hosts, reversed(addresses), strict=False):
        way = ("via", str(host.host.uplinks[0].peer), "dev", host.host.uplinks[0].device)
        words = ["ip", "-n", host.namespace, "route", "replace", f"{other}/32", *way]
        subprocess.run(words, check=True, capture_output=True)


def all_paths_in_use(lab: Lab) -> bool:
    """Every host uses all its uplinks to reach every other, every switch its own ports, and BFD watches."""
    routes = {host.label: _routes(host.namespace) for host in lab.hosts}
    for one, other in permutations(lab.hosts, 2):
        uplinks = {uplink.device for uplink in one.host.uplinks}
        if routes[one.label].get(str(other.host.loopback)) != uplinks:
            return False
    for switch in lab.switches:
        ports = _routes(switch.namespace)  # a port has the name of the host that is plugged in there
        if any(host.label not in ports.get(str(host.host.loopback), ()) for host in lab.hosts):
            return False
    sessions = {host.daemons: len(host.host.uplinks) for host in lab.hosts}
    sessions |= {switch.daemons: len(switch.switch.ports) for switch in lab.switches}
    for daemons, expected in sessions.items():
        peers = json.loads(daemons.vtysh("show bfd peers json"))
        # Up for a second, and no longer at the slow pace at which sessions begin.
        if len(peers) != expected or not all(
            peer["status"] == "up"
            and peer.get("uptime", 0) >= 1
            and peer["remote-transmit-interval"] == peer["transmit-interval"]
            for peer in peers
        ):
            return False
    return True


def _routes(namespace: str) -> dict[str, set[str]]:
    words = ["ip", "-n", namespace, "-j", "route", "show"]
    routes = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    return {route["dst"]: {str(hop["dev"]) for hop in route.get("nexthops", [route])} for route in routes}
