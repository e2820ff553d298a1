"""How long one step takes on a CPU, per virtual core.

Five constants from 25 models on two cores of a server CPU (`trimtab bench gpu-steps` scores them); the local
run then corrects them for the model at hand, which matters more than the constants do.
"""

from dataclasses import dataclass

import numpy as np

from trimtab.predict.demand import Demand, Quantity
from trimtab.predict.step_time import StepTime


@dataclass(frozen=True, slots=True)
class CpuConstants:
    """Rates of one virtual core of a current server: FLOP/s, bytes/s, seconds."""

    conv_rate: float = 101e9
    matmul_rate: float = 133e9
    bandwidth: float = 3.85e9
    """Unfused fp32 traffic of all operators."""
    update_bandwidth: float = 1.6e9
    dispatch: float = 15e-6
    """Of one operator call; not shared by the cores."""
    scaling: float = 0.88
    """n cores do the work of n to the power of this: memory channels and barriers are shared."""


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
