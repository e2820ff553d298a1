"""How long one step takes on a CPU, per virtual core.

Five constants fitted to 25 models on two cores of a server CPU (a test refits them, `trimtab bench gpu-steps`
scores them). The local run then corrects them for the model at hand, which matters more than they do.
"""

from dataclasses import dataclass

import numpy as np

from trimtab.predict.cost.constants import fitted
from trimtab.predict.cost.demand import Demand, Quantity
from trimtab.predict.cost.step_time import StepTime


@dataclass(frozen=True, slots=True)
class CpuConstants:
    """Rates of one virtual core of a current server: FLOP/s, bytes/s, seconds."""

    conv_rate: float = fitted(100e9, 10e9, 1e12, value=114e9)
    matmul_rate: float = fitted(100e9, 10e9, 1e12, value=154e9)
    bandwidth: float = fitted(5e9, 0.5e9, 50e9, value=3.76e9)
    """Unfused fp32 traffic of all operators."""
    update_bandwidth: float = fitted(2e9, 0.2e9, 20e9, value=1.72e9)
    dispatch: float = fitted(10e-6, 1e-6, 100e-6, value=25.8e-6)
    """Of one operator call; not shared by the cores."""
    scaling: float = 0.88
    """n cores do the work of n to the power of this: memory channels and barriers are shared. Not fitted."""


def cpu_step_time(ask: Demand, cores: Quantity, constants: CpuConstants | None = None) -> StepTime:
    """Seconds of one step on `cores` virtual cores; dispatch and work take turns, so the parts add up."""
    c = constants or CpuConstants()
    workers = np.asarray(cores, dtype=float) ** c.scaling
    calls = (
        ask.conv_calls
        + ask.matmul_calls
        + ask.attention_calls
        + ask.recurrent_calls
        + ask.other_calls
        + ask.small_calls
    )
    traffic = (
        ask.forward_conv_bytes
        + ask.backward_conv_bytes
        + ask.forward_matmul_bytes
        + ask.backward_matmul_bytes
        + ask.forward_light_bytes
        + ask.backward_light_bytes
        + ask.copied_bytes
        + ask.recurrent_bytes
    )
    launch = calls * c.dispatch + 0.0 * workers
    compute = (ask.conv_flop / c.conv_rate + ask.matmul_flop / c.matmul_rate) / workers
    moved = traffic / c.bandwidth / workers
    update = ask.updated_bytes / c.update_bandwidth / workers
    return StepTime(launch + compute + moved + update, launch, compute, moved, update)
