"""Fitting a device's constants to measured steps and stages, and how far off they are on unseen models."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib import import_module
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from trimtab.catalog import Accelerator
from trimtab.core import BadInputError
from trimtab.predict.backtest import HeldOut, predict_unseen, predict_unseen_pairs
from trimtab.predict.cost.constants import (
    Calibration,
    CpuConstants,
    ErrorRange,
    MemoryConstants,
    PeakRates,
    StepConstants,
    cpu_calibration,
    device_rates,
    gather,
)
from trimtab.predict.cost.demand import Demand, demand_of, demand_of_operations, stack, summed
from trimtab.predict.cost.measurements import MeasuredStage, MeasuredStep
from trimtab.predict.cost.step_memory import MemoryNeed, memory_need, peak_memory
from trimtab.predict.cost.step_time import cpu_step_time, pass_seconds, step_time

Array = NDArray[np.float64]

# How strongly a constant is held to its start (in units of log ratio to log error): weak enough for 100 rows
# to overrule it, strong enough to settle what the rows leave open.
_TIE = 0.2
_OUTLIER = 0.15
# Weight of a stage's residual relative to a step's. The two data sets come from hosts that differ in speed;
# at this weight either is predicted about as well as by constants of its own.
_STAGE_WEIGHT = 0.5


@dataclass(frozen=True, slots=True)
class Cases:
    """Measured steps on one accelerator, ready for the formulas."""

    steps: tuple[MeasuredStep, ...]
    demand: Demand
    need: MemoryNeed
    rates: PeakRates

    @property
    def models(self) -> list[str]:
        """Names of the models in order of appearance."""
        return list(dict.fromkeys(s.name for s in self.steps))

    def taken(self, rows: NDArray[np.bool_]) -> "Cases":
        """The chosen rows."""
        steps = tuple(step for step, chosen in zip(self.steps, rows, strict=True) if chosen)
        return Cases(steps, _taken(self.demand, rows), _taken(self.need, rows), _taken(self.rates, rows))


def cases(steps: Sequence[MeasuredStep], accelerator: Accelerator) -> Cases:
    """Formulas' inputs for the rows of one accelerator."""
    precisions = sorted({s.precision for s in steps})
    index = np.array([precisions.index(s.precision) for s in steps])
    return Cases(
        steps=tuple(steps),
        demand=stack(demand_of(s.model, float(s.batch), s.training, s.precision) for s in steps),
        need=_stack_needs([_need(s) for s in steps]),
        rates=gather([device_rates(accelerator, p) for p in precisions], index),
    )


def predict_seconds(case: Cases, constants: StepConstants) -> Array:
    """Seconds of every case."""
    return np.asarray(step_time(case.demand, case.rates, constants).total)


def predict_memory(case: Cases, constants: MemoryConstants) -> Array:
    """Peak bytes of every case."""
    return np.asarray(peak_memory(case.need, constants))


@dataclass(frozen=True, slots=True, eq=False)
class StageCases:
    """Measured stages, ready for the formulas: demands of both passes, rates, and measured seconds."""

    forward: Demand
    backward: Demand
    rates: PeakRates
    seconds: Array  # of the forward pass of all stages, then of the backward pass, then of both
    models: tuple[str, ...]

    def taken(self, rows: NDArray[np.bool_]) -> "StageCases":
        """The chosen stages."""
        models = tuple(name for name, chosen in zip(self.models, rows, strict=True) if chosen)
        forward, backward = _taken(self.forward, rows), _taken(self.backward, rows)
        seconds = self.seconds[np.tile(rows, 3)]
        return StageCases(forward, backward, _taken(self.rates, rows), seconds, models)


R = TypeVar("R", Demand, MemoryNeed, PeakRates)


def _taken(columns: R, rows: NDArray[np.bool_]) -> R:
    values = {f.name: np.broadcast_to(getattr(columns, f.name), len(rows))[rows] for f in fields(columns)}
    return type(columns)(**values)


def stage_cases(stages: Sequence[MeasuredStage], accelerator: Accelerator) -> StageCases:
    """Formulas' inputs for measured stages of one accelerator."""
    group = np.repeat(np.arange(len(stages)), [len(each.operations.calls) for each in stages])
    passes = [
        summed(stack(demand_of_operations(s.operations, backward, True, s.precision) for s in stages), group)
        for backward in (False, True)
    ]
    precisions = sorted({s.precision for s in stages})
    index = np.array([precisions.index(s.precision) for s in stages])
    ahead, back = (np.array([getattr(s, way) for s in stages]) for way in ("forward", "backward"))
    seconds = np.concatenate([ahead, back, ahead + back])
    rates = gather([device_rates(accelerator, p) for p in precisions], index)
    return StageCases(passes[0], passes[1], rates, seconds, tuple(s.model for s in stages))


