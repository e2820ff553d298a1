"""Who is compared: hosts with agents, FRR alone with two sets of timers, and a worker bound to one port."""

import contextlib
import subprocess
import time
from dataclasses import dataclass, replace
from typing import Self

from trimtab.core import TrimtabError
from trimtab.fabric import Timers
from trimtab.fabric.lab.faults import Fault
from trimtab.fabric.lab.lab import Lab
from trimtab.fabric.lab.probes import Outage, Probes, traffic
from trimtab_bench.fabric.paths import whole
from trimtab_bench.fabric.precedence import Precedence

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
