"""A plan made so and undone, in namespaces of our own: again, half-way, killed, with others' hands in it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from host_network import Network, described, ip, network, some_host

from trimtab.core import BadInputError, NotFoundError, StorageError, TrimtabError
from trimtab.fabric import HostPlan, apply_plan, commands, host_of, plan_here, undo, undo_commands
from trimtab.fabric.machine import Machine, inside
from trimtab.fabric.steps import THERE, DeviceAddress, PlanStep
from trimtab.kernel import file_lock

STATE = Path("/run/trimtab/fabric")


@pytest.fixture
def place() -> Iterator[Network]:
    """A host whose first port is used already, with settings of its own."""
    with network("jobs") as made:
        for words in ("link set lo up", "link set p1 up mtu 1400", "addr add 203.0.113.9/24 dev p1"):
            made.ip(*words.split())
        _sysctl(made.host, "-w", "net.ipv4.conf.p1.rp_filter=1")
        yield made
        for file in (STATE / made.name).glob("*"):
            file.unlink()
        if (STATE / made.name).exists():
            (STATE / made.name).rmdir()


def two_tenants(place: Network) -> dict[str, Any]:
    return described(
        place.name,
        tenants={
            "blue": {"vni": 100, "devices": [{"name": "w0", "address": "10.100.0.1/24"}]},
            "red": {
                "vni": 200,
                "devices": [{"name": "w0b", "address": "10.200.0.1/24", "namespace": place.workers[0]}],
            },
        },
    )


def planned(place: Network, description: dict[str, Any] | None = None) -> HostPlan:
    return plan_here(host_of("host.yaml", description or two_tenants(place)), place.host)


def seen(place: Network) -> dict[str, Any]:
    """Devices, IPv4 addresses, routes and settings, of host and worker."""
    found: dict[str, Any] = {}
    for name in (place.host, place.workers[0]):
        for link in json.loads(ip("-n", name, "-j", "-d", "addr")):
            addresses = [(a["local"], a["prefixlen"]) for a in link["addr_info"] if a["family"] == "inet"]
            made = re.match(r"f(br|vx)\d|.*-br$", link["ifname"])  # of any MAC
            up, mac = "UP" in link["flags"], "" if made else link["address"]
            found[f"{name} {link['ifname']}"] = (link["mtu"], mac, up, link.get("master"), addresses)
        found[f"{name} routes"] = ip("-n", name, "route")
        found[f"{name} sysctls"] = inside(name, _sysctls)
    return found


def _sysctls() -> dict[str, str]:
    root = Path("/proc/sys/net")
    files = [*root.glob("ipv[46]/conf/*/*"), *root.glob("ipv4/fib*"), *root.glob("ipv4/ip_*")]
    names = [file for file in files if file.name not in ("mtu", "stable_secret")]
    return {str(file.relative_to(root)): file.read_text().strip() for file in names if file.is_file()}


def _sysctl(namespace: str, *words: str) -> str:
    inside = ["ip", "netns", "exec", namespace, "sysctl", *words]
    return subprocess.run(inside, capture_output=True, text=True, check=True).stdout


def test_it_is_made_once_and_undone_without_a_trace(place: Network) -> None:
    before = seen(place)
    assert apply_plan(planned(place), place.host)
    made = seen(place)
    assert made[f"{place.host} p1"] == (
        9000,
        *before[f"{place.host} p1"][1:4],
        [("203.0.113.9", 24), ("172.16.1.2", 31)],
    )
    assert made[f"{place.host} w0"][::2] == (8950, True, [("10.100.0.1", 24)])
    assert made[f"{place.host} w0"][1] == "02:00:0a:64:00:01"
    assert made[f"{place.workers[0]} w0b"][::2] == (8950, True, [("10.200.0.1", 24)])
    assert made[f"{place.host} fvx200"][3] == "fbr200"
    assert made[f"{place.host} sysctls"]["ipv4/conf/p1/rp_filter"] == "2"
    assert apply_plan(planned(place), place.host) == ()
    assert seen(place) == made
    assert undo(place.name, place.host)
    assert seen(place) == before
    assert not (STATE / place.name).exists()
    with pytest.raises(NotFoundError, match=place.name):
        undo(place.name, place.host)


def test_two_hosts_workers_talk_through_the_tunnel_once_they_know_each_other(place: Network) -> None:
    """The devices are really joined: a frame from one host's worker comes out at the other's."""
    other = _the_switch_as_a_host(place)
    apply_plan(planned(place, described(place.name)), place.host)
    apply_plan(plan_here(other, place.switch), place.switch)
    try:
        for here, there, mac in (
            (place.host, "10.255.0.9", "02:00:0a:64:00:09"),
            (place.switch, "10.255.0.1", "02:00:0a:64:00:01"),
        ):
            peer = "172.16.1.3" if here == place.host else "172.16.1.2"
            ip("-n", here, "route", "add", f"{there}/32", "via", peer)
            for address in ("00:00:00:00:00:00", mac):
                _bridge(here, "fdb", "append", address, "dev", "fvx100", "dst", there)
        assert _talk(place.host, "10.100.0.1", place.switch, "10.100.0.9")
    finally:
        undo(other.name, place.switch)
    undo(place.name, place.host)


def test_both_ends_of_a_workers_connection_send_again_soon(place: Network) -> None:
    """A host's own worker and one in a namespace of its own; `off` gives the kernel's 200 ms back."""
    device = {"name": "w1", "address": "10.100.0.2/24", "namespace": place.workers[0]}
    description = described(place.name)
    description["tenants"]["blue"]["devices"].append(device)
    plain = planned(place, {**description, "rto_min": False})
    apply_plan(plain, place.host)
    assert min(_timeouts(place)) >= 0.2
    soon = planned(place, description)
    words = [words for words, needed in commands(soon, place.host) if needed]
    assert len(words) == 2
    assert all("rto_min 20ms" in each for each in words)
    assert apply_plan(soon, place.host) == tuple(words)
    assert 0.02 <= max(_timeouts(place)) < 0.2
    assert apply_plan(soon, place.host) == ()
    apply_plan(plain, place.host)
    assert min(_timeouts(place)) >= 0.2
    assert ip("-n", place.host, "route", "show", "dev", "w0").count("10.100.0.0/24") == 1
    undo(place.name, place.host)


def test_workers_in_one_network_keep_a_route_each(place: Network) -> None:
    description = described(place.name)
    description["tenants"]["blue"]["devices"].append({"name": "w1", "address": "10.100.0.2/24"})
    apply_plan(planned(place, description), place.host)
    routes = [line for line in place.ip("route").splitlines() if line.startswith("10.100.0.0/24")]
    assert [line.split()[2] for line in routes] == ["w0", "w1"]
    assert all("rto_min lock 20ms" in line for line in routes)
    undo(place.name, place.host)


def _timeouts(place: Network) -> tuple[float, float]:
    """Seconds after which either end of a connection between two workers would send again."""
    with inside(place.workers[0], lambda: socket.create_server(("10.100.0.2", 0))) as server:
        where = server.getsockname()
        with inside(place.host, lambda: socket.create_connection(where, timeout=5)) as one:
            two, _ = server.accept()
            with two:
                two.settimeout(5)
                for here, there in ((one, two), (two, one)):
                    here.sendall(b"x")
                    assert there.recv(1) == b"x"
                return _timeout(one), _timeout(two)


def _timeout(connection: socket.socket) -> float:
    """`tcpi_rto`, microseconds in the third word of what TCP says of itself."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    return int.from_bytes(info[8:12], sys.byteorder) / 1e6


