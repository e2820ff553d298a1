"""What breaks in the lab, and mends again: links, switches, daemons.

Packets vanish at the switch's end of a cable, in a classic BPF program on its port, so that neither end loses
its carrier, and hosts' own programs stay as they are.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, cycle
from typing import Any, Self

from trimtab.core import BadInputError
from trimtab.fabric.frr.daemons import DAEMONS, Daemons, remove_crash_folder
from trimtab.fabric.lab.layout import LabSwitch, Plugged, configure, traffic_control

_DROP_ALL = "1,6 0 0 2"  # return TC_ACT_SHOT
_FIRST_PREFERENCE = 100
_preferences = count(_FIRST_PREFERENCE)


@dataclass(frozen=True, slots=True)
class Happened:
    """A fault that was there: what, and from when to when (seconds of the monotonic clock)."""

    what: str
    began: float
    ended: float


class Fault:
    """Something that breaks at `start` and is mended at `stop`; as a context, for as long as it lasts."""

    def __init__(self, what: str, begin: Callable[[], None], end: Callable[[], None]) -> None:
        self.what = what
        self.began: float | None = None
        self.history: list[Happened] = []
        self._begin = begin
        self._end = end

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()

    def start(self) -> None:
        """Break it; nothing when it is broken already."""
        if self.began is None:
            self.began = time.monotonic()
            self._begin()

    def stop(self) -> None:
        """Mend it; nothing when it is whole."""
        if self.began is not None:
            began, self.began = self.began, None
            self._end()
            self.history.append(Happened(self.what, began, time.monotonic()))


class Cycle(Fault):
    """Faults in turn, over and over: each lasts `down` seconds, then all is well for `up` seconds."""

    def __init__(self, what: str, faults: Sequence[Fault], down: float, up: float) -> None:
        if not faults or down <= 0 or up < 0:
            raise BadInputError("a cycle has at least one fault, which lasts for more than no time")
        super().__init__(what, self._begin_turning, self._end_turning)
        self.faults = tuple(faults)
        self._down, self._up = down, up
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._turn, daemon=True)

    @property
    def happened(self) -> list[Happened]:
        """All faults so far, in order."""
        return sorted((each for fault in self.faults for each in fault.history), key=lambda it: it.began)

    @property
    def now(self) -> Fault | None:
        """The fault that is there now."""
        return next((fault for fault in self.faults if fault.began is not None), None)

    def _begin_turning(self) -> None:
        self._over.clear()
        self._thread = threading.Thread(target=self._turn, daemon=True)
        self._thread.start()

    def _end_turning(self) -> None:
        self._over.set()
        self._thread.join()

    def _turn(self) -> None:
        for fault in cycle(self.faults):
            with fault:
                self._over.wait(self._down)
            if self._over.wait(self._up):
                return


def device_down(what: str, namespace: str, devices: Sequence[str]) -> Fault:
    """Devices that are turned off: the other end of their cable loses its carrier."""

    def turn(state: str) -> None:
        configure([f"link set {device} {state}" for device in devices], namespace)

    return Fault(what, lambda: turn("down"), lambda: turn("up"))


def packets_lost(
    what: str, namespace: str, ports: Sequence[str], directions: Sequence[str], percent: float = 100.0
) -> Fault:
    """Packets that vanish on their way into (`ingress`) or out of (`egress`) a switch's ports."""
    if not 0 < percent <= 100:
        raise BadInputError(f"between 0 and 100 percent of packets can be lost, not {percent:g}")
    preference = next(_preferences)
    program = _DROP_ALL if percent == 100 else _drop_some(percent)
    places = [f"dev {port} {direction} pref {preference}" for port in ports for direction in directions]

    def begin() -> None:
        # In one go: who notices the first of them would have moved away before the last.
        traffic_control([f'filter add {place} bpf da bytecode "{program}"' for place in places], namespace)

    def end() -> None:
        traffic_control([f"filter del {place}" for place in places], namespace)

    return Fault(what, begin, end)


