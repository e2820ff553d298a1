"""The BPF plane between two hosts with two cables: which way frames go, and what repairs it."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
from lone_host import LoneHost
from waiting import until

from trimtab.fabric import FabricHost, TenantNetwork, WorkerDevice
from trimtab.fabric.reconcile.bpf_plane import BpfPlane, bpf_unavailable
from trimtab.fabric.reconcile.planes import Changes, PlaneError, mac_bytes
from trimtab.fabric.reconcile.reconciler import Reconciler, reconciler_of

REASON = bpf_unavailable()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))
FLOWS = 32
THERE = {mac_bytes("02:00:0a:64:00:02"): bytes([10, 255, 0, 2])}


@contextlib.contextmanager
def reconciling(host: LoneHost, period: float = 0.2) -> Iterator[Reconciler]:
    """At work in the host's namespace, with the plane left as it is at the end."""
    reconciler = host.call(lambda: reconciler_of(host.host, host.tenant, "bpf"))
    reconciler.period = period
    thread = threading.Thread(target=lambda: (host.enter(), reconciler.run()))
    thread.start()
    try:
        yield reconciler
    finally:
        reconciler.stop()
        thread.join()
        reconciler.close()


def sent(one: LoneHost, two: LoneHost) -> dict[str, int]:
    """Packets that left by each device of the first while every flow sent one datagram; all arrived."""
    listening = two.call(lambda: udp("10.100.0.2", 7000))
    flows = [one.call(lambda number=number: udp("10.100.0.1", 20000 + number)) for number in range(FLOWS)]
    with contextlib.ExitStack() as opened:
        for each in (listening, *flows):
            opened.callback(each.close)
        flows[0].sendto(b"warm", ("10.100.0.2", 7000))
        listening.recv(10)
        before = left_by(one)
        for flow in flows:
            flow.sendto(b"x" * 1400, ("10.100.0.2", 7000))
        for _ in flows:
            assert len(listening.recv(2000)) == 1400
        after = left_by(one)
    return {device: count - before[device] for device, count in after.items() if device in before}


