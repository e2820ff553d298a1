"""Electric power of a step, in watts, from the power of its parts and how much of the step each is busy.

    device = idle + (board power - idle) × Σ over parts of the step (share of the time × load of the part)
    host   = vCPUs × (idle + (busy - idle) × busy share) + memory × watts per byte

Loads say how far a part of a step drives a device: arithmetic nearly to the board's power, memory traffic
less, launches, network and waiting for data hardly. Power for cooling and conversion is not included.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from trimtab.catalog import find_accelerator, measured_constants
from trimtab.predict.cost.estimator import Placements, StepEstimates
from trimtab.predict.tables import Array


@dataclass(frozen=True, slots=True)
class EnergyConstants:
    """The calibration's entry `energy`: published figures of data centres and boards, none measured here."""

    idle_share: float  # of a board's power that it takes when idle
    compute_load: float
    traffic_load: float
    waiting_load: float
    vcpu_idle: float  # watts
    vcpu_busy: float
    memory: float  # watts per byte
    error: float  # factor each way that holds the power in nine cases of ten


@cache
def energy_constants() -> EnergyConstants:
    return EnergyConstants(**measured_constants("energy"))


@dataclass(frozen=True, slots=True)
class Power:
    """Watts of all nodes of each placement, while it runs and while it starts; NaN where unpublished."""

    running: Array
    starting: Array


def power(where: Placements, step: StepEstimates, host_load: float) -> Power:
    """Power of every placement; `host_load` are busy virtual cores per accelerator on its host."""
    c = energy_constants()
    board = _board_watts(where.devices)[where.device]
    share = {
        name: getattr(step, name) / np.maximum(step.total, 1e-300)
        for name in ("compute", "traffic", "update", "launch", "network", "input")
    }
    load = (
        c.compute_load * share["compute"]
        + c.traffic_load * (share["traffic"] + share["update"])
        + c.waiting_load * (share["launch"] + share["network"] + share["input"])
    )
    on_cpu = where.device < 0
    accelerators = np.where(on_cpu, 0.0, where.per_node)
    idle = np.where(on_cpu, 0.0, c.idle_share * board)
    devices = accelerators * (idle + np.where(on_cpu, 0.0, board - idle) * load)
    busy_cores = np.where(on_cpu, where.cores, np.minimum(where.cores, host_load * where.per_node))
    host_idle = where.cores * c.vcpu_idle + where.memory * c.memory
    host = host_idle + busy_cores * (c.vcpu_busy - c.vcpu_idle)
    return Power(where.nodes * (devices + host), where.nodes * (accelerators * idle + host_idle))


def _board_watts(devices: Sequence[str]) -> Array:
    """Power of each device, and zero for the CPU, which is the last."""
    facts = [find_accelerator(name) for name in devices]
    return np.array([*(a.power if a and a.power else np.nan for a in facts), 0.0])
