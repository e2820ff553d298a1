"""What would a policy do with this trace? A deterministic cluster to try it in."""

from trimtab.schedule.simulate.faults import FaultRates, RandomFaults
from trimtab.schedule.simulate.replay import Replay, Segment
from trimtab.schedule.simulate.simulator import SimulationSettings, simulate
from trimtab.schedule.simulate.world import Look, World

__all__ = [
    "FaultRates",
    "Look",
    "RandomFaults",
    "Replay",
    "Segment",
    "SimulationSettings",
    "World",
    "simulate",
]
