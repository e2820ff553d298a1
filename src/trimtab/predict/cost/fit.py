"""Fitting a device's constants to measured steps and stages, and how far off they are on unseen models."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar, cast

import numpy as np

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
from trimtab.predict.tables import Array, take_rows

# How strongly a constant is held to its start (in units of log ratio to log error): weak enough for 100 rows
# to overrule it, strong enough to settle constants that the rows leave open.
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
        return list(dict.fromkeys(s.name for s in self.steps))


def cases(steps: Sequence[MeasuredStep], accelerator: Accelerator) -> Cases:
    """Formulas' inputs for the rows of one accelerator."""
    precisions = sorted({s.precision for s in steps})
    index = np.array([precisions.index(s.precision) for s in steps])
    # Inference rows were measured after training steps: the optimizer's state was still allocated.
    left_over = [0.0 if s.training else s.model.optimizer_state_bytes for s in steps]
    needs = [
        memory_need(s.model, float(s.batch), s.training, s.precision, extra)
        for s, extra in zip(steps, left_over, strict=True)
    ]
    return Cases(
        steps=tuple(steps),
        demand=stack(demand_of(s.model, float(s.batch), s.training, s.precision) for s in steps),
        need=MemoryNeed(
            **{f.name: np.array([float(getattr(n, f.name)) for n in needs]) for f in fields(MemoryNeed)}
        ),
        rates=gather([device_rates(accelerator, p) for p in precisions], index),
    )


def predict_seconds(case: Cases, constants: StepConstants) -> Array:
    return np.asarray(step_time(case.demand, case.rates, constants).total)


def predict_memory(case: Cases, constants: MemoryConstants) -> Array:
    return np.asarray(peak_memory(case.need, constants))


@dataclass(frozen=True, slots=True, eq=False)
class StageCases:
    """Measured stages, ready for the formulas: demands of both passes, rates, and measured seconds."""

    forward: Demand
    backward: Demand
    rates: PeakRates
    seconds: Array  # (stages, 3): of the forward pass, of the backward pass, of both
    models: tuple[str, ...]


def stage_cases(stages: Sequence[MeasuredStage], accelerator: Accelerator) -> StageCases:
    """Formulas' inputs for measured stages of one accelerator."""
    group = np.repeat(np.arange(len(stages)), [len(stage.operations.calls) for stage in stages])
    passes = [
        summed(stack(demand_of_operations(s.operations, backward, True, s.precision) for s in stages), group)
        for backward in (False, True)
    ]
    precisions = sorted({s.precision for s in stages})
    index = np.array([precisions.index(s.precision) for s in stages])
    seconds = np.array([(s.forward, s.backward, s.forward + s.backward) for s in stages])
    rates = gather([device_rates(accelerator, p) for p in precisions], index)
    return StageCases(passes[0], passes[1], rates, seconds, tuple(s.model for s in stages))


def predict_stages(case: StageCases, constants: StepConstants) -> Array:
    """(stages, 3): seconds of the forward pass, of the backward pass and of both."""
    forward, backward = (
        np.asarray(pass_seconds(d, case.rates, constants)) for d in (case.forward, case.backward)
    )
    return np.stack([forward, backward, forward + backward], axis=-1)


def fit_constants(
    steps: Sequence[MeasuredStep], accelerator: Accelerator, stages: Sequence[MeasuredStage] = ()
) -> tuple[StepConstants, MemoryConstants]:
    """Constants that make the formulas agree best with the measured steps, and with stages where given."""
    if not any(s.peak_memory and not s.out_of_memory for s in steps):
        raise BadInputError(
            f"there is no step on {accelerator.name} with a time and a peak of memory to fit constants to"
        )
    return _fit(cases(steps, accelerator), stage_cases(stages, accelerator) if stages else None)


def _fit(everything: Cases, stages: StageCases | None) -> tuple[StepConstants, MemoryConstants]:
    case = take_rows(everything, np.array([not s.out_of_memory for s in everything.steps]))
    truth = np.array([s.seconds for s in case.steps], dtype=float)
    if stages is not None and stages.models:
        weights = np.concatenate([np.ones(len(truth)), np.full(stages.seconds.size, _STAGE_WEIGHT)])

        def predict(constants: StepConstants) -> Array:
            return np.concatenate(
                [predict_seconds(case, constants), predict_stages(stages, constants).ravel()]
            )

        step = fit_to(StepConstants, predict, np.concatenate([truth, stages.seconds.ravel()]), weights)
    else:
        step = fit_to(StepConstants, lambda c: predict_seconds(case, c), truth)
    with_memory = take_rows(case, np.array([bool(s.peak_memory) for s in case.steps]))
    peaks = np.array([s.peak_memory for s in with_memory.steps], dtype=float)
    return step, fit_to(MemoryConstants, lambda c: predict_memory(with_memory, c), peaks)


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


