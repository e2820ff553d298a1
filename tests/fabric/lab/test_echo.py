"""Silent faults in a whole lab, noticed by probes that do not come back; a machine that was away is none."""

import os
import signal
import time
from collections.abc import Iterator, Sequence

import psutil
import pytest
from waiting import until

from trimtab.fabric import Failover, Status, Timers
from trimtab.fabric.agent import read_status
from trimtab.fabric.lab.faults import daemons_killed
from trimtab.fabric.lab.lab import Lab

SOON = 0.1  # s; BFD takes longer than that


@pytest.fixture(scope="module")
def lab(can_build: None) -> Iterator[Lab]:
    """With agents; a path that came back is soon used again."""
    with Lab(timers=Timers(hold=0.2, settle=0.2)) as built:
        built.wait_ready(60)
        built.start_agents()
        yield built


@pytest.fixture(autouse=True)
def _all_well(lab: Lab) -> None:
    """Every uplink is used, and its switch sends probes back."""
    until(
        lambda: all(each.state == "up" and each.echo for host in (0, 1) for each in status(lab, host).uplinks)
    )
    lab.wait_ready(60)


def status(lab: Lab, host: int) -> Status:
    return read_status(lab.hosts[host].host.name)


def dead(lab: Lab, host: int) -> list[str]:
    return [each.device for each in status(lab, host).uplinks if each.state == "dead"]


def failovers(lab: Lab) -> list[Failover]:
    """Of all hosts, so far."""
    return [each for host in (0, 1) for each in status(lab, host).failovers]


def stop_for(pids: Sequence[int], seconds: float) -> None:
    """They do nothing for a while, like programs of a machine that is paused."""
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize(
    ("kind", "host", "uplink"),
    [
        ("blackhole", 0, "p1"),
        ("blackhole-in", 0, "p2"),
        ("blackhole-out", 1, "p1"),
        ("switch-blackhole", 1, "p2"),
    ],
)
def test_a_silent_fault_is_failed_over_before_bfd_could_notice_it(
    lab: Lab, kind: str, host: int, uplink: str
) -> None:
    before = len(status(lab, host).failovers)
    with lab.fault(kind, host, uplink):
        broken = time.time()
        until(lambda: len(status(lab, host).failovers) > before)
    failover = status(lab, host).failovers[before]
    assert (failover.uplink, failover.cause, failover.paths) == (uplink, "echo", 1)
    assert failover.time - broken < SOON


def test_ports_that_are_turned_off_one_after_another_cut_nobody_off(lab: Lab) -> None:
    for host, uplink in ((0, "p1"), (1, "p1"), (0, "p2")):
        with lab.fault("link-down", host, uplink):
            until(lambda at=(host, uplink): at[1] in dead(lab, at[0]))
        lab.wait_ready(60)


def test_a_switch_whose_programs_died_is_left_although_it_sends_probes_back(lab: Lab) -> None:
    before = len(status(lab, 0).failovers)
    with daemons_killed("death of bfdd", lab.switches[0].daemons, ["bfdd"]):
        until(lambda: len(status(lab, 0).failovers) > before)
        until(lambda: status(lab, 0).uplinks[0].echo)
        assert dead(lab, 0) == ["p1"]
    failover = status(lab, 0).failovers[before]
    assert (failover.uplink, failover.cause) in (("p1", "bfd"), ("p1", "flap"))


def test_an_agent_that_was_away_takes_nothing_for_dead(lab: Lab) -> None:
    before, late = failovers(lab), status(lab, 0).late
    agents = [
        each.pid
        for each in psutil.process_iter(["cmdline"])
        if any(f"{host.daemons.folder}/host.yaml" in (each.info["cmdline"] or ()) for host in lab.hosts)
    ]
    assert len(agents) == 2
    stop_for(agents, 0.2)
    until(lambda: status(lab, 0).late > late)
    assert failovers(lab) == before


def test_daemons_that_were_away_for_a_moment_are_no_failure(lab: Lab) -> None:
    before = failovers(lab)
    processes = [node.daemons.process("bfdd") for node in (*lab.hosts, *lab.switches)]
    stop_for([each.pid for each in processes if each is not None], 0.07)
    written = status(lab, 0).time
    until(lambda: status(lab, 0).time > written + 0.5)
    assert failovers(lab) == before
