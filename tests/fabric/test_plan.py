"""A plan: in an order that works, about nobody else's things, and refused where it would do harm."""

import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from host_network import Network, described, ip, network, some_host
from hypothesis import given, strategies as st

from trimtab.core import BadInputError
from trimtab.fabric import host_of, plan_here
from trimtab.fabric.machine import Link, NamespaceState, inside
from trimtab.fabric.plan import HostPlan, MachineView, plan
from trimtab.fabric.steps import Bridge, LinkSetting, Moved, Pair, Sysctl, Tunnel


@pytest.fixture
def place() -> Iterator[Network]:
    with network("jobs") as made:
        yield made


def card(name: str, **more: Any) -> Link:
    return Link(name, "", 1500, 65535, "02:00:00:00:00:09", up=True, **more)


def view(*links: Link, workers: tuple[str, ...] = (), **more: Any) -> MachineView:
    known = {link.name: link for link in (card("p1"), card("p2"), card("lo"), *links)}
    return MachineView({"": NamespaceState(known), **{name: NamespaceState() for name in workers}}, **more)


@st.composite
def hosts(draw: st.DrawFn) -> dict[str, Any]:
    """Descriptions of hosts with up to four tenants, with devices here and elsewhere."""
    tenants = {}
    for tenant in range(draw(st.integers(0, 4))):
        devices = [
            {"name": f"w{tenant}{n}", "address": f"10.{tenant}.{n}.1/24", "namespace": draw(SPACES)}
            for n in range(draw(st.integers(1, 3)))
        ]
        tenants[f"t{tenant}"] = {"vni": 100 + tenant, "devices": devices}
    return described("node-1", tenants=tenants, loopback="192.168.0.1", mtu=draw(st.integers(1330, 9000)))


SPACES = st.sampled_from(["", "jobs", "more"])


@given(hosts())
def test_nothing_is_used_before_it_is_made_and_no_resource_is_set_twice(description: dict[str, Any]) -> None:
    planned = plan(host_of("host.yaml", description), view(workers=("jobs", "more")))
    known = {("", "lo"), ("", "p1"), ("", "p2")}
    for step in planned.steps:
        here = step.resource
        if isinstance(here, Bridge | Tunnel | Pair):
            assert ("", here.device) not in known
            known.add(("", here.device))
            if isinstance(here, Pair):
                known.add((here.namespace, here.peer))
        elif here.device:
            assert (getattr(here, "namespace", ""), here.device) in known, step.command
        if isinstance(here, LinkSetting) and here.name == "master":
            assert ("", step.desired) in known
    assert len({step.resource for step in planned.steps}) == len(planned.steps)


@given(hosts())
def test_every_mtu_leaves_room_for_the_tunnel(description: dict[str, Any]) -> None:
    planned = plan(host_of("host.yaml", description), view(workers=("jobs", "more")))
    mtus = {step.resource: int(step.desired) for step in planned.steps if _is_mtu(step.resource)}
    uplinks = {mtus.pop(LinkSetting(device, "mtu")) for device in ("p1", "p2")}
    assert uplinks == {description["mtu"]}
    assert set(mtus.values()) <= {description["mtu"] - 50}


def _is_mtu(place: object) -> bool:
    return isinstance(place, LinkSetting) and place.name == "mtu"


def test_the_commands_are_what_one_would_type() -> None:
    words = [step.command for step in plan(some_host("node-1"), view()).steps]
    for expected in (
        "sysctl -w net.ipv4.fib_multipath_hash_policy=1",
        "ip addr add 10.255.0.1/32 dev lo",
        "ip link set p1 mtu 9000",
        "ip addr add 172.16.2.2/31 dev p2",
        "ip link add fbr100 type bridge",
        "sysctl -w net.ipv4.conf.fbr100.arp_ignore=1",
        "ip link add fvx100 type vxlan id 100 local 10.255.0.1 dstport 4789 nolearning",
        "ip link set fvx100 master fbr100",
        "bridge link set dev fvx100 learning off",
        "ip link add w0-br type veth peer name w0 address 02:00:0a:64:00:01",
        "ip link set w0 mtu 8950",
        "ip link set w0 up",
        "ip route append 10.100.0.0/24 dev w0 proto kernel scope link src 10.100.0.1 rto_min 20ms"
        " && ip route del 10.100.0.0/24 dev w0 proto kernel scope link src 10.100.0.1",
    ):
        assert expected in words