def _fold_estimates(
    steps: Sequence[MeasuredStep], accelerator: Accelerator, stages: Sequence[MeasuredStage]
) -> Callable[[HeldOut], tuple[Array, Array]]:
    """Seconds and peak bytes of a fold's held-out rows, by constants fitted on everything else."""
    everything = cases(steps, accelerator)
    parts = stage_cases(stages, accelerator) if stages else None

    def estimate(fold: HeldOut) -> tuple[Array, Array]:
        families = {_family(name) for name in fold.groups}
        unrelated = parts and take_rows(parts, [_family(name) not in families for name in parts.models])
        step, memory = _fit(take_rows(everything, fold.training), unrelated)
        unseen = take_rows(everything, fold.rows)
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
    by_model = predict_unseen_pairs([s.name for s in steps], estimate, progress)
    return {name: (seconds, peaks) for name, (seconds, peaks) in by_model.items()}


Unseen = Mapping[str, tuple[Array, Array]]
"""By model: seconds and peak bytes of all rows by constants that never saw it; its own rows are NaN."""


def stages_left_out(
    stages: Sequence[MeasuredStage], steps: Sequence[MeasuredStep], accelerator: Accelerator
) -> Array:
    """Seconds of both passes of every stage, each by constants that saw no model of its family."""
    everything, parts = cases(steps, accelerator), stage_cases(stages, accelerator)
    families = np.array([_family(s.name) for s in steps])

    def estimate(fold: HeldOut) -> tuple[Array]:
        known = take_rows(everything, families != _family(fold.groups[0]))
        step, _ = _fit(known, take_rows(parts, fold.training))
        return (predict_stages(take_rows(parts, fold.rows), step)[:, 2],)

    return predict_unseen([s.model for s in stages], estimate)[0]


def ranges_without_the_model(steps: Sequence[MeasuredStep], unseen: Unseen) -> tuple[Array, Array]:
    """(low, high) of truth over estimate for the time and the memory of every row, from other models only."""
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
        truth = np.array([stage.forward + stage.backward for stage in stages])
        operation_error = _error_range((truth / stages_left_out(stages, steps, accelerator)).tolist())
    return Calibration(step, memory, time_error, _error_range(memory_ratio), operation_error)


def calibration_data(calibration: Calibration) -> dict[str, Any]:
    """The catalog's entry of the device, as plain data; four digits are more than the fit gives."""
    plain = asdict(calibration)
    errors = ("time_error", "memory_error", "operation_error")
    return {
        **{part: {name: _rounded(v) for name, v in plain[part].items()} for part in ("step", "memory")},
        **{name: [_rounded(end) for end in plain[name]] for name in errors},
    }


def cpu_calibration_data(constants: CpuConstants) -> dict[str, Any]:
    """The catalog's entry of the CPU with new constants; error ranges and parallel shares are not fitted."""
    known = cpu_calibration()
    fitted = {name: _rounded(value) for name, value in asdict(constants).items()}
    return {**asdict(known), "constants": fitted}


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
    """Least squares on the log of the error, robust to outliers, each constant tied weakly to its start."""
    # On one thread, unless SciPy was loaded before or the environment says otherwise: a fit is hundreds of
    # rows by tens of constants, which more threads make four to twenty times slower.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from scipy.optimize import least_squares

    scale = np.ones(len(truth)) if weights is None else weights
    free = [f for f in fields(cast(Any, kind)) if "start" in f.metadata]
    names = [f.name for f in free]
    start, low, high = (np.log([f.metadata[k] for f in free]) for k in ("start", "low", "high"))
    target = np.log(truth)

    def residuals(x: Array) -> Array:
        constants = kind(**dict(zip(names, np.exp(x), strict=True)))
        return np.concatenate([scale * (np.log(predict(constants)) - target), _TIE * (x - start)])

    solution = least_squares(residuals, start, bounds=(low, high), loss="soft_l1", f_scale=_OUTLIER)
    return kind(**dict(zip(names, (float(v) for v in np.exp(solution.x)), strict=True)))
