"""The flower plane against a kernel that has it; where this one lacks it, that is said, and nothing stays.

`test_flower_guest` has these tests run by a kernel that has it, whatever this one is.
"""

import contextlib
import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface

import pytest
from lone_host import LoneHost

from trimtab.fabric import FabricHost, TenantNetwork, VirtualFunction, WorkerDevice
from trimtab.fabric.reconcile.flower_plane import FlowerPlane, flower_unavailable
from trimtab.fabric.reconcile.planes import Changes, PlaneError, mac_bytes
from trimtab.fabric.reconcile.reconciler import Reconciler, TunnelView, reconciler_of, remove_planes

MAC, FAR = mac_bytes("02:00:00:00:00:02"), bytes([10, 255, 0, 2])
REASON = flower_unavailable()
has_it = pytest.mark.skipif(REASON is not None, reason=f"{REASON}; test_flower_guest boots one that has them")
lacks_it = pytest.mark.skipif(REASON is None, reason="this kernel has flower")


@contextlib.contextmanager
def reconciling(host: LoneHost, of: FabricHost | None = None) -> Iterator[Callable[[], Reconciler]]:
    """The host's reconciler, after a step that puts everything right."""
    where = of or host.host
    plane = FlowerPlane(where, where.tenants[0])
    reconciler = host.call(lambda: Reconciler(TunnelView(host.tenant.tunnel, (), plane.devices), plane, 60.0))

    def stepped() -> Reconciler:
        host.call(reconciler.settle)
        return reconciler

    try:
        yield stepped
    finally:
        reconciler.close()


def shown(host: LoneHost, what: str) -> list[dict[str, object]]:
    """Rules or actions as tc lists them."""
    listed = json.loads(host.run(f"tc -j {what}") or "[]")
    return [each for part in listed for each in part.get("actions", [part] if "options" in part else [])]


def rules(host: LoneHost) -> list[dict[str, object]]:
    return shown(host, "filter show dev w0-br ingress")


def tunnels(host: LoneHost) -> list[dict[str, object]]:
    return shown(host, "actions list action tunnel_key")


def redirects(host: LoneHost) -> list[dict[str, object]]:
    return shown(host, "actions list action mirred")


def sent(one: LoneHost, two: LoneHost, datagrams: int = 5) -> int:
    """How many of so many datagrams, all of which arrived, left by the sender: 0 is the tunnel's own way."""
    ends = [(one, one.tenant.devices[0]), (two, two.tenant.devices[0])]
    sockets = [host.call(lambda at=worker.address.ip: udp(str(at))) for host, worker in ends]
    with sockets[0] as here, sockets[1] as there:
        here.sendto(b"who has it?", there.getsockname())
        there.recv(100)
        before = left_by_sender(one)
        for _ in range(datagrams):
            here.sendto(b"x" * 1400, there.getsockname())
            assert len(there.recv(2000)) == 1400
        return left_by_sender(one) - before


def udp(address: str) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((address, 7000))
    made.settimeout(60)
    return made


def left_by_sender(host: LoneHost) -> int:
    lines = host.run("cat /proc/self/net/dev").splitlines()
    return sum(int(line.split(":")[1].split()[9]) for line in lines if line.strip().startswith("fvxout:"))


@has_it
def test_rules_are_made_read_back_changed_and_removed(host: LoneHost) -> None:
    before = host.run("tc qdisc show"), host.devices()
    plane = FlowerPlane(host.host, host.tenant)
    assert host.call(plane.prepare) > 0
    assert host.call(plane.prepare) == 0
    assert host.call(plane.entries) == {}
    host.call(lambda: plane.apply(Changes({MAC: FAR})))
    assert host.call(plane.entries) == {MAC: FAR}
    host.call(lambda: plane.apply(Changes({MAC: bytes([10, 255, 0, 3])})))
    assert host.call(FlowerPlane(host.host, host.tenant).entries) == {MAC: bytes([10, 255, 0, 3])}
    assert [each["dst_ip"] for each in tunnels(host)] == ["10.255.0.3"]
    host.call(lambda: plane.apply(Changes({}, (MAC,))))
    assert host.call(plane.entries) == {}
    host.call(lambda: plane.apply(Changes({MAC: FAR})))
    host.call(plane.remove)
    assert (host.run("tc qdisc show"), host.devices()) == before
    assert (tunnels(host), redirects(host)) == ([], [])


