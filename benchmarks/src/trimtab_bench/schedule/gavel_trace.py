"""Gavel's own trace of rigid jobs, on 12 accelerators of each of three kinds, in rounds of 360 s."""

from pathlib import Path

from trimtab.schedule import policy
from trimtab.schedule.simulation.replay import summary
from trimtab.schedule.simulation.scene import find_trace, scene_of
from trimtab.schedule.simulation.simulator import SimulationSettings, simulate

TRACE = "physical_cluster/max_min_fairness"
POLICIES = ("trimtab", "gavel", "maxmin", "gavel:objective=fifo", "fifo", "srtf", "las")
QUICK = ("trimtab", "gavel", "fifo")


def gavel_trace_figures(data: Path, name: str) -> dict[str, float]:
    """One policy on that trace."""
    trace, file = find_trace(data, TRACE)
    scene = scene_of(trace, file)
    settings = SimulationSettings(scene.round)
    return summary(simulate(scene.jobs, scene.cluster, scene.world(), policy(name), settings))
