"""Made-up results of the parts of the fabric bench."""

from typing import Any

from trimtab_bench.fabric.outages import FAULTS, VARIANTS
from trimtab_bench.harness import Key


def repeat(ms: float, place: str = "sender", pause_ms: float = 1.0) -> dict[str, Any]:
    return {"ms": ms, "place": place, "flows_hit": 4 if ms else 0, "lost": round(ms), "pause_ms": pause_ms}


def outages(ms: float = 20.0) -> dict[Key, Any]:
    """Equal outages of all variants and faults: at the sender, and a little longer at the receiver."""
    result = {"repeats": [repeat(ms), repeat(ms + 2.0, "receiver")], "missed": 1, "labs": 2}
    return {("outages", variant, fault): result for variant in VARIANTS for fault in FAULTS}


def rest() -> dict[Key, Any]:
    """Results of all other sections but training."""
    under_load = {"seconds": 600.0, "sessions_down": 3, "pause_ms": 5.0}
    return {
        ("throughput", "1"): {"underlay": [1e9, 1e9, 2e9], "virtual": [0.8e9, 0.9e9, 1.4e9]},
        ("throughput", "4"): {"underlay": [2e9], "virtual": [1e9]},
        ("reconcile",): {
            "changes": [0.004, 0.006, 0.05],
            "without_messages": [0.4, 1.02],
            "full_sync": 0.3,
            "compared_again": 0.1,
        },
        ("false_failovers", "ours"): under_load | {"failovers": 0},
        ("false_failovers", "frr"): under_load | {"failovers": None},
    }
