"""The kinds of fault by name: each is made of a place in the lab and a few options."""

from collections.abc import Callable
from typing import Any

from trimtab.fabric.frr import DAEMONS
from trimtab.fabric.lab.faults import Cycle, Fault, daemons_killed, device_down, packets_lost, together
from trimtab.fabric.lab.nodes import LabSwitch, Plugged

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
