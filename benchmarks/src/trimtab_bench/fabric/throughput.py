"""What does the virtual device cost? TCP through it, and over one uplink without it, in turn.

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
from trimtab_bench.harness import Key, Part, Table

FLOWS = (1, 4)
ROUNDS, QUICK_ROUNDS = 20, 3
_SECONDS = 1.0
_PORT = 7100
_READY, _PATIENCE = 60.0, 60.0  # s


def parts(quick: bool) -> list[Part]:
    """One for each number of flows."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    return [Part(("throughput", str(flows)), partial(measure_throughput, flows, rounds)) for flows in FLOWS]


def measure_throughput(flows: int, rounds: int) -> dict[str, list[float]]:
    """Bytes per second in each round, after one that is not counted."""
    with Precedence() as precedence, Lab() as lab:
        lab.wait_ready(_READY)
        lab.start_agents()
        bind_to_one_port(lab)
        ways = {"underlay": single_port_addresses(lab), "virtual": _worker_addresses(lab)}
        found: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(rounds + 1):
            for way in sorted(ways, reverse=number % 2 == 1):
                found[way].append(_stream(lab, precedence, ways[way], flows))
    return {way: speeds[1:] for way, speeds in found.items()}


def figures(found: Mapping[Key, Any]) -> dict[str, Any]:
    """`throughput_ratio` is of one flow: the median of each round's."""
    by_flows = {flows: _ratios(found["throughput", str(flows)]) for flows in FLOWS}
    told = {
        str(flows): {
            "ratio": median(ratios),
            "least": min(ratios),
            "most": max(ratios),
            **{
                f"{way}_gbit_s": median(speeds) * 8e-9
                for way, speeds in found["throughput", str(flows)].items()
            },
        }
        for flows, ratios in by_flows.items()
    }
    return {"throughput_ratio": told[str(FLOWS[0])]["ratio"], "throughput": told}


def tables(found: Mapping[Key, Any]) -> list[Table]:
    """By number of flows."""
    rows = [
        (
            flows,
            f"{each['underlay_gbit_s']:.2f}",
            f"{each['virtual_gbit_s']:.2f}",
            f"{each['ratio']:.2f}",
            f"{each['least']:.2f} to {each['most']:.2f}",
        )
        for flows, each in figures(found)["throughput"].items()
    ]
    columns = ("flows", "underlay, Gbit/s", "virtual device, Gbit/s", "ratio", "of single rounds")
    return [Table("TCP through the virtual device", columns, tuple(rows))]


def _ratios(speeds: Mapping[str, list[float]]) -> list[float]:
    return [ours / bare for ours, bare in zip(speeds["virtual"], speeds["underlay"], strict=True)]


def _stream(lab: Lab, precedence: Precedence, ends: tuple[str, str], flows: int) -> float:
    """Bytes per second that arrive."""
    source, target = ends
    with contextlib.ExitStack() as stack:

        def start(host: int, *words: str) -> "subprocess.Popen[str]":
            command = [sys.executable, "-I", stream_process.__file__, *words]
            made = lab.run(host, command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            stack.enter_context(made)
            stack.callback(made.kill)
            precedence.give(made.pid)
            return made

        receiver = start(1, "receive", target, str(_PORT), str(flows))
        if receiver.stdout is None or not receiver.stdout.readline():
            raise TrimtabError(f"no streams can be received at {target}")
        start(0, "send", source, target, str(_PORT), str(flows), str(_SECONDS))
        try:
            count, seconds = receiver.communicate(timeout=_PATIENCE)[0].split()
        except (subprocess.TimeoutExpired, ValueError):
            raise TrimtabError(f"no streams from {source} to {target} go through") from None
    return int(count) / float(seconds)


def _worker_addresses(lab: Lab) -> tuple[str, str]:
    one, other = (str(host.host.tenants[0].devices[0].address.ip) for host in lab.hosts[:2])
    return one, other