def test_a_host_forwards_nothing_for_others_and_has_no_address_in_a_tenants_network() -> None:
    steps = plan(some_host("node-1"), view()).steps
    assert not any("forward" in step.command for step in steps)
    silent = {step.resource.device for step in steps if "disable_ipv6" in step.command}
    assert silent == {"fbr100", "fvx100", "w0-br"}
    without = plan(some_host("node-1"), view(has_ipv6=False)).steps
    assert not any("ipv6" in step.command for step in without)


def test_a_device_with_dots_in_its_name_is_one_device() -> None:
    uplinks = described("node-1")["uplinks"]
    host = some_host("node-1", uplinks=[uplinks[0], {**uplinks[1], "device": "p2.100"}])
    steps = plan(host, view(card("p2.100"))).steps
    assert "sysctl -w net/ipv4/conf/p2.100/rp_filter=2" in [step.command for step in steps]
    assert {step.resource.device for step in steps if isinstance(step.resource, Sysctl)} >= {"p1", "p2.100"}


def test_a_virtual_function_gets_its_mac_from_the_card_and_its_representor_goes_into_the_bridge() -> None:
    planned = _with_function(view(card("pf0", functions={3: "00:00:00:00:00:00"}), card("w0"), card("pf0r3")))
    words = [step.command for step in planned.steps]
    assert "ip link set pf0 vf 3 mac 02:00:0a:64:00:01" in words
    assert "ip link set w0 netns jobs" in words
    assert "ip link set pf0r3 master fbr100" in words
    assert "ip -n jobs addr add 10.100.0.1/24 dev w0" in words
    assert not any("veth" in each for each in words)
    assert Moved("w0", "jobs").command(None) == "ip -n jobs link set w0 netns $$"


def _with_function(seen: MachineView) -> HostPlan:
    function = {"device": "pf0", "index": 3, "representor": "pf0r3"}
    device = {"name": "w0", "address": "10.100.0.1/24", "vf": function, "namespace": "jobs"}
    host = some_host("node-1", tenants={"blue": {"vni": 100, "devices": [device]}})
    return plan(host, replace(seen, namespaces={**seen.namespaces, "jobs": NamespaceState()}))


@pytest.mark.parametrize(
    ("seen", "named"),
    [
        (view(), "pf0, .*w0"),
        (view(card("pf0")), "pf0r3, .*w0"),
        (view(card("pf0"), card("pf0r3")), "no device w0"),
        (view(card("pf0"), card("pf0r3"), card("w0")), "pf0 .* 3"),
        (
            view(card("pf0"), card("pf0r3"), card("w0"), reserved={"pf0": "carries the default route"}),
            "pf0 carries the default route.*w0",
        ),
    ],
)
def test_a_virtual_function_that_is_not_there_is_named(seen: MachineView, named: str) -> None:
    with pytest.raises(BadInputError, match=named):
        _with_function(seen)