def _the_switch_as_a_host(place: Network) -> Any:
    uplinks = [
        {"device": f"s{n}", "address": f"172.16.{n}.3/31", "peer": f"172.16.{n}.2", "peer_asn": 65001}
        for n in (1, 2)
    ]
    tenants = {"blue": {"vni": 100, "devices": [{"name": "w0", "address": "10.100.0.9/24"}]}}
    return some_host(f"{place.name}9", loopback="10.255.0.9", asn=65009, uplinks=uplinks, tenants=tenants)


def _bridge(namespace: str, *words: str) -> None:
    subprocess.run(["bridge", "-n", namespace, *words], check=True)


def _talk(here: str, address: str, there: str, peer: str) -> bool:
    with inside(there, lambda: socket.create_server((peer, 0))) as server:
        where = server.getsockname()
        with inside(
            here, lambda: socket.create_connection(where, timeout=5, source_address=(address, 0))
        ) as one:
            two, _ = server.accept()
            with two:
                one.sendall(b"x" * 100_000)
                two.settimeout(5)
                left = 100_000
                while left:
                    left -= len(two.recv(left))
    return True


def test_a_worker_does_not_reach_its_host_through_the_bridge(place: Network) -> None:
    apply_plan(planned(place), place.host)
    worker, (bridge,) = place.workers[0], json.loads(place.ip("-j", "link", "show", "fbr200"))
    for words in (
        "route add 10.255.0.1 dev w0b",
        f"neigh add 10.255.0.1 lladdr {bridge['address']} dev w0b",
    ):
        ip("-n", worker, *words.split())
    place.ip("route", "add", "10.200.0.0/24", "via", "172.16.1.3")  # so that it is not for want of a route
    with (
        inside(place.host, lambda: socket.socket(type=socket.SOCK_DGRAM)) as listener,
        inside(worker, lambda: socket.socket(type=socket.SOCK_DGRAM)) as sender,
    ):
        listener.bind(("10.255.0.1", 0))
        sender.sendto(b"x", listener.getsockname())
        listener.settimeout(0.2)
        with pytest.raises(TimeoutError):
            listener.recv(1)
        _sysctl(place.host, "-w", "net.ipv4.conf.fbr200.rp_filter=0")
        sender.sendto(b"x", listener.getsockname())
        listener.settimeout(5)
        assert listener.recv(1) == b"x"  # it was the filter that kept it out
    undo(place.name, place.host)


