"""Is a path given up that works? All cores kept busy by others and no fault: whatever moves is mistaken.

Ours is counted by failovers of all hosts' agents; FRR alone by BFD sessions that go down, of hosts and
switches, each of which would have moved traffic.
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
from trimtab_bench.harness import Key, Part, Table

SECONDS = {"ours": 600.0, "frr": 120.0}
QUICK_SECONDS = {"ours": 30.0, "frr": 15.0}
_READY = 60.0  # s
_SETTLED = 2.0  # s for agents to be at work, before the load
_WRITTEN = 60.0  # s for agents to write down what they did, after it


def parts(quick: bool) -> list[Part]:
    """One for each variant."""
    return [
        Part(("false_failovers", variant), partial(count_false_failovers, variant, seconds))
        for variant, seconds in (QUICK_SECONDS if quick else SECONDS).items()
    ]


def count_false_failovers(variant: str, seconds: float) -> dict[str, Any]:
    """Failovers and BFD sessions that went down in so many seconds of load; how long the machine paused."""
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


def figures(found: Mapping[Key, Any]) -> dict[str, Any]:
    """`false_failovers` is ours; `false_failovers_10x3` is of FRR alone, in fewer seconds."""
    ours, frr = found["false_failovers", "ours"], found["false_failovers", "frr"]
    return {
        "false_failovers": ours["failovers"],
        "false_failovers_10x3": frr["sessions_down"],
        "under_load": {"ours": ours, "frr": frr},
    }


def tables(found: Mapping[Key, Any]) -> list[Table]:
    """Both variants."""
    rows = [
        (
            variant,
            f"{each['seconds']:.0f}",
            "" if each["failovers"] is None else str(each["failovers"]),
            str(each["sessions_down"]),
            f"{each['pause_ms']:.1f}",
        )
        for variant, each in ((v, found["false_failovers", v]) for v in SECONDS)
    ]
    columns = ("variant", "s of load", "failovers", "BFD sessions down", "longest pause, ms")
    return [Table("All cores busy, no fault", columns, tuple(rows))]


def failovers_so_far(lab: Lab) -> int:
    """How many all agents have made by now, however many of them are still on file.

    What they wrote earlier is not looked at.
    """
    now = time.time()
    give_up = now + _WRITTEN
    while any(read_status(host.host.name).time < now for host in lab.hosts):
        if time.time() > give_up:
            raise TrimtabError(f"an agent has not said for {_WRITTEN:g} s what it does")
        time.sleep(0.1)
    return sum(read_status(host.host.name).failover_count for host in lab.hosts)


def sessions_down_so_far(lab: Lab) -> int:
    """How often BFD sessions of hosts and switches have gone down so far."""
    everyone = [*(host.daemons for host in lab.hosts), *(switch.daemons for switch in lab.switches)]
    counters = [json.loads(daemons.vtysh("show bfd peers counters json")) for daemons in everyone]
    return sum(int(peer["session-down"]) for peers in counters for peer in peers)
