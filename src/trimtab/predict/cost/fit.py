"""Fitting a device's constants to measured steps, and finding out how far off they are on unseen models."""

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from importlib import import_module
from itertools import combinations
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from trimtab.catalog import Accelerator
from trimtab.core import BadInputError
from trimtab.predict.cost.constants import Calibration, Device, MemoryConstants, StepConstants, device, gather
from trimtab.predict.cost.cpu import CpuConstants, cpu_step_time
from trimtab.predict.cost.demand import Demand, demand_of, stack
from trimtab.predict.cost.measurements import MeasuredStep
from trimtab.predict.cost.step_memory import MemoryNeed, memory_need, peak_memory
from trimtab.predict.cost.step_time import step_time

Array = NDArray[np.float64]

# How strongly a constant is held to its start (in units of log ratio to log error): weak enough for 100 rows
# to overrule it, strong enough to settle what the rows leave open.
_TIE = 0.2
_OUTLIER = 0.15


@dataclass(frozen=True, slots=True)
class Cases:
    """Measured steps on one accelerator, ready for the formulas."""

    steps: tuple[MeasuredStep, ...]
    ask: Demand
    need: MemoryNeed
    device: Device

    @property
    def models(self) -> list[str]:
        """Names of the models in order of appearance."""
        return list(dict.fromkeys(s.name for s in self.steps))


def cases(steps: Sequence[MeasuredStep], accelerator: Accelerator) -> Cases:
    """Formulas' inputs for the rows of one accelerator."""
    precisions = sorted({s.precision for s in steps})
    index = np.array([precisions.index(s.precision) for s in steps])
    return Cases(
        steps=tuple(steps),
        ask=stack(demand_of(s.model, float(s.batch), s.training, s.precision) for s in steps),
        need=_stack_needs([_need(s) for s in steps]),
        device=gather([device(accelerator, p) for p in precisions], index),
    )


def predict_seconds(case: Cases, constants: StepConstants) -> Array:
    """Seconds of every case."""
    return np.asarray(step_time(case.ask, case.device, constants).total)


def predict_memory(case: Cases, constants: MemoryConstants) -> Array:
    """Peak bytes of every case."""
    return np.asarray(peak_memory(case.need, constants))


def fit_constants(
    steps: Sequence[MeasuredStep], accelerator: Accelerator
) -> tuple[StepConstants, MemoryConstants]:
    """Constants that make the formulas agree best with the measured steps."""
    good = [s for s in steps if not s.out_of_memory]
    if not any(s.peak_memory for s in good):
        raise BadInputError(
            f"there is no step on {accelerator.name} with a time and a peak of memory to fit constants to"
        )
    case = cases(good, accelerator)
    seconds = np.array([s.seconds for s in good], dtype=float)
    step = fit_to(StepConstants, lambda c: predict_seconds(case, c), seconds)
    with_memory = cases([s for s in good if s.peak_memory], accelerator)
    peaks = np.array([s.peak_memory for s in with_memory.steps], dtype=float)
    memory = fit_to(MemoryConstants, lambda c: predict_memory(with_memory, c), peaks)
    return step, memory


def fit_cpu_constants(steps: Sequence[MeasuredStep], cores: float) -> CpuConstants:
    """Constants of one virtual core that agree best with steps measured on `cores` of them."""
    good = [s for s in steps if not s.out_of_memory]
    ask = stack(demand_of(s.model, float(s.batch), s.training, "fp32") for s in good)
    seconds = np.array([s.seconds for s in good], dtype=float)
    return fit_to(CpuConstants, lambda c: np.asarray(cpu_step_time(ask, cores, c).total), seconds)


def leave_one_model_out(
    steps: Sequence[MeasuredStep],
    accelerator: Accelerator,
    progress: Callable[[str], None] = lambda name: None,
) -> tuple[Array, Array]:
    """Seconds and peak bytes of every row, each by constants fitted on the other models only."""
    everything = cases(steps, accelerator)
    seconds, peaks = np.zeros(len(steps)), np.zeros(len(steps))
    for name in everything.models:
        held_out = [i for i, s in enumerate(steps) if s.name == name]
        step, memory = fit_constants([s for s in steps if s.name != name], accelerator)
        unseen = cases([steps[i] for i in held_out], accelerator)
        seconds[held_out] = predict_seconds(unseen, step)
        peaks[held_out] = predict_memory(unseen, memory)
        progress(name)
    return seconds, peaks


@dataclass(frozen=True, slots=True, eq=False)
class OthersWithout:
    """By model: estimates of all other models' rows, each by constants that knew neither of the two.

    It is what somebody can know of the errors who was never shown that model. Its own rows are NaN.
    """

    seconds: dict[str, Array]
    peaks: dict[str, Array]


