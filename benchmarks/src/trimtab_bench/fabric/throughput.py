"""Cost of the virtual device: TCP through it, and over one uplink without it, in turn.

Rounds are short and alternate, so that what else the machine does is the same for both.
"""

import contextlib
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from statistics import median
from typing import Any

from trimtab.core import TrimtabError
from trimtab.fabric.lab.lab import Lab
from trimtab_bench.fabric import stream_process
from trimtab_bench.fabric.variants import Precedence, bind_to_one_port, single_port_addresses
from trimtab_bench.harness import BenchPart, Key, ResultTable

FLOWS = (1, 4)
ROUNDS, QUICK_ROUNDS = 20, 3
_SECONDS = 1.0
_PORT = 7100
_READY, _PATIENCE = 60.0, 60.0  # s


def parts(quick: bool) -> list[BenchPart]:
    rounds = QUICK_ROUNDS if quick else ROUNDS
    return [
        BenchPart(("throughput", str(flows)), partial(measure_throughput, flows, rounds)) for flows in FLOWS
    ]


def measure_throughput(flows: int, rounds: int) -> dict[str, list[float]]:
    """Bytes per second in each round, after one that is not counted."""
    with Precedence() as precedence, Lab() as lab:
        lab.wait_ready(_READY)
        lab.start_agents()
        bind_to_one_port(lab)
        one, other = (str(host.host.tenants[0].devices[0].address.ip) for host in lab.hosts[:2])
        ways = {"underlay": single_port_addresses(lab), "virtual": (one, other)}
        rates: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(rounds + 1):
            for way in sorted(ways, reverse=number % 2 == 1):
                rates[way].append(_stream(lab, precedence, ways[way], flows))
    return {way: speeds[1:] for way, speeds in rates.items()}


def figures(results: Mapping[Key, Any]) -> dict[str, Any]:
    """`throughput_ratio` is of one flow: the median of each round's."""
    by_flows = {}
    for flows in map(str, FLOWS):
        rates = results["throughput", flows]
        ratios = [virtual / bare for virtual, bare in zip(rates["virtual"], rates["underlay"], strict=True)]
        by_flows[flows] = {
            "ratio": median(ratios),
            "least": min(ratios),
            "most": max(ratios),
            **{f"{way}_gbit_s": median(speeds) * 8e-9 for way, speeds in rates.items()},
        }
    return {"throughput_ratio": by_flows[str(FLOWS[0])]["ratio"], "throughput": by_flows}


def tables(results: Mapping[Key, Any]) -> list[ResultTable]:
    columns = {
        "underlay, Gbit/s": "{underlay_gbit_s:.2f}",
        "virtual device, Gbit/s": "{virtual_gbit_s:.2f}",
        "ratio": "{ratio:.2f}",
        "of single rounds": "{least:.2f} to {most:.2f}",
    }
    rows = figures(results)["throughput"]
    return [ResultTable.of("TCP through the virtual device", "flows", rows, columns)]


def _stream(lab: Lab, precedence: Precedence, ends: tuple[str, str], flows: int) -> float:
    """Bytes per second that arrive."""
    source, target = ends
    with contextlib.ExitStack() as stack:

        def start(host: int, *words: str) -> "subprocess.Popen[str]":
            command = [sys.executable, "-I", stream_process.__file__, *words]
            child = lab.run(host, command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            stack.enter_context(child)
            stack.callback(child.kill)
            precedence.give(child.pid)
            return child

        receiver = start(1, "receive", target, str(_PORT), str(flows))
        if receiver.stdout is None or not receiver.stdout.readline():
            raise TrimtabError(f"no streams can be received at {target}")
        start(0, "send", source, target, str(_PORT), str(flows), str(_SECONDS))
        try:
            count, seconds = receiver.communicate(timeout=_PATIENCE)[0].split()
        except (subprocess.TimeoutExpired, ValueError):
            raise TrimtabError(f"no streams from {source} to {target} go through") from None
    return int(count) / float(seconds)
