"""Outages in figures: medians and the worst of every variant and fault, and what they were measured with."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from trimtab_bench.fabric.outages import FAULTS, LASTING, LINK_DOWN, SILENT
from trimtab_bench.fabric.variants import VARIANTS
from trimtab_bench.kept import Key
from trimtab_bench.result import Table

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