def estimates_without_pairs(
    steps: Sequence[MeasuredStep],
    accelerator: Accelerator,
    progress: Callable[[str], None] = lambda name: None,
) -> OthersWithout:
    """Leaves every pair of models out in turn, which serves both of it."""
    everything = cases(steps, accelerator)
    names = np.array([s.name for s in steps])
    nothing = np.full(len(steps), np.nan)
    found = OthersWithout(*({name: nothing.copy() for name in everything.models} for _ in range(2)))
    for pair in combinations(everything.models, 2):
        step, memory = fit_constants([s for s in steps if s.name not in pair], accelerator)
        seconds, peaks = predict_seconds(everything, step), predict_memory(everything, memory)
        for tested, other in (pair, pair[::-1]):
            theirs = names == other
            found.seconds[tested][theirs] = seconds[theirs]
            found.peaks[tested][theirs] = peaks[theirs]
        progress(" and ".join(pair))
    return found


def ranges_without_the_model(steps: Sequence[MeasuredStep], without: OthersWithout) -> tuple[Array, Array]:
    """(low, high) of truth over estimate for the time and the memory of every row, from other models only.

    It is what `calibrate` states when it is not shown the row's model.
    """
    ranges: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {}
    for name in without.seconds:
        others = [i for i, s in enumerate(steps) if s.name != name]
        time, memory = _ratios(
            [steps[i] for i in others], without.seconds[name][others], without.peaks[name][others]
        )
        ranges[name] = _error_range(time), _error_range(memory)
    return np.array([ranges[s.name][0] for s in steps]), np.array([ranges[s.name][1] for s in steps])


def calibrate(
    steps: Sequence[MeasuredStep],
    accelerator: Accelerator,
    progress: Callable[[str], None] = lambda name: None,
) -> Calibration:
    """Constants from all rows, with error ranges from constants that had not seen the model."""
    return calibration_from(steps, accelerator, leave_one_model_out(steps, accelerator, progress))


def calibration_from(
    steps: Sequence[MeasuredStep], accelerator: Accelerator, left_out: tuple[Array, Array]
) -> Calibration:
    """The same, where `leave_one_model_out` has answered already."""
    seconds, peaks = left_out
    step, memory = fit_constants(steps, accelerator)
    time_ratio, memory_ratio = _ratios(steps, seconds, peaks)
    return Calibration(step, memory, _error_range(time_ratio), _error_range(memory_ratio))


def calibration_data(calibration: Calibration) -> dict[str, Any]:
    """What the catalog's entry of the device holds; four digits are more than the fit knows."""
    rounded = {
        part: {k: float(f"{v:.4g}") for k, v in asdict(getattr(calibration, part)).items()}
        for part in ("step", "memory")
    }
    return {
        **rounded,
        "time_error": [float(f"{v:.4g}") for v in calibration.time_error],
        "memory_error": [float(f"{v:.4g}") for v in calibration.memory_error],
    }


def _ratios(steps: Sequence[MeasuredStep], seconds: Array, peaks: Array) -> tuple[list[float], list[float]]:
    """Truth over estimate of the times and the peaks that were measured."""
    return (
        [s.seconds / p for s, p in zip(steps, seconds, strict=True) if s.seconds],
        [s.peak_memory / p for s, p in zip(steps, peaks, strict=True) if s.peak_memory],
    )


def _error_range(ratios: Sequence[float]) -> tuple[float, float]:
    low, high = np.quantile(np.asarray(ratios), [0.05, 0.95])
    return min(1.0, float(low)), max(1.0, float(high))


C = TypeVar("C")


def fit_to(kind: type[C], predict: Callable[[C], Array], truth: Array) -> C:
    """Least squares on the log of the error, forgiving outliers, each constant tied weakly to its start."""
    least_squares = _solver()
    free = [f for f in fields(cast(Any, kind)) if "start" in f.metadata]
    names = [f.name for f in free]
    start, low, high = (np.log([f.metadata[k] for f in free]) for k in ("start", "low", "high"))
    target = np.log(truth)

    def residuals(x: Array) -> Array:
        constants = kind(**dict(zip(names, np.exp(x), strict=True)))
        return np.concatenate([np.log(predict(constants)) - target, _TIE * (x - start)])

    solution = least_squares(residuals, start, bounds=(low, high), loss="soft_l1", f_scale=_OUTLIER)
    return kind(**dict(zip(names, (float(v) for v in np.exp(solution.x)), strict=True)))


def _solver() -> Any:
    """SciPy's least squares on one thread, unless SciPy was loaded before or the user said otherwise.

    A fit is hundreds of rows by tens of constants: more threads make it four times slower on a quiet machine
    and twenty times where something else wants the cores.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    return import_module("scipy.optimize").least_squares


def _need(step: MeasuredStep) -> MemoryNeed:
    """Inference rows were measured after training steps: the optimizer's state was still allocated."""
    left_over = 0.0 if step.training else step.model.optimizer_state_bytes
    return memory_need(step.model, float(step.batch), step.training, step.precision, left_over)


def _stack_needs(needs: Sequence[MemoryNeed]) -> MemoryNeed:
    return MemoryNeed(
        **{f.name: np.array([float(getattr(n, f.name)) for n in needs]) for f in fields(MemoryNeed)}
    )