def predict_stages(case: StageCases, constants: StepConstants) -> Array:
    """Seconds of the forward pass of all stages, then of the backward pass, then of both."""
    forward, backward = (pass_seconds(each, case.rates, constants) for each in (case.forward, case.backward))
    return np.concatenate([forward, backward, forward + backward], axis=-1)


def fit_constants(
    steps: Sequence[MeasuredStep], accelerator: Accelerator, stages: Sequence[MeasuredStage] = ()
) -> tuple[StepConstants, MemoryConstants]:
    """Constants that make the formulas agree best with the measured steps, and with stages where given."""
    if not any(s.peak_memory and not s.out_of_memory for s in steps):
        raise BadInputError(
            f"there is no step on {accelerator.name} with a time and a peak of memory to fit constants to"
        )
    return _fit(cases(steps, accelerator), stage_cases(stages, accelerator) if stages else None)


def _fit(everything: Cases, parts: StageCases | None) -> tuple[StepConstants, MemoryConstants]:
    case = everything.taken(np.array([not s.out_of_memory for s in everything.steps]))
    truth = np.array([s.seconds for s in case.steps], dtype=float)
    if parts is not None and parts.models:
        stages = parts
        weights = np.concatenate([np.ones(len(truth)), np.full(stages.seconds.size, _STAGE_WEIGHT)])

        def predict(constants: StepConstants) -> Array:
            together = predict_seconds(case, constants), predict_stages(stages, constants)
            return np.concatenate(together, axis=-1)

        step = fit_to(StepConstants, predict, np.concatenate([truth, stages.seconds]), weights)
    else:
        step = fit_to(StepConstants, lambda c: predict_seconds(case, c), truth)
    with_memory = case.taken(np.array([bool(s.peak_memory) for s in case.steps]))
    peaks = np.array([s.peak_memory for s in with_memory.steps], dtype=float)
    memory = fit_to(MemoryConstants, lambda c: predict_memory(with_memory, c), peaks)
    return step, memory


def fit_cpu_constants(steps: Sequence[MeasuredStep], cores: float) -> CpuConstants:
    """Constants of one virtual core that agree best with steps measured on `cores` of them."""
    good = [s for s in steps if not s.out_of_memory]
    demand = stack(demand_of(s.model, float(s.batch), s.training, "fp32") for s in good)
    seconds = np.array([s.seconds for s in good], dtype=float)
    return fit_to(CpuConstants, lambda c: np.asarray(cpu_step_time(demand, cores, c).total), seconds)


def _family(model: str) -> str:
    """A model's name up to the first digit or underscore, as resnet of resnet101."""
    match = re.match(r"[a-z]+", model)
    return match[0] if match else model


def _unrelated(parts: StageCases, models: Sequence[str]) -> StageCases:
    """Stages of no model in the family of a held-out one."""
    families = {_family(name) for name in models}
    return parts.taken(np.array([_family(name) not in families for name in parts.models]))


def _fold_estimates(
    steps: Sequence[MeasuredStep], accelerator: Accelerator, stages: Sequence[MeasuredStage]
) -> Callable[[HeldOut], tuple[Array, Array]]:
    """Seconds and peak bytes of a fold's held-out rows, by constants fitted on everything else."""
    everything = cases(steps, accelerator)
    parts = stage_cases(stages, accelerator) if stages else None

    def estimate(fold: HeldOut) -> tuple[Array, Array]:
        step, memory = _fit(everything.taken(fold.training), parts and _unrelated(parts, fold.groups))
        unseen = everything.taken(fold.rows)
        return predict_seconds(unseen, step), predict_memory(unseen, memory)

    return estimate


def leave_one_model_out(
    steps: Sequence[MeasuredStep],
    accelerator: Accelerator,
    stages: Sequence[MeasuredStage] = (),
    progress: Callable[[str], None] = lambda name: None,
) -> tuple[Array, Array]:
    """Seconds and peak bytes of every row, each by constants fitted on the other models only."""
    estimate = _fold_estimates(steps, accelerator, stages)
    seconds, peaks = predict_unseen([s.name for s in steps], estimate, progress)
    return seconds, peaks


def leave_two_models_out(
    steps: Sequence[MeasuredStep],
    accelerator: Accelerator,
    stages: Sequence[MeasuredStage] = (),
    progress: Callable[[str], None] = lambda name: None,
) -> "Unseen":
    """By model: estimates of all other models' rows, each by constants that saw neither of the two models."""
    estimate = _fold_estimates(steps, accelerator, stages)
    found = predict_unseen_pairs([s.name for s in steps], estimate, progress)
    return {name: (seconds, peaks) for name, (seconds, peaks) in found.items()}


Unseen = Mapping[str, tuple[Array, Array]]
"""By model: seconds and peak bytes of all rows by constants that never saw it; its own rows are NaN."""


