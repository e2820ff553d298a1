"""Real routes of a real kernel, kept on paths that work: carrier, holds, what others write and say."""

import time
from dataclasses import replace
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

import pytest
from waiting import until

from trimtab.core import BadInputError, NotFoundError
from trimtab.fabric.failover.keeper import PathKeeper, UplinkNow
from trimtab.fabric.failover.messages import Notice, Notices
from trimtab.fabric.failover.routes import Hop
from trimtab.fabric.machine import inside

if TYPE_CHECKING:
    from conftest import Wires

BOTH = (Hop("p1", "172.16.1.3"), Hop("p2", "172.16.2.3"))


def test_traffic_leaves_an_uplink_without_carrier_and_returns_after_its_hold(
    wires: "Wires", keeper: PathKeeper
) -> None:
    for number in range(3, 40):
        wires.write_route(1, 2, to=f"10.255.0.{number}")
    wires.ip("link set q1 down", far=True)
    wires.wait_for("p2")
    wires.wait_for("p2", to="10.255.0.39")
    (failover,) = wires.failovers
    assert (failover.uplink, failover.cause, failover.paths) == ("p1", "carrier", 1)
    assert {each.device: each.state for each in keeper.look().uplinks} == {"p1": "dead", "p2": "up"}
    wires.ip("link set q1 up", far=True)
    began = time.monotonic()
    wires.wait_for("p1", "p2")
    assert time.monotonic() - began > wires.host.timers.hold / 2


def test_a_path_that_is_written_again_too_early_is_taken_out_again(
    wires: "Wires", keeper: PathKeeper
) -> None:
    wires.ip("link set p1 down")
    wires.wait_for("p2")
    wires.ip("link set p1 up")
    wires.write_route(1, 2)
    wires.wait_for("p2")
    wires.wait_for("p1", "p2")


def test_the_last_path_stays_although_it_is_dead(wires: "Wires", keeper: PathKeeper) -> None:
    wires.write_route(1)
    wires.ip("link set q1 down", far=True)
    wires.wait_for("p1")
    time.sleep(2 * wires.host.timers.settle)
    assert wires.devices() == {"p1"}


def test_what_an_earlier_keeper_held_is_held_by_the_next(wires: "Wires") -> None:
    now = time.time()
    held = UplinkNow("p1", "172.16.1.3", "held", now - 0.1, now + 3.0, 3)
    well = UplinkNow("p2", "172.16.2.3", "up", now - 100.0, None, 0)
    elsewhere = UplinkNow("p3", "172.16.3.3", "up", now, None, 0)
    with wires.keeping(before=[held, well, elsewhere]):
        wires.wait_for("p2")
        wires.wait_for("p1", "p2")
    patient = replace(wires.host, timers=replace(wires.host.timers, hold=60.0))
    with wires.keeping(patient, [replace(held, state="dead", held_until=None), well]) as keeper:
        wires.wait_for("p2")
        states = {each.device: (each.state, each.failures) for each in keeper.look().uplinks}
    assert states == {"p1": ("held", 3), "p2": ("up", 0)}


def test_routes_of_others_are_not_touched(wires: "Wires", keeper: PathKeeper) -> None:
    wires.write_route(1, 2, to="10.9.0.1", protocol="static")
    wires.ip("link set q1 down", far=True)
    wires.wait_for("p2")
    assert wires.devices("10.9.0.1") == {"p1", "p2"}
    wires.ip("route del 10.9.0.1/32 proto static metric 20")


def test_a_path_that_the_daemon_believes_in_and_the_kernel_lost_is_put_back(
    wires: "Wires", keeper: PathKeeper
) -> None:
    wires.write_route(2)
    wires.wait_for("p2")
    time.sleep(2 * wires.host.timers.settle)
    assert keeper.believe({"10.255.0.2/32": BOTH}, keeper.mark()) == 1
    assert wires.devices() == {"p1", "p2"}
    assert keeper.believe({"10.255.0.2/32": BOTH}, keeper.mark()) == 0


def test_what_another_host_lost_is_heard_and_avoided(wires: "Wires", keeper: PathKeeper) -> None:
    wires.write_route(1, 2, to="10.255.0.3")
    wires.ip("route replace 10.255.0.1/32 via 172.16.2.2 dev q2", far=True)
    other = inside(wires.far, lambda: Notices(IPv4Address("10.255.0.2")))
    try:
        other.send(["10.255.0.1"], [65101], 0.5)
        wires.wait_for("p2")
        assert wires.devices("10.255.0.3") == {"p1", "p2"}
        wires.wait_for("p1", "p2")  # nobody said it again
        assert not wires.failovers
    finally:
        other.close()


def test_other_hosts_hear_what_this_one_lost(wires: "Wires", keeper: PathKeeper) -> None:
    wires.ip("route replace 10.255.0.1/32 via 172.16.2.2 dev q2", far=True)
    other = inside(wires.far, lambda: Notices(IPv4Address("10.255.0.2")))
    try:
        wires.ip("link set q1 down", far=True)
        wires.wait_for("p2")
        notices = list[Notice]()
        until(lambda: notices.extend(other.received()) or notices)
        assert notices[0].sender == "10.255.0.1"
        assert notices[0].lost == {65101}
    finally:
        other.close()


def test_a_host_whose_routes_are_removed_is_gone(wires: "Wires", keeper: PathKeeper) -> None:
    before = time.time()
    wires.ip("route del 10.255.0.2/32 proto bgp metric 20")
    until(lambda: keeper.look().gone)
    assert before - 1 < keeper.look().gone["10.255.0.2/32"] <= time.time()
    assert keeper.look().devices == {}


def test_one_keeper_per_host_and_only_where_its_address_is(wires: "Wires", keeper: PathKeeper) -> None:
    with pytest.raises(BadInputError, match="another agent runs"):
        PathKeeper(wires.host, wires.folder / "bfdd.sock", wires.near)
    with pytest.raises(BadInputError, match="not an address of this machine"):
        PathKeeper(wires.host, wires.folder / "bfdd.sock", wires.far)
    with pytest.raises(NotFoundError, match="no network namespace nowhere"):
        PathKeeper(wires.host, wires.folder / "bfdd.sock", "nowhere")
