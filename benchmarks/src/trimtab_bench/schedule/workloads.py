"""Workloads on the 64 accelerators they were made for: adaptive jobs, and rigid ones as their users asked."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import numpy as np

from trimtab.schedule import Trace, policy
from trimtab.schedule.simulation.replay import Replay, summary
from trimtab.schedule.simulation.scene import scene_of
from trimtab.schedule.simulation.simulator import SimulationSettings, simulate

LISTED = ("saturn-1", "saturn-2", "saturn-3", "philly-1", "philly-2", "newtrace-1", "newtrace-2")

PRICES = {"t4": 3.912 / 4, "rtx2080ti": 0.30, "a100": 32.77 / 8}
"""Dollars per accelerator and hour, assumed: list prices of whole machines on demand (EC2 g4dn.12xlarge and
p4d.24xlarge), and what marketplaces take for a consumer card, which clouds do not rent out."""

TENANTS = 4


@dataclass(frozen=True, slots=True)
class Contestant:
    """A policy, and whether jobs keep the size they asked for."""

    policy: str
    rigid: bool = True


CONTESTANTS: Mapping[str, Contestant] = {
    "trimtab": Contestant("trimtab", rigid=False),
    "sia": Contestant("sia", rigid=False),
    "trimtab-rigid": Contestant("trimtab"),
    "gavel": Contestant("gavel:objective=throughput,one_queue=true,renew_after=0,anew=false"),
    "fifo": Contestant("fifo"),
    "srtf": Contestant("srtf"),
    "las": Contestant("las"),
    "maxmin": Contestant("maxmin"),
}
QUICK = ("trimtab", "sia", "fifo")


def workload_figures(trace: Trace, path: Path, data: Path | None, who: Contestant) -> dict[str, float]:
    """One policy on one workload; `jain` is over four equal tenants, to whom jobs are dealt afterwards.

    The workloads have no tenants, and a policy that saw some would do something else than the peers did.
    """
    groups = tuple(replace(g, price=g.gpus * PRICES[g.accelerator] / 3600.0) for g in trace.groups)
    scene = scene_of(trace, path, groups, data, who.rigid)
    begun = perf_counter()
    replay = simulate(
        scene.jobs, scene.cluster, scene.world(), policy(who.policy), SimulationSettings(scene.round)
    )
    seconds = perf_counter() - begun
    return {**summary(_dealt(replay)), "seconds": seconds}


def _dealt(replay: Replay) -> Replay:
    names = tuple(f"t{number}" for number in range(TENANTS))
    return replace(replay, tenants=names, tenant=np.arange(len(replay.jobs)) % TENANTS)