def test_a_changed_file_changes_only_what_differs(place: Network) -> None:
    before = seen(place)
    apply_plan(planned(place), place.host)
    description = two_tenants(place)
    description["loopback"] = "10.255.0.77"
    description["mtu"] = 4000
    del description["tenants"]["red"]
    again = planned(place, description)
    foreseen = [words for words, needed in commands(again, place.host) if needed]
    done = apply_plan(again, place.host)
    assert list(done) == foreseen
    assert {"ip addr del 10.255.0.1/32 dev lo", "ip link del fbr200", "ip link set p1 mtu 4000"} <= set(done)
    assert "ip link add fbr100 type bridge" not in done
    assert "local 10.255.0.77" in place.ip("-d", "link", "show", "fvx100")
    assert place.ip("link", "show", "master", "fbr100").count("mtu 3950") == 2
    assert f"{place.host} fbr200" not in seen(place)
    assert apply_plan(planned(place, description), place.host) == ()
    undo(place.name, place.host)
    assert seen(place) == before


def test_an_address_moves_from_one_port_to_another(place: Network) -> None:
    place.ip("link", "add", "p3", "type", "veth", "peer", "name", "s3")
    before = seen(place)
    apply_plan(planned(place), place.host)
    description = two_tenants(place)
    description["uplinks"][1]["device"] = "p3"
    description["tenants"]["blue"]["devices"].append({"name": "w2", "address": "10.100.0.2/24"})
    apply_plan(planned(place, description), place.host)
    assert seen(place)[f"{place.host} p2"] == before[f"{place.host} p2"]
    assert seen(place)[f"{place.host} p3"][4] == [("172.16.2.2", 31)]
    undo(place.name, place.host)
    assert seen(place) == before


def test_what_others_changed_is_put_right_by_up_and_left_alone_by_down(place: Network) -> None:
    before = seen(place)
    apply_plan(planned(place), place.host)
    made = seen(place)
    for words in ("link del w0", "link set p1 mtu 2000", "link del fvx200", "addr del 10.255.0.1/32 dev lo"):
        place.ip(*words.split())
    apply_plan(planned(place), place.host)
    assert seen(place) == made
    for words in ("link del w0-br", "link set p2 mtu 2000", "link set fbr200 down", "link del fbr100"):
        place.ip(*words.split())
    undo(place.name, place.host)
    after = seen(place)
    assert after.pop(f"{place.host} p2")[0] == 2000
    before.pop(f"{place.host} p2")
    assert after == before


def test_a_step_that_fails_leaves_nothing_behind(place: Network) -> None:
    before = seen(place)
    plan = planned(place)
    failing = HostPlan(plan.name, (*plan.steps, PlanStep(DeviceAddress("nowhere", "10.9.9.9/24"), THERE)))
    with pytest.raises(TrimtabError, match=r"`ip addr add 10\.9\.9\.9/24 dev nowhere`"):
        apply_plan(failing, place.host)
    assert seen(place) == before
    assert not (STATE / place.name).exists()


