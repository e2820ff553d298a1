"""Traces on the accelerators they were made for, and results of Sia's and Gavel's own simulators on them.

Workloads of adaptive jobs on 64 accelerators, also as rigid as their users asked; Gavel's own trace of rigid
jobs on 12 accelerators of each of three kinds, in rounds of 360 s.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np

from trimtab.schedule import Trace, policy
from trimtab.schedule.simulation.replay import summary
from trimtab.schedule.simulation.scene import find_trace, scene_of
from trimtab.schedule.simulation.simulator import SimulationSettings, simulate


class Published(NamedTuple):
    """One run of another simulator, in hours."""

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
"""Seconds of Sia's own simulator for saturn-1, on two cores."""


LISTED = ("saturn-1", "saturn-2", "saturn-3", "philly-1", "philly-2", "newtrace-1", "newtrace-2")

PRICES = {"t4": 3.912 / 4, "rtx2080ti": 0.30, "a100": 32.77 / 8}
"""Dollars per accelerator and hour, assumed: list prices of whole machines on demand (EC2 g4dn.12xlarge and
p4d.24xlarge), and what marketplaces take for a consumer card, which clouds do not rent out."""

TENANTS = 4


@dataclass(frozen=True, slots=True)
class RivalPolicy:
    """A policy, and whether jobs keep the size they asked for."""

    policy: str
    rigid: bool = True


CONTESTANTS: Mapping[str, RivalPolicy] = {
    "trimtab": RivalPolicy("trimtab", rigid=False),
    "sia": RivalPolicy("sia", rigid=False),
    "trimtab-rigid": RivalPolicy("trimtab"),
    "gavel": RivalPolicy("gavel:objective=throughput,one_queue=true,renew_after=0,anew=false"),
    "fifo": RivalPolicy("fifo"),
    "srtf": RivalPolicy("srtf"),
    "las": RivalPolicy("las"),
    "maxmin": RivalPolicy("maxmin"),
}
QUICK = ("trimtab", "sia", "fifo")


def workload_figures(trace: Trace, path: Path, data: Path | None, rival: RivalPolicy) -> dict[str, float]:
    """One policy on one workload; `jain` is over four equal tenants, to whom jobs are dealt afterwards.

    The workloads have no tenants, and a policy that saw some would do something else than the peers did.
    """
    groups = tuple(replace(g, price=g.gpus * PRICES[g.accelerator] / 3600.0) for g in trace.groups)
    scene = scene_of(trace, path, groups, data, rival.rigid)
    start = perf_counter()
    replay = simulate(
        scene.jobs, scene.cluster, scene.world(), policy(rival.policy), SimulationSettings(scene.round)
    )
    seconds = perf_counter() - start
    names = tuple(f"t{number}" for number in range(TENANTS))
    dealt = replace(replay, tenants=names, tenant=np.arange(len(replay.jobs)) % TENANTS)
    return {**summary(dealt), "seconds": seconds}


GAVEL_TRACE_NAME = "physical_cluster/max_min_fairness"
GAVEL_TRACE_POLICIES = ("trimtab", "gavel", "maxmin", "gavel:objective=fifo", "fifo", "srtf", "las")
GAVEL_TRACE_QUICK = ("trimtab", "gavel", "fifo")


def gavel_trace_figures(data: Path, name: str) -> dict[str, float]:
    trace, file = find_trace(data, GAVEL_TRACE_NAME)
    scene = scene_of(trace, file)
    settings = SimulationSettings(scene.round)
    return summary(simulate(scene.jobs, scene.cluster, scene.world(), policy(name), settings))
