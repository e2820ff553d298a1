"""What the local run says about the estimates: the ratio of its measured to its estimated step.

It corrects estimates for the same kind of device. A CPU run does not correct GPU estimates: over 25 models
the error on a CPU says nothing about the error on an H200 (`cpu_gpu_error_correlation` of
`trimtab bench gpu-steps`), so there only the run's facts are used.
"""

from dataclasses import dataclass
from statistics import median

from trimtab.catalog import Accelerator, find_accelerator
from trimtab.core import Model, Profile
from trimtab.predict.cost.calibrated import calibration
from trimtab.predict.cost.constants import device
from trimtab.predict.cost.cpu import cpu_step_time
from trimtab.predict.cost.demand import demand_of
from trimtab.predict.cost.step_time import step_time

# How much of a GPU's correction, as an exponent, is taken over to another GPU.
_ELSEWHERE = 0.5
# A profile that says only how long steps waited on average may say more than its median step took.
_LEAST_BUSY = 0.05


@dataclass(frozen=True, slots=True)
class Correction:
    """`factor` on estimated times; `exact` where it was measured on the very device it is applied to."""

    factor: float = 1.0
    exact: bool = False


def correction_on_cpu(profile: Profile, model: Model) -> Correction:
    """How a CPU estimate is corrected: fully, if the run was on a CPU."""
    seconds = _measured_seconds(profile, "cpu")
    if seconds is None or profile.steps is None:
        return Correction()
    ask = demand_of(model, float(profile.steps.batch_size), True, "fp32")
    cores = profile.host.cores / max(1, profile.steps.workers)
    return Correction(seconds / float(cpu_step_time(ask, cores).total), True)


def correction_on(target: Accelerator, profile: Profile, model: Model) -> Correction:
    """How an accelerator's estimate is corrected: fully on the run's own, in part on others.

    The run is compared with the estimate at its own precision, whichever is asked for elsewhere.
    """
    seconds = _measured_seconds(profile, "cuda")
    local = find_accelerator(profile.host.gpus[0]) if profile.host.gpus else None
    if seconds is None or profile.steps is None or local is None:
        return Correction()
    ask = demand_of(model, float(profile.steps.batch_size), True, model.precision)
    estimated = step_time(ask, device(local, model.precision), calibration(local).step).total
    ratio = seconds / float(estimated)
    return Correction(ratio, True) if local.name == target.name else Correction(ratio**_ELSEWHERE)


def _measured_seconds(profile: Profile, kind: str) -> float | None:
    """Median seconds of an undisturbed step, without its wait for data."""
    steps = profile.steps
    if steps is None or not steps.seconds or steps.device != kind:
        return None
    if steps.busy:
        return steps.busy
    return max(median(steps.seconds) - steps.input_wait, _LEAST_BUSY * median(steps.seconds))
