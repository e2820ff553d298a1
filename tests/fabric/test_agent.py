"""The agent of a host in the lab, with FRR's real daemons: failures, restarts, and what stays."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from waiting import until

from trimtab.cli.fabric import failover_events
from trimtab.core import StorageError, TrimtabError
from trimtab.fabric import Timers
from trimtab.fabric.agent import (
    Agent,
    Reconciler,
    Sessions,
    agent_runs,
    ask_sessions,
    forget_agent,
    read_status,
)
from trimtab.fabric.failover.keeper import Failover
from trimtab.fabric.lab.lab import Lab
from trimtab.fabric.lab.layout import LabHost
from trimtab.store import open_store

TIMERS = Timers(interval=0.05, hold=0.5, settle=0.2)
OTHER = "10.255.0.2/32"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Two hosts and two switches; FRR everywhere."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to make network namespaces")
    if not Path("/usr/lib/frr/zebra").exists():
        pytest.skip("needs FRR: apt-get install frr")
    with Lab(hosts=2, timers=TIMERS) as made:
        made.wait_ready()
        yield made


@contextmanager
def at_work(
    host: LabHost,
    tell: Callable[[Failover], None] = lambda failover: None,
    reconcilers: Sequence[Reconciler] = (),
) -> Iterator[Agent]:
    """An agent for it, in a thread."""
    agent = Agent(host.host, host.daemons, host.namespace, reconcilers, tell)
    thread = threading.Thread(target=agent.run)
    thread.start()
    try:
        until(lambda: agent.at_work and agent_runs(host.host.name) and len(paths(host)) == 2)
        yield agent
    finally:
        agent.stop()
        thread.join()


def paths(host: LabHost) -> set[str]:
    """Devices to the other host, in the kernel."""
    words = ["ip", "-n", host.namespace, "route", "show", OTHER]
    words_of_route = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    return {word for before, word in pairwise(words_of_route) if before == "dev"}


def test_a_silent_failure_is_survived_written_down_and_over_in_the_end(lab: Lab) -> None:
    here, failovers = lab.hosts[0], list[Failover]()
    with at_work(here, failovers.append) as agent:
        until(lambda: all(each.echo for each in agent.status().uplinks))
        with lab.fault("blackhole", 0, "p1"):
            until(lambda: paths(here) == {"p2"})
            until(lambda: any(each.uplink == "p1" for each in failovers))
            states = {each.device: each.state for each in agent.status().uplinks}
            assert states["p1"] == "dead"
        until(lambda: paths(here) == {"p1", "p2"})
        failover = next(each for each in failovers if each.uplink == "p1")
        assert failover.peer == str(here.host.uplinks[0].peer)
        assert failover.cause in ("echo", "bfd", "flap")  # where others want the cores, BFD is not later
        until(lambda: failover in read_status(here.host.name).failovers)


def test_a_daemon_that_dies_is_started_again_and_sessions_come_back(lab: Lab) -> None:
    here = lab.hosts[0]
    with at_work(here):
        process = here.daemons.process("bfdd")
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        until(lambda: here.daemons.process("bfdd") not in (None, process))

        def well() -> bool:
            try:
                sessions = ask_sessions(here.daemons.vtysh)
            except TrimtabError:
                return False
            return (
                set(sessions.bfd.values()) == {"up"}
                and set(sessions.evpn.values()) == {"Established"}
                and sessions.tunnels == {100: ("10.255.0.2",)}
                and paths(here) == {"p1", "p2"}
            )

        until(well)


def test_a_death_is_noticed_between_two_looks(lab: Lab) -> None:
    here = lab.hosts[0]
    patient = replace(here.host, timers=replace(TIMERS, settle=600.0))
    with at_work(replace(here, host=patient)):
        process = here.daemons.process("bgpd")
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        until(lambda: here.daemons.process("bgpd") not in (None, process))


def test_each_failover_is_an_event_in_the_store_and_counted_in_the_status(lab: Lab) -> None:
    here = lab.hosts[0]
    name = here.host.name
    with open_store() as store, at_work(here, failover_events(store, name)) as agent:
        with lab.fault("carrier-loss", 0, "p2"):
            until(lambda: paths(here) == {"p1"})
            until(lambda: any(each.detail["uplink"] == "p2" for each in store.events.since(0)))
        events = store.events.since(0)
        assert {(event.kind, event.subject) for event in events} == {("failover", name)}
        status = agent.status()
        assert status.failover_count >= len(events)
        assert status.failover_seconds >= max(event.detail["seconds"] for event in events) > 0.0


class Broken:
    """A worker that ends at once."""

    problem = "it is broken"

    def run(self) -> None: ...
    def stop(self) -> None: ...


def test_a_reconciler_that_fails_is_said_and_ends_nothing_else(lab: Lab) -> None:
    here = lab.hosts[0]
    with at_work(here, reconcilers=[Broken()]) as agent:
        until(lambda: any("a reconciler has failed" in each for each in agent.status().problems))
        assert "it is broken" in agent.status().problems
        with lab.fault("carrier-loss", 0, "p2"):
            until(lambda: paths(here) == {"p1"})
        until(lambda: paths(here) == {"p1", "p2"})


def test_the_network_stays_when_the_agent_ends_and_the_next_one_takes_over(lab: Lab) -> None:
    here = lab.hosts[0]
    with at_work(here):
        with pytest.raises(StorageError, match="already runs"):
            Agent(here.host, here.daemons, here.namespace).run()
        with pytest.raises(TrimtabError, match="an agent runs"):
            forget_agent(here.host.name)
    assert paths(here) == {"p1", "p2"}
    assert here.daemons.missing() == ()
    before = read_status(here.host.name).failovers
    with at_work(here) as agent:
        assert agent.status().failovers[: len(before)] == before
    forget_agent(here.host.name)
    assert not agent_runs(here.host.name)


def test_sessions_are_asked_of_frr(lab: Lab) -> None:
    sessions = ask_sessions(lab.hosts[1].daemons.vtysh)
    assert set(sessions.bgp) == {"172.16.1.5", "172.16.2.5"}
    with pytest.raises(TrimtabError, match="cannot be read"):
        ask_sessions(lambda command: "{nonsense")
    assert ask_sessions(lambda command: "") == Sessions()
