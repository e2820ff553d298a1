"""What was aimed at, beside what was reached."""

from collections.abc import Iterator, Mapping
from operator import ge, le
from typing import Any

from trimtab_bench.goals import Goal, judged


def goals(figures: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Every goal: its value, what is wanted, and whether that was reached."""
    return judged(_goals(figures))


def _goals(figures: Mapping[str, Any]) -> Iterator[Goal]:
    small, checks = figures["small"], figures["checks"]
    yield Goal("small graphs within 1 % of the optimum", small["within_1pct"], ge, 0.95)
    yield Goal("small graphs, times as fast as the MILP", small["speedup_over_milp"], ge, 10.0)
    yield Goal("rivals with a higher throughput", float(len(checks["beaten_by"])), le, 0.0)
    yield Goal("rivals as fast with less idle memory", float(len(checks["idler_than"])), le, 0.0)
    yield Goal("times Accelerate's on unequal devices", figures["geomean_over_accelerate"], ge, 1.3)
    yield Goal("seconds for 10,000 nodes", figures["seconds_10k_nodes"], le, 10.0)
    yield Goal("seconds for GPT-3 from code to plan", figures["gpt3"]["seconds"], le, 60.0)
    yield Goal("GiB for GPT-3 from code to plan", figures["gpt3"]["peak_gib"], le, 4.0)
    if figures["prediction_error"] is not None:
        yield Goal("median error of predicted step times", figures["prediction_error"], le, 0.25)
