"""A whole lab with real FRR: it works, survives what it should, and is gone afterwards."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest
from waiting import until

from trimtab.core import BadInputError, TrimtabError
from trimtab.fabric import Timers
from trimtab.fabric.agent import agent_runs
from trimtab.fabric.journal import RUN
from trimtab.fabric.lab.lab import Lab, uplink_states
from trimtab.fabric.lab.probes import Probes, busiest_uplink
from trimtab.fabric.machine import NAMESPACES

SLOW = Timers(interval=0.1, multiplier=3)
"""Slow enough for sessions to stay up on a machine that does much else."""


@pytest.fixture(scope="module")
def lab(can_build: None) -> Iterator[Lab]:
    with Lab(timers=SLOW, tenants={"lab": 100, "other": 200}) as built:
        built.wait_ready(60)
        yield built


def frr_answer(lab: Lab, command: str, host: int = 0) -> dict[str, object]:
    answer: dict[str, object] = json.loads(lab.hosts[host].daemons.vtysh(command))
    return answer


def test_all_sessions_are_up_and_both_tenants_are_announced(lab: Lab) -> None:
    states = uplink_states(lab)
    assert [(state.host, state.uplink) for state in states] == [
        (h, p) for h in ("h1", "h2") for p in ("p1", "p2")
    ]
    assert {(state.link, state.bfd, state.bgp) for state in states} == {("up", "up", "Established")}
    for tenant in lab.hosts[0].host.tenants:
        remote = frr_answer(lab, f"show evpn mac vni {tenant.vni} json")
        assert "10.255.0.2" in json.dumps(remote)


def test_a_host_announces_only_itself_and_takes_no_default_route(lab: Lab) -> None:
    uplink = lab.hosts[0].host.uplinks[0]
    answer = frr_answer(lab, f"show bgp ipv4 unicast neighbors {uplink.peer} advertised-routes json")
    assert list(answer["advertisedRoutes"]) == ["10.255.0.1/32"]  # type: ignore[call-overload]
    switch = lab.switches[0]
    words = ["vtysh", "--vty_socket", switch.daemons.folder, "-c", "configure terminal"]
    words += ["-c", f"router bgp {switch.switch.asn}", "-c", "address-family ipv4 unicast"]
    subprocess.run([*words, "-c", f"neighbor {uplink.address.ip} default-originate"], check=True)
    announced = f"show bgp ipv4 unicast neighbors {uplink.address.ip} advertised-routes json"
    until(lambda: "0.0.0.0/0" in switch.daemons.vtysh(announced))
    routes = subprocess.run(
        ["ip", "-n", lab.hosts[0].namespace, "route"], capture_output=True, text=True, check=True
    )
    assert "default" not in routes.stdout
    subprocess.run([*words, "-c", f"no neighbor {uplink.address.ip} default-originate"], check=True)


def test_traffic_goes_on_after_a_silent_fault_and_comes_back_to_both_paths(lab: Lab) -> None:
    with Probes(lab) as probes:
        begin = time.monotonic()
        assert probes.outage(begin, begin + 0.3).worst < 0.2
        uplink = busiest_uplink(lab, 0)
        fault = lab.fault("blackhole", 0, uplink)
        outage = probes.measure(fault, lasting=3.0)
    assert outage.flows_hit > 0
    assert 0.15 < outage.worst < 2.5, "the session's silence must be noticed, and then the other path taken"
    lab.wait_ready(30)


def test_a_worker_without_a_way_around_is_cut_off_all_the_time(lab: Lab) -> None:
    uplink = lab.hosts[0].host.uplinks[0]
    addresses = (str(uplink.address.ip), str(lab.hosts[1].host.uplinks[0].address.ip))
    for namespace, peer, other in (
        (lab.hosts[0].namespace, uplink.peer, addresses[1]),
        (lab.hosts[1].namespace, lab.hosts[1].host.uplinks[0].peer, addresses[0]),
    ):
        subprocess.run(["ip", "-n", namespace, "route", "add", f"{other}/32", "via", str(peer)], check=True)
    with Probes(lab, addresses=addresses) as probes:
        outage = probes.measure(lab.fault("blackhole", 0, "p1"), lasting=0.5)
    assert outage.worst > 0.45


def test_agents_are_processes_of_their_hosts_and_end_with_the_lab(lab: Lab) -> None:
    lab.start_agents()
    assert [agent_runs(host.host.name) for host in lab.hosts] == [True, True]
    lab.stop_agents()
    assert [agent_runs(host.host.name) for host in lab.hosts] == [False, False]
    assert all(host.daemons.missing() == () for host in lab.hosts), "FRR goes on by itself"


def test_a_killed_daemon_and_a_crashed_switch_come_back(lab: Lab) -> None:
    host, switch = lab.hosts[0], lab.switches[1]
    with lab.fault("daemon-kill", 0, daemon="bgpd"):
        until(lambda: host.daemons.missing() == ("bgpd",))
    assert host.daemons.missing() == ()
    with lab.fault("switch-crash", 1, "p2"):
        until(lambda: len(switch.daemons.missing()) == 3)
        until(lambda: [state.bfd for state in uplink_states(lab)] == ["up", "down"] * 2)
        until(lambda: [state.link for state in uplink_states(lab)] == ["up", "down"] * 2)
    assert switch.daemons.missing() == ()
    until(lambda: {state.bfd for state in uplink_states(lab)} == {"up"})


def test_what_is_not_ready_is_said(can_build: None) -> None:
    with Lab(start_daemons=False) as lab, pytest.raises(TrimtabError, match=r"0\.01 s: .*h1 "):
        lab.wait_ready(0.01)


def test_all_is_gone_after_an_error_and_labs_do_not_meet(can_build: None) -> None:
    names, running = list[str](), list[subprocess.Popen[bytes]]()

    def failing() -> None:
        with Lab(hosts=3, start_daemons=False) as lab:
            names.extend(node.namespace for node in (*lab.hosts, *lab.switches))
            assert all((NAMESPACES / name).exists() for name in names)
            running.append(lab.run(2, ["sleep", "1000"]))
            raise ZeroDivisionError

    with Lab(start_daemons=False) as other:
        with pytest.raises(ZeroDivisionError):
            failing()
        assert running[0].poll() is not None
        assert not any((NAMESPACES / name).exists() or (RUN / name).exists() for name in names)
        assert (NAMESPACES / other.hosts[0].namespace).exists()


def test_a_handler_that_raises_does_not_break_the_building(can_build: None) -> None:
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for _ in range(3):
            with Lab(start_daemons=False) as lab:
                assert all((NAMESPACES / host.namespace).exists() for host in lab.hosts)
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("hosts", [1, 101])
def test_too_few_or_too_many_hosts_are_refused(hosts: int) -> None:
    with pytest.raises(BadInputError, match=rf"2 to 100 .*\b{hosts}\b"):
        Lab(hosts=hosts)
