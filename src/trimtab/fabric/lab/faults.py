"""Faults of the lab: links, switches and daemons that break, and are repaired.

Packets are dropped at the switch's end of a cable, by a classic BPF program on its port, so that neither end
loses its carrier, and hosts' own programs stay as they are.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, cycle
from typing import Any, Self

from trimtab.core import BadInputError
from trimtab.fabric.frr.daemons import DAEMONS, Daemons, remove_crash_folder
from trimtab.fabric.lab.layout import LabSwitch, Plugged, configure, traffic_control

_DROP_ALL = "1,6 0 0 2"  # return TC_ACT_SHOT
_FIRST_PREFERENCE = 100
_INTO, _OUT_OF = "ingress", "egress"  # of the switch
_preferences = count(_FIRST_PREFERENCE)


@dataclass(frozen=True, slots=True)
class Happened:
    """A fault that was there, from when to when (monotonic seconds)."""

    name: str
    began: float
    ended: float


class Fault:
    """Something that breaks at `start` and is repaired at `stop`; as a context, for as long as it lasts."""

    def __init__(self, name: str, begin: Callable[[], None], end: Callable[[], None]) -> None:
        self.name = name
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
        """Break it, unless it is broken."""
        if self.began is None:
            self.began = time.monotonic()
            self._begin()

    def stop(self) -> None:
        """Repair it, if it is broken."""
        if self.began is not None:
            began, self.began = self.began, None
            self._end()
            self.history.append(Happened(self.name, began, time.monotonic()))


class Cycle(Fault):
    """Faults in turn, over and over: each lasts `down` seconds, then nothing is broken for `up` seconds."""

    def __init__(self, name: str, faults: Sequence[Fault], down: float, up: float) -> None:
        if not faults or down <= 0 or up < 0:
            raise BadInputError(
                f"a cycle needs at least one fault, down above 0 and up at least 0; got {down=}, {up=}"
            )
        super().__init__(name, self._begin_cycle, self._end_cycle)
        self.faults = tuple(faults)
        self._down, self._up = down, up
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def happened(self) -> list[Happened]:
        """All faults so far, in order."""
        past = (event for fault in self.faults for event in fault.history)
        return sorted(past, key=lambda event: event.began)

    @property
    def now(self) -> Fault | None:
        """The fault that is there now."""
        return next((fault for fault in self.faults if fault.began is not None), None)

    def _begin_cycle(self) -> None:
        self._over.clear()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _end_cycle(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        for fault in cycle(self.faults):
            with fault:
                self._over.wait(self._down)
            if self._over.wait(self._up):
                return


def device_down(name: str, namespace: str, devices: Sequence[str]) -> Fault:
    """Devices that are turned off: the other end of their cable loses its carrier."""

    def turn(state: str) -> None:
        configure([f"link set {device} {state}" for device in devices], namespace)

    return Fault(name, lambda: turn("down"), lambda: turn("up"))


def packets_lost(
    name: str, namespace: str, ports: Sequence[str], directions: Sequence[str], percent: float = 100.0
) -> Fault:
    """Drop packets on their way into (`ingress`) or out of (`egress`) a switch's ports."""
    if not 0 < percent <= 100:
        raise BadInputError(f"the percentage of lost packets is above 0 and at most 100, not {percent:g}")
    preference = next(_preferences)
    # Classic BPF: load a random word, drop the packet if it is below a threshold, else stop.
    random_word = 2**32 - 0x1000 + 56  # SKF_AD_OFF + SKF_AD_RANDOM
    threshold = round(percent / 100 * 2**32)
    drop_some = f"4,32 0 0 {random_word},53 1 0 {threshold},6 0 0 2,6 0 0 {2**32 - 1}"
    program = _DROP_ALL if percent == 100 else drop_some
    places = [f"dev {port} {direction} pref {preference}" for port in ports for direction in directions]

    def begin() -> None:
        # In one batch: a host that notices the first would have moved traffic away before the last.
        traffic_control([f'filter add {place} bpf da bytecode "{program}"' for place in places], namespace)

    def end() -> None:
        traffic_control([f"filter del {place}" for place in places], namespace)

    return Fault(name, begin, end)


def daemons_killed(name: str, daemons: Daemons, names: Sequence[str]) -> Fault:
    """Kill daemons, and start them again at the end unless an agent did before."""

    def begin() -> None:
        for daemon in names:
            process = daemons.process(daemon)
            if process is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
                remove_crash_folder(process.pid)

    return Fault(name, begin, daemons.start)


def _switch_crash(at: Plugged) -> Fault:
    """All ports of the switch are turned off, and all its daemons die."""
    switch = at.switch
    name = f"crash of {switch.label}"
    # Ports first: daemons that die before would tell their neighbours by closing connections.
    parts = (
        device_down(name, switch.namespace, _ports(switch)),
        daemons_killed(name, switch.daemons, DAEMONS),
    )
    stack = contextlib.ExitStack()

    def begin() -> None:
        for part in parts:
            stack.enter_context(part)

    return Fault(name, begin, stack.close)


def _carrier_loss(at: Plugged) -> Fault:
    return device_down(f"carrier loss at {at}", at.switch.namespace, [at.cable.port])


def _lost(name: str, at: Plugged, *directions: str, **options: Any) -> Fault:
    return packets_lost(f"{name} at {at}", at.switch.namespace, [at.cable.port], directions, **options)


def _ports(switch: LabSwitch) -> list[str]:
    return [port.device for port in switch.switch.ports]


KINDS: dict[str, Callable[..., Fault]] = {
    # The host's port is turned off; the switch's port is, and the host's loses its carrier.
    "link-down": lambda at: device_down(f"link down at {at}", at.host.namespace, [at.cable.uplink]),
    "carrier-loss": _carrier_loss,
    # Packets are lost, each way, from the host or to the host, and neither end loses its carrier.
    "blackhole": lambda at: _lost("blackhole", at, _INTO, _OUT_OF),
    "blackhole-out": lambda at: _lost("blackhole of sent packets", at, _INTO),
    "blackhole-in": lambda at: _lost("blackhole of received packets", at, _OUT_OF),
    "loss": lambda at, percent=1.0: _lost(f"{percent:g} % loss", at, _INTO, _OUT_OF, percent=percent),
    # The switch's port is off and on for some seconds, over and over.
    "flapping": lambda at, down=0.5, up=0.5: Cycle(f"flapping at {at}", [_carrier_loss(at)], down, up),
    "switch-crash": _switch_crash,
    # The switch looks alive and forwards nothing.
    "switch-blackhole": lambda at: packets_lost(
        f"blackhole in {at.switch.label}", at.switch.namespace, _ports(at.switch), (_INTO, _OUT_OF)
    ),
    "daemon-kill": lambda at, daemon="bgpd": daemons_killed(
        f"death of {daemon} at {at.host.label}", at.host.daemons, [daemon]
    ),
}
"""Faults at a cable, by name."""