def stages_left_out(
    stages: Sequence[MeasuredStage], steps: Sequence[MeasuredStep], accelerator: Accelerator
) -> Array:
    """Seconds of both passes of every stage, each by constants that saw no model of its family."""

    everything, parts = cases(steps, accelerator), stage_cases(stages, accelerator)
    families = np.array([_family(s.name) for s in steps])

    def estimate(fold: HeldOut) -> tuple[Array]:
        known = everything.taken(families != _family(fold.groups[0]))
        step, _ = _fit(known, parts.taken(fold.training))
        return (np.split(predict_stages(parts.taken(fold.rows), step), 3)[2],)

    return predict_unseen([s.model for s in stages], estimate)[0]


def ranges_without_the_model(steps: Sequence[MeasuredStep], unseen: Unseen) -> tuple[Array, Array]:
    """(low, high) of truth over estimate for the time and the memory of every row, from other models only.

    These are the ranges that `calibrate` states when it is not shown the row's model.
    """
    ranges: dict[str, tuple[ErrorRange, ErrorRange]] = {}
    for name, (seconds, peaks) in unseen.items():
        others = [i for i, s in enumerate(steps) if s.name != name]
        time, memory = _ratios([steps[i] for i in others], seconds[others], peaks[others])
        ranges[name] = _error_range(time), _error_range(memory)
    return np.array([ranges[s.name][0] for s in steps]), np.array([ranges[s.name][1] for s in steps])


def calibrate(
    steps: Sequence[MeasuredStep],
    accelerator: Accelerator,
    left_out: tuple[Array, Array],
    stages: Sequence[MeasuredStage] = (),
) -> Calibration:
    """Constants from all rows, with error ranges from `left_out`, the answer of `leave_one_model_out`."""
    step, memory = fit_constants(steps, accelerator, stages)
    time_ratio, memory_ratio = _ratios(steps, *left_out)
    time_error, operation_error = _error_range(time_ratio), _error_range(time_ratio)
    if stages:
        truth = np.array([each.forward + each.backward for each in stages])
        operation_error = _error_range((truth / stages_left_out(stages, steps, accelerator)).tolist())
    return Calibration(step, memory, time_error, _error_range(memory_ratio), operation_error)


def calibration_data(calibration: Calibration) -> dict[str, Any]:
    """The catalog's entry of the device, as plain data; four digits are more than the fit knows."""
    constants = {
        part: {name: _rounded(value) for name, value in asdict(getattr(calibration, part)).items()}
        for part in ("step", "memory")
    }
    errors = {
        name: [_rounded(end) for end in getattr(calibration, name)]
        for name in ("time_error", "memory_error", "operation_error")
    }
    return {**constants, **errors}


def cpu_calibration_data(constants: CpuConstants) -> dict[str, Any]:
    """The catalog's entry of the CPU with new constants; error ranges and `scaling` are not fitted."""
    known = cpu_calibration()
    fitted = {name: _rounded(value) for name, value in asdict(constants).items()}
    return {**asdict(known), "constants": fitted | {"scaling": known.constants.scaling}}


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _ratios(steps: Sequence[MeasuredStep], seconds: Array, peaks: Array) -> tuple[list[float], list[float]]:
    """Truth over estimate of the times and the peaks that were measured."""
    return (
        [s.seconds / p for s, p in zip(steps, seconds, strict=True) if s.seconds],
        [s.peak_memory / p for s, p in zip(steps, peaks, strict=True) if s.peak_memory],
    )


def _error_range(ratios: Sequence[float]) -> ErrorRange:
    low, high = np.quantile(np.asarray(ratios), [0.05, 0.95])
    return min(1.0, float(low)), max(1.0, float(high))


C = TypeVar("C")


def fit_to(kind: type[C], predict: Callable[[C], Array], truth: Array, weights: Array | None = None) -> C:
    """Least squares on the log of the error, forgiving outliers, each constant tied weakly to its start."""
    scale = np.ones(len(truth)) if weights is None else weights
    least_squares = _solver()
    free = [f for f in fields(cast(Any, kind)) if "start" in f.metadata]
    names = [f.name for f in free]
    start, low, high = (np.log([f.metadata[k] for f in free]) for k in ("start", "low", "high"))
    target = np.log(truth)

    def residuals(x: Array) -> Array:
        constants = kind(**dict(zip(names, np.exp(x), strict=True)))
        return np.concatenate([scale * (np.log(predict(constants)) - target), _TIE * (x - start)])

    solution = least_squares(residuals, start, bounds=(low, high), loss="soft_l1", f_scale=_OUTLIER)
    return kind(**dict(zip(names, (float(v) for v in np.exp(solution.x)), strict=True)))


def _solver() -> Any:
    """SciPy's least squares on one thread, unless SciPy was loaded before or the environment says otherwise.

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