def test_a_step_that_fails_leaves_what_an_earlier_plan_made(place: Network) -> None:
    apply_plan(planned(place, described(place.name)), place.host)
    made = seen(place)
    plan = planned(place)
    failing = HostPlan(plan.name, (*plan.steps, PlanStep(DeviceAddress("nowhere", "10.9.9.9/24"), THERE)))
    with pytest.raises(TrimtabError):
        apply_plan(failing, place.host)
    assert seen(place) == made
    assert apply_plan(planned(place, described(place.name)), place.host) == ()


@pytest.mark.parametrize("changes", [2, 25])
def test_killed_half_way_it_is_undone_or_gone_on_with(changes: int, place: Network) -> None:
    before = seen(place)
    plan = planned(place)
    _killed_after(changes, plan, place.host)
    assert seen(place) != before
    assert undo_commands(place.name, place.host)
    undo(place.name, place.host)
    assert seen(place) == before
    _killed_after(changes, plan, place.host)
    assert apply_plan(planned(place), place.host)
    undo(place.name, place.host)
    assert seen(place) == before


def test_killed_while_a_value_changes_the_first_one_is_restored(place: Network) -> None:
    before = seen(place)
    apply_plan(planned(place), place.host)
    _killed_after(0, planned(place, {**two_tenants(place), "mtu": 4000}), place.host)
    assert seen(place)[f"{place.host} p1"][0] == 9000
    undo(place.name, place.host)
    assert seen(place) == before


def _killed_after(changes: int, plan: HostPlan, netns: str) -> None:
    """Apply it in a child that kills itself before one change more."""
    child = os.fork()
    if child == 0:
        left, real = [changes], Machine.netlink

        def counted(machine: Machine, namespace: str = "") -> Any:
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return real(machine, namespace)

        Machine.netlink = counted  # type: ignore[method-assign]
        try:
            apply_plan(plan, netns)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_a_dry_run_touches_nothing_and_its_commands_do_the_same(place: Network) -> None:
    before = seen(place)
    plan = planned(place)
    words = commands(plan, place.host)
    assert seen(place) == before
    assert not (STATE / place.name).exists()
    script = "set -e\n" + "\n".join(f"{line} >/dev/null" for line, needed in words if needed)
    subprocess.run(["ip", "netns", "exec", place.host, "sh", "-c", script], check=True)
    with pytest.raises(BadInputError, match="fbr100"):
        planned(place)
    assert not any(needed for _, needed in commands(plan, place.host))


def test_a_fabric_that_went_with_its_namespace_is_forgotten() -> None:
    with network("jobs") as gone:
        apply_plan(planned(gone), gone.host)
    assert (STATE / gone.name / "journal.json").exists()
    with pytest.raises(BadInputError, match="namespace"):
        undo(gone.name, gone.host)
    with network() as other, pytest.raises(NotFoundError, match="no fabric"):
        undo(gone.name, other.host)
    assert not (STATE / gone.name).exists()


def test_a_fabric_is_taken_down_where_it_is_up(place: Network) -> None:
    apply_plan(planned(place), place.host)
    with pytest.raises(BadInputError, match="another network namespace"):
        undo(place.name, place.switch)
    other = some_host("another", tenants={})
    with pytest.raises(BadInputError, match=f"p1 .*{place.name}"):
        plan_here(other, place.host)
    undo(place.name, place.host)


def test_two_at_once_and_a_journal_nobody_can_read_are_said(place: Network) -> None:
    plan = planned(place)
    with (
        file_lock(STATE / place.name / "lock", "no"),
        pytest.raises(StorageError, match="another command"),
    ):
        apply_plan(plan, place.host)
    (STATE / place.name / "journal.json").write_text("{")
    with pytest.raises(StorageError, match=r"journal\.json"):
        apply_plan(plan, place.host)


def test_without_root_it_says_so(place: Network) -> None:
    plan = planned(place)
    child = os.fork()
    if child == 0:
        try:
            os.setuid(65534)
            apply_plan(plan, place.host)
        except BadInputError as error:
            os._exit(0 if "root" in str(error) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