def daemons_killed(what: str, daemons: Daemons, names: Sequence[str]) -> Fault:
    """Daemons that die without a word, and are started again at the end unless somebody was quicker."""

    def begin() -> None:
        for name in names:
            process = daemons.process(name)
            if process is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
                remove_crash_folder(process.pid)

    return Fault(what, begin, daemons.start)


def together(what: str, faults: Sequence[Fault]) -> Fault:
    """Faults that come in this order and go in the opposite one."""

    def each(parts: Iterator[Fault], action: Callable[[Fault], None]) -> None:
        for part in parts:
            action(part)

    return Fault(what, lambda: each(iter(faults), Fault.start), lambda: each(reversed(faults), Fault.stop))


def _drop_some(percent: float) -> str:
    """Classic BPF: load a random word, drop the packet if it is below a threshold, else look no further."""
    threshold = round(percent / 100 * 2**32)
    random_word = 2**32 - 0x1000 + 56  # SKF_AD_OFF + SKF_AD_RANDOM
    return f"4,32 0 0 {random_word},53 1 0 {threshold},6 0 0 2,6 0 0 {2**32 - 1}"


_INTO, _OUT_OF = "ingress", "egress"  # of the switch


def link_down(at: Plugged) -> Fault:
    """The host's port is turned off."""
    return device_down(f"link down at {at}", at.host.namespace, [at.cable.uplink])


def carrier_loss(at: Plugged) -> Fault:
    """The switch's port is turned off, and the host's loses its carrier."""
    return device_down(f"carrier loss at {at}", at.switch.namespace, [at.cable.port])


def blackhole(at: Plugged) -> Fault:
    """Nothing gets through, and neither end sees why."""
    return _lost("blackhole", at, _INTO, _OUT_OF)


def blackhole_out(at: Plugged) -> Fault:
    """Nothing that the host sends gets through."""
    return _lost("blackhole of what is sent", at, _INTO)


def blackhole_in(at: Plugged) -> Fault:
    """Nothing that is sent to the host gets through."""
    return _lost("blackhole of what should come", at, _OUT_OF)


def loss(at: Plugged, percent: float = 1.0) -> Fault:
    """So many of the packets vanish, each way."""
    return _lost(f"{percent:g} % loss", at, _INTO, _OUT_OF, percent=percent)


def flapping(at: Plugged, down: float = 0.5, up: float = 0.5) -> Cycle:
    """The switch's port is off for some seconds and on for some seconds, over and over."""
    return Cycle(f"flapping at {at}", [carrier_loss(at)], down, up)


def switch_crash(at: Plugged) -> Fault:
    """All ports of the switch are off, and all its daemons die."""
    switch = at.switch
    what = f"crash of {switch.label}"
    died = daemons_killed(what, switch.daemons, DAEMONS)
    # Ports first: daemons that die before would tell their neighbours by closing connections.
    return together(what, [device_down(what, switch.namespace, _ports(switch)), died])


def switch_blackhole(at: Plugged) -> Fault:
    """The switch looks alive and lets nothing through."""
    return packets_lost(
        f"blackhole in {at.switch.label}", at.switch.namespace, _ports(at.switch), (_INTO, _OUT_OF)
    )


def daemon_kill(at: Plugged, daemon: str = "bgpd") -> Fault:
    """A daemon of the host dies without a word."""
    return daemons_killed(f"death of {daemon} at {at.host.label}", at.host.daemons, [daemon])


KINDS: dict[str, Callable[..., Fault]] = {
    made.__name__.replace("_", "-"): made
    for made in (
        link_down,
        carrier_loss,
        blackhole,
        blackhole_out,
        blackhole_in,
        loss,
        flapping,
        switch_crash,
        switch_blackhole,
        daemon_kill,
    )
}
"""What can break."""


def _lost(what: str, at: Plugged, *directions: str, **options: Any) -> Fault:
    return packets_lost(f"{what} at {at}", at.switch.namespace, [at.cable.port], directions, **options)


def _ports(switch: LabSwitch) -> list[str]:
    return [port.device for port in switch.switch.ports]
