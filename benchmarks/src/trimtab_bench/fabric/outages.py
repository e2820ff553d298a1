"""Outages: every fault against every variant, with probes every millisecond on 8 flows.

A fault is at the sender's uplink and at the receiver's in turn, because each is noticed by another side; one
that stops packets of one direction only is where it stops probes. It breaks the uplink that carries most of
them.
"""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

from trimtab.core import TrimtabError
from trimtab_bench.fabric.variants import VARIANTS, Contestant, Precedence
from trimtab_bench.harness import BenchPart, Key, ResultTable

SILENT = ("blackhole", "blackhole-in", "blackhole-out", "switch-blackhole")
LINK_DOWN = ("link-down", "carrier-loss")
FAULTS = (*LINK_DOWN, *SILENT, "switch-crash")
LASTING = 0.6
"""Seconds that a fault lasts; an outage that outlasts it is cut off there."""
REPEATS, QUICK_REPEATS = 20, 3
_PLACES = {"sender": 0, "receiver": 1}
_ONE_WAY = {"blackhole-in": ("receiver",), "blackhole-out": ("sender",)}
_MOST_MISSES = 3  # per repeat, of faults where no probes were


def parts(quick: bool) -> list[BenchPart]:
    repeats = QUICK_REPEATS if quick else REPEATS
    return [
        BenchPart(("outages", variant, fault), partial(measure_outages, variant, fault, repeats))
        for variant in VARIANTS
        for fault in FAULTS
    ]


def measure_outages(variant: str, fault: str, repeats: int) -> dict[str, Any]:
    """Each repeat: its place, ms of the worst flow, flows hit, packets lost, ms the machine paused.

    `missed` faults were where no probes were, and were tried again: a silent one without a
    loss hit nothing. `labs` is the number of labs that were built.
    """
    done, missed = list[dict[str, Any]](), 0
    places = _ONE_WAY.get(fault, tuple(_PLACES))
    with Precedence() as precedence, Contestant(VARIANTS[variant], precedence) as contestant:
        while len(done) < repeats:
            if done or missed:
                contestant.restore()
            place = places[len(done) % len(places)]
            broken = contestant.fault(fault, _PLACES[place])
            hit = False
            if broken is not None:
                begin = time.monotonic()
                outage = contestant.measure(broken, LASTING)
                pause = precedence.longest_pause(begin, time.monotonic())
                hit = outage.flows_hit > 0 or fault not in SILENT
            if hit:
                numbers = {"ms": outage.worst * 1e3, "flows_hit": outage.flows_hit, "lost": outage.lost}
                done.append(numbers | {"pause_ms": pause * 1e3, "place": place})
            else:
                missed += 1
            if missed > _MOST_MISSES * repeats:
                raise TrimtabError(f"no uplink carries the probes of {variant} before a {fault}")
        return {"repeats": done, "missed": missed, "labs": contestant.labs}


_CUT_OFF = 0.95  # of the time that a fault lasts: an outage as long as that was not over


def figures(results: Mapping[Key, Any]) -> dict[str, Any]:
    """`outage_ms[variant][fault]`; `silent_outage_ms` and `link_down_outage_ms` are ours over such faults."""
    own = {fault: results["outages", "ours", fault]["repeats"] for fault in FAULTS}
    by_variant = {
        variant: {fault: _of_fault(results["outages", variant, fault]) for fault in FAULTS}
        for variant in VARIANTS
    }
    return {
        "outage_ms": by_variant,
        "silent_outage_ms": _spread([repeat["ms"] for fault in SILENT for repeat in own[fault]]),
        "link_down_outage_ms": _spread([repeat["ms"] for fault in LINK_DOWN for repeat in own[fault]]),
        "pauses_ms": max(outage["pauses_ms"] for faults in by_variant.values() for outage in faults.values()),
    }


def _of_fault(result: Mapping[str, Any]) -> dict[str, Any]:
    repeats: Sequence[Mapping[str, Any]] = result["repeats"]
    by_place = {
        place: median(repeat["ms"] for repeat in repeats if repeat["place"] == place)
        for place in sorted({repeat["place"] for repeat in repeats})
    }
    return {
        **_spread([repeat["ms"] for repeat in repeats]),
        **by_place,
        "cut_off": sum(repeat["ms"] >= _CUT_OFF * LASTING * 1e3 for repeat in repeats),
        "unharmed": sum(repeat["flows_hit"] == 0 for repeat in repeats),
        "missed": result["missed"],
        "labs": result["labs"],
        "pauses_ms": max(repeat["pause_ms"] for repeat in repeats),
    }


def _spread(milliseconds: Sequence[float]) -> dict[str, Any]:
    return {"p50": median(milliseconds), "max": max(milliseconds), "n": len(milliseconds)}


def tables(results: Mapping[Key, Any]) -> list[ResultTable]:
    """Medians and worst of all variants; then ours by place."""
    outages = figures(results)["outage_ms"]
    rows = [(fault, *(_cell(outages[variant][fault]) for variant in VARIANTS)) for fault in FAULTS]
    title = f"Outage in ms, median and worst; > where it was not over when the fault was, after {LASTING:g} s"
    by_place = {
        fault: outage | {place: f"{outage[place]:.1f}" if place in outage else "" for place in _PLACES}
        for fault, outage in outages["ours"].items()
    }
    columns = {
        "at the sender": "{sender}",
        "at the receiver": "{receiver}",
        "n": "{n}",
        "nothing lost": "{unharmed}",
        "missed": "{missed}",
        "longest pause": "{pauses_ms:.1f}",
    }
    return [
        ResultTable(title, ("fault", *VARIANTS), rows),
        ResultTable.of("Ours by where the fault is: medians in ms", "fault", by_place, columns),
    ]


def _cell(outage: Mapping[str, Any]) -> str:
    cut_off = ">" if outage["cut_off"] * 2 > outage["n"] else ""
    return f"{cut_off}{outage['p50']:.1f}, {'>' if outage['cut_off'] else ''}{outage['max']:.1f}"