@has_it
def test_it_can_be_asked_for(host: LoneHost) -> None:
    reconciler = host.call(lambda: reconciler_of(host.host, host.tenant, "flower"))
    assert reconciler.plane.name == "flower"
    reconciler.close()


@has_it
def test_datagrams_cross_by_rule_in_both_directions_and_over_what_is_left(
    hosts: tuple[LoneHost, LoneHost],
) -> None:
    one, two = hosts
    assert sent(one, two) == 0
    with reconciling(one) as first, reconciling(two) as second:
        first(), second()
        assert sent(one, two) == 5
        assert sent(two, one) == 5
        one.run("ip link set p1 down")
        for here, there in ((one, 2), (two, 1)):
            here.run(f"ip route replace 10.255.0.{there}/32 src {here.host.loopback} via 172.16.2.{there}")
        assert sent(one, two) == 5
        assert sent(two, one) == 5
        one.forget({two.tenant.devices[0].mac: str(two.host.loopback)})
        host_of_none = first()
        assert (rules(one), tunnels(one), redirects(one)) == ([], [], [])
        assert host_of_none.problem is None
        assert sent(two, one) == 5


@has_it
def test_a_thousand_macs_are_as_many_rules_and_one_action_for_each_host(host: LoneHost) -> None:
    at = {f"02:00:00:00:{n // 256:02x}:{n % 256:02x}": f"10.255.1.{n % 50}" for n in range(1000)}
    host.learn(at)
    with reconciling(host) as settle:
        reconciler = settle()
        assert (reconciler.counts.changes, reconciler.problem) == (1000, None)
        assert settle().counts.changes == 1000, "what is there is read back as it was asked for"
    assert (len(rules(host)), len(tunnels(host)), len(redirects(host))) == (1000, 50, 1)
    gone = {mac: there for mac, there in at.items() if there != "10.255.1.7"}
    host.forget(gone)
    with reconciling(host) as settle:  # a later run finds what the one before has left
        reconciler = settle()
        assert (reconciler.counts.changes, reconciler.counts.repairs) == (len(gone), 0)
    assert (len(rules(host)), len(tunnels(host)), len(redirects(host))) == (20, 1, 1)
    elsewhere = replace(host.host, loopback=IPv4Address("10.255.0.9"))
    with reconciling(host, elsewhere) as settle:  # and one whose rules say what is no longer so
        assert settle().counts.changes == 20
    assert {each["src_ip"] for each in tunnels(host)} == {"10.255.0.9"}
    assert host.call(remove_planes) == 20
    assert (tunnels(host), redirects(host)) == ([], [])
    assert "fvxout" not in host.devices()


@has_it
def test_whatever_somebody_does_to_it_is_repaired(hosts: tuple[LoneHost, LoneHost]) -> None:
    one, two = hosts
    with reconciling(one) as settle:
        settle()
        for harm in (
            "tc filter del dev w0-br ingress",
            "tc qdisc del dev w0-br clsact",
            "ip link del fvxout",
            "ip link set fvxout down",
        ):
            one.run(harm)
            assert settle().problem is None
            assert sent(one, two) == 5, harm
    assert [each["to_dev"] for each in redirects(one)] == ["fvxout"]


@has_it
def test_a_card_that_refuses_is_said_and_frames_go_through_the_tunnel(
    hosts: tuple[LoneHost, LoneHost],
) -> None:
    one, two = hosts
    on_a_card = replace(one.tenant.devices[0], function=VirtualFunction("p1", 0, "w0-br"))
    tenant = replace(one.tenant, devices=(on_a_card,))
    with reconciling(one, replace(one.host, tenants=(tenant,))) as settle:
        with pytest.raises(PlaneError, match="1 changes"):
            settle()
        assert (rules(one), tunnels(one)) == ([], [])
        assert sent(one, two) == 0


