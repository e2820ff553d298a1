"""False failovers: all cores are busy and there is no fault, so any failover is a mistake.

With agents, failovers of all hosts are counted; with FRR alone, BFD sessions of hosts and switches that go
down, each of which would have moved traffic.
"""

import json
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from trimtab.core import TrimtabError
from trimtab.fabric import Timers, read_status
from trimtab.fabric.lab.lab import Lab
from trimtab_bench.fabric.variants import VARIANTS, Precedence, busy_cores
from trimtab_bench.harness import BenchPart, Key, ResultTable

SECONDS = {"ours": 600.0, "frr": 120.0}
QUICK_SECONDS = {"ours": 30.0, "frr": 15.0}
_READY = 60.0  # s
_SETTLED = 2.0  # s for agents to be at work, before the load
_WRITTEN = 60.0  # s for agents to write their status, after it


def parts(quick: bool) -> list[BenchPart]:
    return [
        BenchPart(("false_failovers", variant), partial(count_false_failovers, variant, seconds))
        for variant, seconds in (QUICK_SECONDS if quick else SECONDS).items()
    ]


def count_false_failovers(variant: str, seconds: float) -> dict[str, Any]:
    """Failovers and BFD sessions that went down in so many seconds of load, and the longest pause."""
    agents = VARIANTS[variant].agents
    timers = Timers() if agents else VARIANTS[variant].timers
    with Precedence() as precedence, Lab(timers=timers) as lab:
        lab.wait_ready(_READY)
        if agents:
            lab.start_agents()
        time.sleep(_SETTLED)
        before = sessions_down_so_far(lab), failovers_so_far(lab) if agents else 0
        begin = time.monotonic()
        with busy_cores():
            time.sleep(seconds)
            end = time.monotonic()
        return {
            "seconds": seconds,
            "sessions_down": sessions_down_so_far(lab) - before[0],
            "failovers": failovers_so_far(lab) - before[1] if agents else None,
            "pause_ms": precedence.longest_pause(begin, end) * 1e3,
        }


def figures(results: Mapping[Key, Any]) -> dict[str, Any]:
    """`false_failovers` is of Trimtab; `false_failovers_10x3` of FRR alone, in fewer seconds."""
    own, frr = results["false_failovers", "ours"], results["false_failovers", "frr"]
    return {
        "false_failovers": own["failovers"],
        "false_failovers_10x3": frr["sessions_down"],
        "under_load": {"ours": own, "frr": frr},
    }


def tables(results: Mapping[Key, Any]) -> list[ResultTable]:
    rows = {variant: dict(results["false_failovers", variant]) for variant in SECONDS}
    for row in rows.values():
        row["failovers"] = "" if row["failovers"] is None else row["failovers"]
    columns = {
        "s of load": "{seconds:.0f}",
        "failovers": "{failovers}",
        "BFD sessions down": "{sessions_down}",
        "longest pause, ms": "{pause_ms:.1f}",
    }
    return [ResultTable.of("All cores busy, no fault", "variant", rows, columns)]


def failovers_so_far(lab: Lab) -> int:
    """Failovers of all agents so far, from statuses that they write after this call."""
    now = time.time()
    give_up = now + _WRITTEN
    while any(read_status(host.host.name).time < now for host in lab.hosts):
        if time.time() > give_up:
            raise TrimtabError(f"an agent has not written its status for {_WRITTEN:g} s")
        time.sleep(0.1)
    return sum(read_status(host.host.name).failover_count for host in lab.hosts)


def sessions_down_so_far(lab: Lab) -> int:
    """Number of times that BFD sessions of hosts and switches have gone down so far."""
    daemons_of_all = [*(host.daemons for host in lab.hosts), *(switch.daemons for switch in lab.switches)]
    counters = [json.loads(daemons.vtysh("show bfd peers counters json")) for daemons in daemons_of_all]
    return sum(int(peer["session-down"]) for peers in counters for peer in peers)