@pytest.mark.parametrize(
    ("before", "changes", "sentence"),
    [
        ([], {"uplinks": "p3"}, "p3.*p1, p2"),
        ([], {"uplinks": "lo"}, r"\blo\b"),
        (["link add fbr100 type bridge"], {}, "fbr100"),
        (["link add w0 type bridge"], {}, r"\bw0\b"),
        (
            ["link add flannel type vxlan id 100 dstport 4789"],
            {},
            "blue.*flannel.*100.*4789",
        ),
        (
            ["link add geneve type vxlan external dstport 4789"],
            {},
            "geneve.*100.*4789",
        ),
        (
            ["link add eth0 type bridge", "addr add 10.100.0.1/32 dev eth0"],
            {},
            "10.100.0.1 .*w0.*eth0",
        ),
        (
            ["link add eth0 type bridge", "link set eth0 up", "route add 172.16.0.0/16 dev eth0"],
            {},
            "172.16.1.2/31.*p1.*172.16.0.0/16.*eth0",
        ),
        (
            ["link set p1 up", "addr add 10.100.0.9/16 dev p1"],
            {},
            "10.100.0.0/24.*w0.*10.100.0.0/16.*p1",
        ),
        (["link add bond type bridge", "link set p1 master bond"], {}, "p1 .*bond"),
        (
            ["link set p1 up", "addr add 192.0.2.2/24 dev p1", "route add default via 192.0.2.1"],
            {},
            "p1 .*default route",
        ),
        (
            [
                "link add lan type bridge",
                "link set p2 master lan",
                "link set lan up",
                "addr add 192.0.2.2/24 dev lan",
                "route add default via 192.0.2.1",
            ],
            {},
            "p2 .*lan.*default route",
        ),
        (
            ["link set p2 up", "-6 route add default dev p2 table 7"],
            {},
            "p2 .*default route",
        ),
        ([], {"namespace": "nowhere"}, "nowhere.*w0"),
    ],
)
def test_what_would_do_harm_here_is_refused(
    before: list[str], changes: dict[str, Any], sentence: str, place: Network
) -> None:
    for words in before:
        place.ip(*words.split())
    with pytest.raises(BadInputError, match=sentence):
        plan_here(_changed(place, changes), place.host)


def _changed(place: Network, changes: dict[str, Any]) -> Any:
    description = described(place.name)
    if "uplinks" in changes:
        description["uplinks"][0]["device"] = changes["uplinks"]
    elif "namespace" in changes:
        description["tenants"]["blue"]["devices"][0]["namespace"] = changes["namespace"]
    else:
        description.update(changes)
    return host_of("host.yaml", description)


def test_the_port_of_an_ssh_session_is_refused(place: Network) -> None:
    place.ip("addr", "add", "192.0.2.2/24", "dev", "p2")
    place.ip("link", "set", "p2", "up")
    ip("-n", place.switch, "addr", "add", "192.0.2.7/24", "dev", "s2")
    server = inside(place.host, lambda: socket.create_server(("192.0.2.2", 22)))
    with closing(server):
        client = inside(place.switch, lambda: socket.create_connection(("192.0.2.2", 22), timeout=5))
        with closing(client), closing(server.accept()[0]):  # noqa: SIM117
            with pytest.raises(BadInputError, match=r"p2 .*192\.0\.2\.7"):
                plan_here(some_host(place.name), place.host)


def test_an_mtu_that_a_port_cannot_have_is_refused() -> None:
    small = Link("p2", "", 1500, 1500, "02:00:00:00:00:09", up=True)
    with pytest.raises(BadInputError, match=r"p2 .*1500.*9000"):
        plan(some_host("node-1"), view(small))


def test_an_uplink_of_another_fabric_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"p2 .*node-2"):
        plan(some_host("node-1"), view(taken={"p2": "node-2"}))


def test_what_is_below_the_management_interface_is_refused() -> None:
    seen = view(reserved={"p1": "is below lan, which is the management interface"})
    with pytest.raises(BadInputError, match="p1 is below lan, which is the management interface"):
        plan(some_host("node-1"), seen)


def test_a_network_that_would_cut_off_an_ssh_session_is_refused() -> None:
    seen = view(ssh_clients=("2001:db8::1", "10.100.0.50"))
    with pytest.raises(BadInputError, match=r"10\.100\.0\.0/24.*w0.*10\.100\.0\.50"):
        plan(some_host("node-1"), seen)


def test_a_namespace_that_is_not_there_is_named() -> None:
    with pytest.raises(BadInputError, match="ip netns add nowhere"):
        plan_here(some_host("node-1"), "nowhere")
