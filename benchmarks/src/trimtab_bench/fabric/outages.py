"""How long is the network gone? Every fault against every variant, with probes every millisecond on 8 flows.

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
from trimtab.fabric.lab.faults import Fault
from trimtab_bench.fabric.variants import VARIANTS, Contestant, Precedence
from trimtab_bench.harness import Key, Part, Table

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


_CUT_OFF = 0.95  # of the time that a fault lasts: an outage as long as that was not over


def figures(found: Mapping[Key, Any]) -> dict[str, Any]:
    """`outage_ms[variant][fault]`; `silent_outage_ms` and `link_down_outage_ms` are ours over such faults."""
    ours = {fault: found["outages", "ours", fault]["repeats"] for fault in FAULTS}
    silent = [repeat["ms"] for fault in SILENT for repeat in ours[fault]]
    link_down = [repeat["ms"] for fault in LINK_DOWN for repeat in ours[fault]]
    return {
        "outage_ms": {
            variant: {fault: _of_fault(found["outages", variant, fault]) for fault in FAULTS}
            for variant in VARIANTS
        },
        "silent_outage_ms": _spread(silent),
        "link_down_outage_ms": _spread(link_down),
        "pauses_ms": max(
            repeat["pause_ms"]
            for key, told in found.items()
            if key[0] == "outages"
            for repeat in told["repeats"]
        ),
    }


def tables(found: Mapping[Key, Any]) -> list[Table]:
    """Everybody's medians and worst side by side; then ours by place."""
    told = figures(found)["outage_ms"]
    return [_compared(told), _by_place(told["ours"])]


def _of_fault(told: Mapping[str, Any]) -> dict[str, Any]:
    repeats: Sequence[Mapping[str, Any]] = told["repeats"]
    by_place = {
        place: median(repeat["ms"] for repeat in repeats if repeat["place"] == place)
        for place in sorted({repeat["place"] for repeat in repeats})
    }
    return {
        **_spread([repeat["ms"] for repeat in repeats]),
        **by_place,
        "cut_off": sum(repeat["ms"] >= _CUT_OFF * LASTING * 1e3 for repeat in repeats),
        "unharmed": sum(repeat["flows_hit"] == 0 for repeat in repeats),
        "missed": told["missed"],
        "labs": told["labs"],
        "pauses_ms": max(repeat["pause_ms"] for repeat in repeats),
    }


def _spread(milliseconds: Sequence[float]) -> dict[str, Any]:
    return {"p50": median(milliseconds), "max": max(milliseconds), "n": len(milliseconds)}


def _compared(told: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Table:
    rows = tuple((fault, *(_cell(told[variant][fault]) for variant in VARIANTS)) for fault in FAULTS)
    title = f"Outage in ms, median and worst; > where it was not over when the fault was, after {LASTING:g} s"
    return Table(title, ("fault", *VARIANTS), rows)


def _cell(each: Mapping[str, Any]) -> str:
    p50, worst = (f"{each[name]:.1f}" for name in ("p50", "max"))
    if each["cut_off"] * 2 > each["n"]:
        p50 = f">{p50}"
    return f"{p50}, {'>' if each['cut_off'] else ''}{worst}"


def _by_place(ours: Mapping[str, Mapping[str, Any]]) -> Table:
    rows = tuple(
        (
            fault,
            *(f"{each[place]:.1f}" if place in each else "" for place in ("sender", "receiver")),
            str(each["n"]),
            str(each["unharmed"]),
            str(each["missed"]),
            f"{each['pauses_ms']:.1f}",
        )
        for fault, each in ours.items()
    )
    columns = ("fault", "at the sender", "at the receiver", "n", "nothing lost", "missed", "longest pause")
    return Table("Ours by where the fault is: medians in ms", columns, rows)