@has_it
def test_one_refusal_keeps_no_other_rule_from_its_place(host: LoneHost) -> None:
    host.run("ip link add w1 type veth peer name w1-br")
    other = WorkerDevice(
        "w1", IPv4Interface("10.100.0.9/24"), "02:00:00:00:00:11", "", VirtualFunction("p1", 0, "w1-br")
    )
    host.run("ip link set w1-br master fbr100")
    both = replace(host.tenant, devices=(other, *host.tenant.devices))
    host.learn({"02:00:00:00:00:02": "10.255.0.2"})
    with reconciling(host, replace(host.host, tenants=(both,))) as settle:
        with pytest.raises(PlaneError, match="2 changes"):
            settle()
        assert len(rules(host)) == 1


@has_it
def test_tenants_share_the_way_out_and_nothing_else(host: LoneHost) -> None:
    host.run("ip link add w1 type veth peer name w1-br")
    second = TenantNetwork(
        "red", 200, (WorkerDevice("w1", IPv4Interface("10.9.0.1/24"), "02:00:00:00:00:11"),)
    )
    both = replace(host.host, tenants=(host.tenant, second))
    host.run("ip link add fbr200 type bridge")
    host.run("ip link set w1-br master fbr200")
    planes = [FlowerPlane(both, tenant) for tenant in both.tenants]
    for plane in planes:
        host.call(plane.prepare)
        host.call(plane.entries)
    for plane in planes:  # both have seen no actions by now
        host.call(lambda plane=plane: plane.apply(Changes({MAC: FAR})))
    assert [host.call(plane.entries) for plane in planes] == [{MAC: FAR}] * 2
    assert sorted(each["key_id"] for each in tunnels(host)) == [100, 200]
    assert len(redirects(host)) == 1
    host.call(planes[0].remove)
    assert host.call(planes[1].entries) == {MAC: FAR}
    host.call(planes[1].remove)
    assert (tunnels(host), redirects(host), "fvxout" in host.devices()) == ([], [], False)


@has_it
def test_a_port_that_is_not_there_is_named_and_keeps_nobody_from_the_others(host: LoneHost) -> None:
    gone = WorkerDevice("w9", IPv4Interface("10.100.0.9/24"), "02:00:00:00:00:19")
    both = replace(host.tenant, devices=(gone, *host.tenant.devices))
    host.learn({"02:00:00:00:00:02": "10.255.0.2"})
    with reconciling(host, replace(host.host, tenants=(both,))) as settle:
        assert settle().problem is None
        assert len(rules(host)) == 1
        host.run("ip link del w0")
        with pytest.raises(PlaneError, match=r"blue .*\(w9-br, w0-br\)"):
            settle()


@lacks_it
def test_a_kernel_without_it_refuses_in_a_sentence(host: LoneHost) -> None:
    plane = FlowerPlane(host.host, host.tenant)
    host.call(plane.prepare)
    assert host.call(plane.prepare) == 0
    host.call(plane.entries)
    with pytest.raises(PlaneError, match="1 changes"):
        host.call(lambda: plane.apply(Changes({MAC: FAR})))
    assert host.call(plane.entries) == {}
    host.call(plane.remove)
    assert "fvxout" not in host.devices()
    assert redirects(host) == []


@lacks_it
def test_a_reconciler_with_it_says_so_and_goes_on(host: LoneHost) -> None:
    host.learn({"02:00:00:00:00:02": "10.255.0.2"})
    reconciler = host.call(
        lambda: Reconciler(TunnelView(host.tenant.tunnel), FlowerPlane(host.host, host.tenant), 0.01)
    )
    host.call(lambda: reconciler.step(0))
    assert "1 changes" in str(reconciler.problem)
    reconciler.close()
