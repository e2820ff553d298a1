"""Probes over real devices: they come back where a switch forwards, and are silence where it does not."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from waiting import until

from trimtab.fabric import Echo
from trimtab.fabric.failover.echo import EchoSocket, EchoWatch
from trimtab.fabric.failover.keeper import PathKeeper
from trimtab.fabric.machine import inside

if TYPE_CHECKING:
    from conftest import Wires

ECHO = Echo(multiplier=3)
BFD = 3784


@pytest.fixture
def switched(wires: "Wires") -> Iterator["Wires"]:
    """What is at the other ends forwards, and its MACs are not known yet."""
    forward(wires, 1, 2)
    yield wires
    forward(wires, 1, 2)


@pytest.fixture
def watch(switched: "Wires") -> Iterator[EchoWatch]:
    made = inside(switched.near, lambda: EchoWatch(switched.host.uplinks, ECHO, 0.0))
    yield made
    made.close()


def forward(wires: "Wires", *numbers: int) -> None:
    """Let the other ends of these uplinks forward, and no others."""

    def write() -> None:
        for number in (1, 2):
            conf = Path(f"/proc/sys/net/ipv4/conf/q{number}")
            (conf / "send_redirects").write_text("0")
            (conf / "forwarding").write_text(str(int(number in numbers)))

    inside(wires.far, write)


def speak(wires: "Wires", *numbers: int) -> None:
    """The other ends of these uplinks send a packet to BFD's port, as the routing daemon there would."""
    for number in numbers:
        made = inside(wires.far, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        with made:
            made.bind((f"172.16.{number}.3", 0))
            made.sendto(b"x", (f"172.16.{number}.2", BFD))


def ticked(watch: EchoWatch, ticks: int = 8) -> list[tuple[str, str]]:
    """What changed in so many ticks, each in time."""
    said = list[tuple[str, str]]()
    for _ in range(ticks):
        said += watch.tick(watch.next_tick)
        time.sleep(0.002)
    return said


def test_nothing_is_sent_before_the_switch_was_heard_and_then_it_comes_back(
    switched: "Wires", watch: EchoWatch
) -> None:
    assert ticked(watch) == []
    assert watch.comes_back("p1") is None
    speak(switched, 1)
    assert ticked(watch) == [("p1", "well")]
    assert (watch.comes_back("p1"), watch.comes_back("p2")) == (True, None)


def test_probes_of_another_agent_are_not_ours(switched: "Wires") -> None:
    uplink = switched.host.uplinks[0]
    one, other = inside(
        switched.near, lambda: [EchoSocket(uplink, session) for session in (b"session1", b"session2")]
    )
    try:
        speak(switched, 1)
        assert one.back() == other.back() == []
        one.send(7)
        back = list[int]()
        until(lambda: back.extend(one.back()) or back)
        assert back == [7]
        assert other.back() == []
    finally:
        one.close()
        other.close()


def test_a_switch_that_stops_forwarding_is_lost_and_well_again_when_it_does(
    switched: "Wires", watch: EchoWatch
) -> None:
    speak(switched, 1, 2)
    assert sorted(ticked(watch)) == [("p1", "well"), ("p2", "well")]
    forward(switched, 2)
    assert ticked(watch) == [("p1", "lost")]
    forward(switched, 1, 2)
    assert ticked(watch) == [("p1", "well")]


def test_another_switch_and_a_device_that_went_and_came_are_found_again(
    switched: "Wires", watch: EchoWatch
) -> None:
    speak(switched, 1, 2)
    ticked(watch)
    switched.ip("link set q1 address 02:00:00:00:00:77", far=True)
    speak(switched, 1)
    ticked(watch)
    assert watch.comes_back("p1") is True
    switched.ip("link set p1 down")
    assert ticked(watch) == [("p1", "lost")]
    switched.ip("link set p1 up")
    watch.plug("p1")
    speak(switched, 1)
    assert ticked(watch) == [("p1", "well")]
    switched.ip("link del p1")
    assert ticked(watch) == [("p1", "lost")]
    watch.plug("p1")
    switched.ip(f"link add p1 type veth peer name q1 netns {switched.far}")
    switched.ip("addr add 172.16.1.2/31 dev p1")
    switched.ip("addr add 172.16.1.3/31 dev q1", far=True)
    switched.ip("link set q1 up", far=True)
    switched.ip("link set p1 up")
    forward(switched, 1, 2)
    watch.plug("p1")
    speak(switched, 1)
    assert ticked(watch) == [("p1", "well")]


def test_traffic_leaves_an_uplink_whose_probes_are_lost_and_returns_after_its_hold(
    switched: "Wires", keeper: PathKeeper
) -> None:
    speak(switched, 1, 2)
    wait_for_echoes(keeper, True, True)
    forward(switched, 2)
    switched.wait_for("p2")
    (failover,) = switched.failovers
    assert (failover.uplink, failover.cause, failover.paths) == ("p1", "echo", 1)
    wait_for_echoes(keeper, False, True)
    forward(switched, 1, 2)
    began = time.monotonic()
    switched.wait_for("p1", "p2")
    assert time.monotonic() - began > switched.host.timers.hold / 2


def test_a_switch_that_came_anew_and_sends_nothing_back_is_used(
    switched: "Wires", keeper: PathKeeper
) -> None:
    speak(switched, 1, 2)
    wait_for_echoes(keeper, True, True)
    forward(switched, 2)
    switched.wait_for("p2")
    switched.ip("link set q1 down", far=True)
    wait_for_echoes(keeper, None, True)
    states = {"p1": "dead", "p2": "up"}
    assert {each.device: each.state for each in keeper.look().uplinks} == states
    switched.ip("link set q1 up", far=True)
    speak(switched, 1)
    switched.wait_for("p1", "p2")
    wait_for_echoes(keeper, None, True)
    assert len(switched.failovers) == 1


def wait_for_echoes(keeper: PathKeeper, *wanted: bool | None) -> None:
    until(lambda: tuple(uplink.echo for uplink in keeper.look().uplinks) == wanted)
