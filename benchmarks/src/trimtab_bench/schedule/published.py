"""What Sia's and Gavel's own simulators reach on the same workloads: facts to stand beside ours.

Hours; average and 99th percentile of the time to completion, and makespan.
"""

from typing import NamedTuple


class Published(NamedTuple):
    """One run of somebody else's simulator, in hours."""

    average: float
    p99: float
    makespan: float


SIA = {
    "saturn-1": Published(0.581, 7.82, 12.65),
    "saturn-2": Published(0.701, 8.54, 12.42),
    "saturn-3": Published(0.731, 10.63, 16.42),
    "philly-1": Published(0.538, 8.51, 15.92),
    "philly-2": Published(0.754, 10.76, 13.56),
    "newtrace-1": Published(0.812, 5.58, 51.30),
    "newtrace-2": Published(1.102, 14.17, 52.79),
}
"""Adaptive jobs, rounds of 60 s, 64 accelerators of three kinds."""

GAVEL = {
    "saturn-1": Published(1.798, 21.8, 27.27),
    "saturn-2": Published(1.717, 30.1, 34.05),
    "saturn-3": Published(2.596, 44.8, 48.57),
    "philly-1": Published(1.671, 28.2, 35.63),
    "philly-2": Published(2.103, 32.0, 36.74),
    "newtrace-1": Published(8.562, 75.9, 95.8),
    "newtrace-2": Published(15.92, 144.7, 153.2),
}
"""Rigid jobs as users asked, rounds of 360 s, the most throughput together."""

GAVEL_TRACE = {"gavel:objective=fifo": (7.56, 42.0), "maxmin": (5.32, 20.5), "gavel": (4.16, 17.6)}
"""Average and makespan on its own trace, with 12 accelerators of each of three kinds."""

SIA_SECONDS = 42.0
"""How long Sia's own simulator takes for saturn-1, on two cores."""