def udp(address: str, port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((address, port))
    made.settimeout(30)
    return made


def left_by(host: LoneHost) -> dict[str, int]:
    lines = host.run("cat /proc/self/net/dev").splitlines()[2:]
    return {line.split(":")[0].strip(): int(line.split(":")[1].split()[9]) for line in lines}


def goes_by(one: LoneHost, two: LoneHost) -> str:
    counts = sent(one, two)
    return "program" if counts.get("fvxout", 0) >= FLOWS else "tunnel"


def test_frames_to_a_known_mac_go_around_the_bridge_and_spread_over_the_uplinks(
    hosts: tuple[LoneHost, LoneHost],
) -> None:
    one, two = hosts
    plain = sent(one, two)
    assert min(plain["p1"], plain["p2"]) < 4  # a few for neighbours; all flows take one cable
    with reconciling(one) as reconciler:
        until(lambda: dict(reconciler.plane.entries()) == THERE)
        counts = sent(one, two)
    assert counts["fvxout"] == FLOWS
    assert counts["fvx100"] < 4
    assert min(counts["p1"], counts["p2"]) >= 4


def test_when_nobody_renews_its_trust_the_bridge_takes_over(hosts: tuple[LoneHost, LoneHost]) -> None:
    one, two = hosts
    with reconciling(one) as reconciler:
        until(lambda: dict(reconciler.plane.entries()) == THERE)
    plane = BpfPlane(one.host, one.tenant)
    one.call(plane.prepare)
    assert goes_by(one, two) == "program"  # it goes on alone for a while
    one.call(lambda: plane.trust(-1))
    assert goes_by(one, two) == "tunnel"
    plane.close()


def test_whatever_somebody_does_to_it_is_repaired(hosts: tuple[LoneHost, LoneHost]) -> None:
    one, two = hosts
    with reconciling(one) as reconciler:
        until(lambda: dict(reconciler.plane.entries()) == THERE)
        for harm in (
            "tc filter del dev w0-br ingress",
            "tc qdisc del dev p1 clsact",
            "ip link del fvxout",
            "ip link set fvxout down",
            "bridge fdb del 02:00:0a:64:00:01 dev w0-br master",
        ):
            before = reconciler.counts.repairs
            one.run(harm)
            until(lambda before=before: reconciler.counts.repairs > before)
            assert "02:00:0a:64:00:01 master fbr100 static" in one.run("bridge fdb show dev w0-br")
            assert goes_by(one, two) == "program", harm
        assert reconciler.problem is None


def test_an_uplink_that_is_gone_keeps_nobody_from_the_other(hosts: tuple[LoneHost, LoneHost]) -> None:
    one, two = hosts
    with reconciling(one) as reconciler:
        until(lambda: dict(reconciler.plane.entries()) == THERE)
        one.run("ip link del p1")  # and with it the route over both
        for here, there in ((one, 2), (two, 1)):
            here.run(f"ip route replace 10.255.0.{there}/32 src {here.host.loopback} via 172.16.2.{there}")
        before = reconciler.counts.repairs
        one.run("ip link del fvxout")
        until(lambda: reconciler.counts.repairs > before)
        assert goes_by(one, two) == "program"
        assert reconciler.problem is None


def test_what_is_taken_off_a_device_comes_back_at_once(host: LoneHost) -> None:
    with reconciling(host, period=60) as reconciler:
        until(lambda: reconciler.counts.dumps > 0)
        for device, direction in (("w0-br", "ingress"), ("p2", "egress")):
            host.run(f"tc filter del dev {device} {direction}")
            show = f"tc filter show dev {device} {direction}"
            until(lambda show=show: "trimtab-" in host.run(show))


def test_a_map_changed_behind_its_back_is_put_right(host: LoneHost) -> None:
    host.learn({"02:00:00:00:00:02": "10.255.0.2"})
    with reconciling(host) as reconciler:
        expected = {mac_bytes("02:00:00:00:00:02"): bytes([10, 255, 0, 2])}
        until(lambda: dict(reconciler.plane.entries()) == expected)
        other = BpfPlane(host.host, host.tenant)  # finds the map by the program on the port
        host.call(other.prepare)
        wrong = mac_bytes("02:00:00:00:00:09")
        other.apply(Changes({wrong: bytes([1, 2, 3, 4])}, tuple(expected)))
        until(lambda: dict(other.entries()) == expected)
        assert reconciler.counts.repairs >= 2
        other.close()


def test_it_follows_every_change_of_the_tunnel(host: LoneHost) -> None:
    with reconciling(host, period=60) as reconciler:
        until(lambda: reconciler.counts.dumps > 0)
        at = {f"02:00:00:00:00:{number:02x}": f"10.255.0.{number % 3 + 2}" for number in range(100)}
        host.learn(at)
        until(lambda: len(reconciler.plane.entries()) == 100)
        host.learn({"02:00:00:00:00:07": "10.255.0.99"})
        moved = mac_bytes("02:00:00:00:00:07")
        until(lambda: reconciler.plane.entries()[moved] == bytes([10, 255, 0, 99]))
        host.forget(at | {"02:00:00:00:00:07": "10.255.0.99"})
        until(lambda: not reconciler.plane.entries())
        assert reconciler.counts.dumps < 50  # bursts, not entries


def test_a_later_process_takes_it_over_without_a_gap(hosts: tuple[LoneHost, LoneHost]) -> None:
    one, two = hosts
    with reconciling(one) as reconciler:
        until(lambda: dict(reconciler.plane.entries()) == THERE)
    shown = one.run("tc filter show dev w0-br ingress")
    with reconciling(one) as reconciler:
        until(lambda: reconciler.counts.dumps > 1)
        assert (reconciler.counts.changes, reconciler.counts.repairs) == (0, 0)
    assert one.run("tc filter show dev w0-br ingress") == shown
    assert goes_by(one, two) == "program"


def test_removed_it_leaves_nothing_but_pinned_macs(hosts: tuple[LoneHost, LoneHost]) -> None:
    one, two = hosts
    before = one.run("tc qdisc show"), one.devices()
    plane = BpfPlane(one.host, one.tenant)
    one.call(plane.prepare)
    one.call(plane.remove)
    one.call(plane.remove)
    assert (one.run("tc qdisc show"), one.devices()) == before
    assert goes_by(one, two) == "tunnel"


def test_filters_of_others_stay_where_they_are(host: LoneHost) -> None:
    host.run("tc qdisc add dev p1 clsact")
    host.run("tc filter add dev p1 egress pref 4789 bpf bytecode '1,6 0 0 0'")
    before = host.run("tc filter show dev p1 egress")
    plane = BpfPlane(host.host, host.tenant)
    with pytest.raises(PlaneError, match=r"p1 .*4789"):
        host.call(plane.prepare)
    host.call(plane.remove)
    assert host.run("tc filter show dev p1 egress") == before


def test_what_tenants_share_stays_for_the_others(host: LoneHost) -> None:
    host.run("ip link add w1 type veth peer name w1-br")
    worker = WorkerDevice("w1", host.host.uplinks[0].address, "02:00:00:00:00:11")
    second = TenantNetwork("red", 200, (worker,))
    host.run("ip link set w1-br master fbr100")
    both = FabricHost("h", host.host.loopback, 65001, host.host.uplinks, (host.tenant, second), 1550)
    planes = [BpfPlane(both, tenant) for tenant in both.tenants]
    for plane in planes:
        host.call(plane.prepare)
    assert [host.call(plane.prepare) for plane in planes] == [0, 0]
    host.call(planes[0].remove)
    assert "fvxout" in host.devices()
    host.call(planes[1].remove)
    assert "fvxout" not in host.devices()


def test_a_device_of_its_name_that_is_not_its_own_is_left_alone(host: LoneHost) -> None:
    host.run("ip link add fvxout type bridge")
    reconciler = host.call(lambda: reconciler_of(host.host, host.tenant, "bpf"))
    host.call(lambda: reconciler.step(0))
    assert "fvxout" in str(reconciler.problem)
    reconciler.close()


def test_a_port_that_is_not_there_is_named(host: LoneHost) -> None:
    host.run("ip link del w0")
    reconciler = host.call(lambda: reconciler_of(host.host, host.tenant, "bpf"))
    host.call(lambda: reconciler.step(0))
    assert "blue exists (w0-br)" in str(reconciler.problem)
    reconciler.close()
