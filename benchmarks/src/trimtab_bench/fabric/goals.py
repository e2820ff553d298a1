"""What was aimed at, beside what was reached."""

from collections.abc import Iterator, Mapping
from operator import ge, le
from typing import Any

from trimtab_bench.fabric.reconcile import PERIOD
from trimtab_bench.goals import Goal, judged

_LATE = 0.1  # s that a change may take once it is seen


def goals(figures: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Every goal: its value, what is wanted, and whether that was reached."""
    return judged(_goals(figures))


def _goals(figures: Mapping[str, Any]) -> Iterator[Goal]:
    silent, link_down = figures["silent_outage_ms"], figures["link_down_outage_ms"]
    yield Goal("outage of a silent fault, median ms", silent["p50"], le, 40.0)
    yield Goal("outage of a silent fault, worst ms", silent["max"], le, 60.0)
    yield Goal("outage of a link down, worst ms", link_down["max"], le, 10.0)
    yield Goal("failovers without a fault", float(figures["false_failovers"]), le, 0.0)
    yield Goal("training under faults, times without", figures["training_slowdown"], le, 1.02)
    yield Goal("training jobs that crashed under faults", float(figures["training_crashes"]), le, 0.0)
    yield Goal("final loss of training differs by", figures["training_loss_difference"], le, 0.0)
    yield Goal("throughput of the virtual device to the underlay's", figures["throughput_ratio"], ge, 0.75)
    yield Goal("a change is in the data plane, worst ms", figures["reconcile_ms"]["max"], le, 100.0)
    yield Goal("after losing every event, s", figures["after_losing_all_s"], le, PERIOD + _LATE)
    yield Goal("10,000 MACs at once, s", figures["full_sync_s_10k"], le, 2.0)
