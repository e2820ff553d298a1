"""How long is the network gone? Every fault against every variant, with probes every millisecond on 8 flows.

A fault is at the sender's uplink and at the receiver's in turn, because each is noticed by another side; one
that stops packets of one direction only is where it stops probes. It breaks the uplink that carries most of
them.
"""

import time
from functools import partial
from typing import Any

from trimtab.core import TrimtabError
from trimtab.fabric.lab.faults import Fault
from trimtab_bench.fabric.precedence import Precedence
from trimtab_bench.fabric.variants import VARIANTS, Contestant
from trimtab_bench.kept import Part

SILENT = ("blackhole", "blackhole-in", "blackhole-out", "switch-blackhole")
LINK_DOWN = ("link-down", "carrier-loss")
FAULTS = (*LINK_DOWN, *SILENT, "switch-crash")
LASTING = 0.6
"""Seconds that a fault lasts; an outage that outlasts it is cut off there."""
REPEATS, QUICK_REPEATS = 20, 3
_PLACES = {"sender": 0, "receiver": 1}
_ONE_WAY = {"blackhole-in": ("receiver",), "blackhole-out": ("sender",)}
_MOST_MISSES = 3  # per repeat, of faults where no probes were


def parts(quick: bool) -> list[Part]:
    """One for each variant and fault."""
    repeats = QUICK_REPEATS if quick else REPEATS
    return [
        Part(("outages", variant, fault), partial(measure_outages, variant, fault, repeats))
        for variant in VARIANTS
        for fault in FAULTS
    ]


def measure_outages(variant: str, fault: str, repeats: int) -> dict[str, Any]:
    """Each repeat: where it was, ms of the worst flow, flows hit, packets lost, ms the machine paused.

    `missed` faults were where no probes were, and were tried again: nobody foresees a silent one, so without
    a loss it hit nothing. `labs` were built for all of it.
    """
    found, missed = list[dict[str, Any]](), 0
    places = _ONE_WAY.get(fault, tuple(_PLACES))
    with Precedence() as precedence, Contestant(VARIANTS[variant], precedence) as contestant:
        while len(found) < repeats:
            if found or missed:
                contestant.restore()
            place = places[len(found) % len(places)]
            broken = contestant.fault(fault, _PLACES[place])
            told = _repeat(contestant, broken, precedence) if broken is not None else None
            if told is not None and (told["flows_hit"] or fault not in SILENT):
                found.append(told | {"place": place})
            else:
                missed += 1
            if missed > _MOST_MISSES * repeats:
                raise TrimtabError(f"no uplink carries the probes of {variant} before a {fault}")
        return {"repeats": found, "missed": missed, "labs": contestant.labs}


def _repeat(contestant: Contestant, broken: Fault, precedence: Precedence) -> dict[str, Any]:
    begin = time.monotonic()
    outage = contestant.measure(broken, LASTING)
    return {
        "ms": outage.worst * 1e3,
        "flows_hit": outage.flows_hit,
        "lost": outage.lost,
        "pause_ms": precedence.longest_pause(begin, time.monotonic()) * 1e3,
    }
