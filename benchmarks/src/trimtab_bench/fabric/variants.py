"""What the fabric bench compares, and what it measures with: variants of a host, paths, load, priorities."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import Any, Self

from trimtab.core import TrimtabError
from trimtab.fabric import Timers
from trimtab.fabric.lab.faults import Fault
from trimtab.fabric.lab.lab import Lab
from trimtab.fabric.lab.probes import Outage, Probes, traffic
from trimtab.kernel import LimitedGroup, NoGroupError, die_with_parent
from trimtab_bench.fabric import pauses_process


@contextmanager
def beside(words: Sequence[str], **popen: Any) -> Iterator["subprocess.Popen[Any]"]:
    """It ends with the context, and with this process whatever ends that."""
    with subprocess.Popen(words, preexec_fn=lambda: die_with_parent(signal.SIGKILL), **popen) as process:
        try:
            yield process
        finally:
            process.kill()


_COUNTING = "while True: pass"
_MOVING = """
one, other = bytearray(64 << 20), bytearray(64 << 20)
while True:
    one[:] = other
    other[:] = one
"""


@contextlib.contextmanager
def busy_cores() -> Iterator[None]:
    """One of each kind for every core."""
    cores = len(os.sched_getaffinity(0))
    with contextlib.ExitStack() as stack:
        for code in [_COUNTING, _MOVING] * cores:
            stack.enter_context(beside([sys.executable, "-I", "-S", "-c", code]))
        yield


_PRECEDENCE = 100 * 1024  # shares of a CPU, where others have 1024


class Precedence:
    """A context: `give` it to processes, and ask about `longest_pause`."""

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
            watching = stack.enter_context(beside(words, stdout=subprocess.PIPE))
            if watching.stdout is None or not watching.stdout.readline():
                raise TrimtabError("the process that notes pauses of this machine does not start")
            self.give(watching.pid)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def give(self, *pids: int) -> None:
        """Let these processes, and what they start, run before others."""
        if self._group is not None:
            for pid in pids:
                self._group.add(pid)

    def longest_pause(self, begin: float, end: float) -> float:
        """Seconds for which nothing ran, at the longest, between two times of the monotonic clock."""
        content = self._file.read_bytes()
        whole = memoryview(content)[: len(content) // pauses_process.RECORD.size * pauses_process.RECORD.size]
        return max(
            (
                late
                for woke, late in pauses_process.RECORD.iter_unpack(whole)
                if woke > begin and woke - late < end
            ),
            default=0.0,
        )


_READY = 60.0  # s for a new lab
_BACK = 5.0  # s for a mended one
_CALM = 0.15  # s without a loss before the next fault; what is shorter cannot tell silence from calm
_LOOK = 0.1  # s
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

    `labs` counts labs that were built, because not everyone finds back to both paths by itself.
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
        """What the probes see of a fault."""
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
        with contextlib.ExitStack() as stack:
            self._lab = stack.enter_context(Lab(timers=self._variant.timers))
            self._lab.wait_ready(_READY)
            if self._variant.agents:
                self._lab.start_agents()
            self._bind()
            self._probes = stack.enter_context(Probes(self._lab, addresses=self._addresses()))
            self._precedence.give(*self._probes.pids)
            self._wait_for_paths(_READY)
            self._stack = stack.pop_all()
        self.labs += 1

    def _wait_for_paths(self, timeout: float) -> None:
        give_up = time.monotonic() + timeout
        self._bind()
        while not (self._whole() and self._calm()):
            if time.monotonic() > give_up:
                raise TrimtabError(f"not all paths are in use again after {timeout:g} s")
            time.sleep(_LOOK)

    def _whole(self) -> bool:
        return self._variant.single_port or whole(self._lab)

    def _calm(self) -> bool:
        """Whether nothing is lost for a moment."""
        now = time.monotonic()
        return self._probes.outage(now, now + _CALM).lost == 0

    def _addresses(self) -> tuple[str, str] | None:
        return single_port_addresses(self._lab) if self._variant.single_port else None

    def _bind(self) -> None:
        if self._variant.single_port:
            bind_to_one_port(self._lab)


def single_port_addresses(lab: Lab) -> tuple[str, str]:
    """Of the first uplink of the first two hosts."""
    one, other = (str(host.host.uplinks[0].address.ip) for host in lab.hosts[:2])
    return one, other


def bind_to_one_port(lab: Lab) -> None:
    """Let the first uplinks of two hosts reach each other, by the switch between them and no other way."""
    addresses = single_port_addresses(lab)
    for host, other in zip(lab.hosts, reversed(addresses), strict=False):
        way = ("via", str(host.host.uplinks[0].peer), "dev", host.host.uplinks[0].device)
        words = ["ip", "-n", host.namespace, "route", "replace", f"{other}/32", *way]
        subprocess.run(words, check=True, capture_output=True)


def whole(lab: Lab) -> bool:
    """Every host uses all its uplinks to reach every other, every switch its own ports, and BFD watches."""
    return _hosts_spread(lab) and _switches_reach(lab) and _sessions_up(lab)


def _hosts_spread(lab: Lab) -> bool:
    """Next hops of hosts' routes to each other."""
    routes = {host.label: _routes(host.namespace) for host in lab.hosts}
    return all(
        routes[one.label].get(str(other.host.loopback)) == {uplink.device for uplink in one.host.uplinks}
        for one, other in permutations(lab.hosts, 2)
    )


def _switches_reach(lab: Lab) -> bool:
    """A switch's port has the name of the host that is plugged in there."""
    for switch in lab.switches:
        routes = _routes(switch.namespace)
        if any(host.label not in routes.get(str(host.host.loopback), ()) for host in lab.hosts):
            return False
    return True


def _sessions_up(lab: Lab) -> bool:
    """BFD sessions of hosts and switches, up for a second and no longer at the slow pace they begin with."""
    everyone = {host.daemons: len(host.host.uplinks) for host in lab.hosts}
    everyone |= {switch.daemons: len(switch.switch.ports) for switch in lab.switches}
    for daemons, expected in everyone.items():
        sessions = json.loads(daemons.vtysh("show bfd peers json"))
        if len(sessions) != expected or not all(map(_at_pace, sessions)):
            return False
    return True


def _at_pace(session: Mapping[str, Any]) -> bool:
    agreed = bool(session["remote-transmit-interval"] == session["transmit-interval"])
    return agreed and session["status"] == "up" and session.get("uptime", 0) >= 1


def _routes(namespace: str) -> dict[str, set[str]]:
    """Devices by destination."""
    words = ["ip", "-n", namespace, "-j", "route", "show"]
    told = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    return {each["dst"]: {str(hop["dev"]) for hop in each.get("nexthops", [each])} for each in told}
