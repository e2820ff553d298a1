"""Each fault breaks what it says, at the place it says, until it ends. Cables only, no daemons."""

import json
import socket
import subprocess
from collections.abc import Iterator

import pytest
from waiting import until

from trimtab.core import BadInputError, NotFoundError
from trimtab.fabric.lab.faults import Cycle
from trimtab.fabric.lab.lab import Lab
from trimtab.fabric.machine import inside

PACKETS = 200


@pytest.fixture(scope="module")
def lab(can_build: None) -> Iterator[Lab]:
    with Lab(start_daemons=False) as built:
        yield built


def through(lab: Lab, switch: int, host: int = 0) -> tuple[float, float]:
    """Shares of packets that get through the cable between a host and a switch: up, and down."""
    uplink = lab.hosts[host].host.uplinks[switch]
    ends = []
    for namespace, address in (
        (lab.hosts[host].namespace, uplink.address.ip),
        (lab.switches[switch].namespace, uplink.peer),
    ):
        made = inside(namespace, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        made.bind((str(address), 0))
        made.settimeout(0.1)
        ends.append(made)
    try:
        return _sent(ends[0], ends[1]), _sent(ends[1], ends[0])
    finally:
        for made in ends:
            made.close()


def _sent(source: socket.socket, target: socket.socket) -> float:
    arrived = 0
    for _ in range(PACKETS):
        try:
            source.sendto(b"x", target.getsockname())
        except OSError:
            continue
    while arrived < PACKETS:
        try:
            target.recv(10)
        except TimeoutError:
            break
        arrived += 1
    return arrived / PACKETS


def carrier(lab: Lab, device: str = "p1") -> str:
    words = ["ip", "-n", lab.hosts[0].namespace, "-j", "link", "show", device]
    told = json.loads(subprocess.run(words, capture_output=True, check=True, text=True).stdout)
    return str(told[0]["operstate"])


def test_a_port_turned_off_is_seen_at_both_ends(lab: Lab) -> None:
    assert through(lab, 0) == (1, 1)
    for kind, state in (("link-down", "DOWN"), ("carrier-loss", "DOWN")):
        with lab.fault(kind, 0, "p1"):
            until(lambda state=state: carrier(lab) == state)
            assert through(lab, 0) == (0, 0)
            assert through(lab, 1) == (1, 1)
        until(lambda: carrier(lab) == "UP")
        until(lambda: through(lab, 0) == (1, 1))


def test_a_blackhole_is_not_seen_in_the_carrier(lab: Lab) -> None:
    through(lab, 0)  # both know the other's MAC from now on
    for kind, expected in (("blackhole-out", (0, 1)), ("blackhole-in", (1, 0)), ("blackhole", (0, 0))):
        with lab.fault(kind, 0, "p1") as fault:
            assert carrier(lab) == "UP"
            assert through(lab, 0) == expected, kind
            assert through(lab, 1) == (1, 1)
            assert through(lab, 0, host=1) == (1, 1)
        assert through(lab, 0) == (1, 1)
        assert fault.history[0].began < fault.history[0].ended


def test_two_faults_at_one_port_do_not_end_each_other(lab: Lab) -> None:
    through(lab, 0)
    first, second = lab.fault("blackhole"), lab.fault("blackhole-in")
    first.start()
    with second:
        first.stop()
        first.stop()
        assert through(lab, 0) == (1, 0)
    assert through(lab, 0) == (1, 1)


def test_some_packets_are_lost(lab: Lab) -> None:
    through(lab, 0)
    with lab.fault("loss", 0, "p1", percent=50):
        for share in through(lab, 0):
            assert 0.25 < share < 0.75
    with pytest.raises(BadInputError, match="200"):
        lab.fault("loss", percent=200)


def test_a_switch_that_lets_nothing_through_is_dead_for_all(lab: Lab) -> None:
    for host in (0, 1):
        through(lab, 1, host)
    with lab.fault("switch-blackhole", 0, "p2"):
        assert through(lab, 1, host=0) == through(lab, 1, host=1) == (0, 0)
        assert through(lab, 0) == (1, 1)
    assert through(lab, 1) == (1, 1)


def test_flapping_goes_on_until_it_is_stopped(lab: Lab) -> None:
    states = set[str]()
    with lab.fault("flapping", 0, "p1", down=0.05, up=0.05) as flapping:
        assert isinstance(flapping, Cycle)
        until(lambda: states.add(carrier(lab)) or len(flapping.happened) >= 3)
    assert states == {"UP", "DOWN"}
    until(lambda: carrier(lab) == "UP")
    until(lambda: through(lab, 0) == (1, 1))


def test_the_cycle_goes_round_all_ports(lab: Lab) -> None:
    with lab.cycle("blackhole", down=0.02, up=0.01) as cycle:
        until(lambda: len(cycle.happened) >= 5)
    assert [each.name for each in cycle.happened[:5]] == [
        f"blackhole at {place}" for place in ("h1 p1", "h1 p2", "h2 p1", "h2 p2", "h1 p1")
    ]
    for one, other in zip(cycle.happened, cycle.happened[1:], strict=False):
        assert one.ended - one.began >= 0.02
        assert other.began - one.ended >= 0.01
    assert cycle.now is None
    assert through(lab, 0) == (1, 1)


def test_what_cannot_break_is_said(lab: Lab) -> None:
    with pytest.raises(BadInputError, match=r"blackhol'.*blackhole"):
        lab.fault("blackhol")
    with pytest.raises(NotFoundError, match=r"p3 .*0 to 1, .*p1, p2"):
        lab.fault("blackhole", 0, "p3")
    with pytest.raises(BadInputError, match="at least one fault"):
        Cycle("nothing", [], 1, 1)
