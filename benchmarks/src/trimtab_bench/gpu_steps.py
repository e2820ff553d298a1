"""The analytic estimator against step times and peak memory measured on an H200.

Constants are fitted leaving out the model they are scored on; `--shipped` scores the catalog's constants as
they are. The rival, in the same run and with the same leave-one-out, is a five-constant formula. `coverage90`
is the share of measurements within the 90 % interval that the other models alone give.

The guard's answer is reported with the rule's: memory corrected by the errors of other models, and training
steps by earlier outcomes of the same model (`earlier_outcomes`). Neither correction is learned from the model
it is scored on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.catalog import accelerator
from trimtab.core import BadInputError
from trimtab.predict import (
    BUNDLED_STAGES,
    BUNDLED_STEPS,
    MeasuredStep,
    Unseen,
    calibration,
    cases,
    corrected_memory,
    cpu_step_time,
    demand_of,
    fit_cpu_constants,
    guarded_memory,
    leave_one_model_out,
    leave_two_models_out,
    predict_memory,
    predict_seconds,
    ranges_without_the_model,
    read_measurements,
    read_stages,
    shipped_corrections,
)
from trimtab.predict.interval import conformal_interval
from trimtab_bench.earlier_outcomes import (
    ape_cell,
    ape_figures,
    guard_table,
    outcome_figures,
    outcome_trials,
    transfer_figures,
    transfer_tables,
)
from trimtab_bench.harness import BenchOptions, BenchResult, ResultTable

Array = NDArray[np.float64]
DEVICE = "H200"
CPU_THREADS = 2
# One is tested, one gives its errors, and the constants come from the rest.
_MODELS_FOR_A_RANGE = 3

PUBLISHED = {
    "five-constant formula, constants fitted on the other models (README of the data)": {
        "train_step_median_ape": 0.31,
        "train_step_mean_ape": 0.41,
    }
}


@dataclass(frozen=True, slots=True)
class Predictions:
    """Seconds and peak bytes of every row on the device, by the rule; and the guarded peaks."""

    seconds: Array
    memory: Array
    guarded: Array


def run(options: BenchOptions) -> BenchResult:
    """Score the estimator on the bundled measurements or on those in `options.data`."""
    everything = read_measurements(options.data or BUNDLED_STEPS)
    rows = [r for r in everything if r.device != "cpu"]
    if not rows:
        raise BadInputError("the measurements have no row on a GPU (device cuda)")
    if not options.shipped and len({r.name for r in rows}) < 2:
        raise BadInputError("leaving a model out needs at least two models; use --shipped to score only one")
    device = accelerator(DEVICE)
    case = cases(rows, device)
    without: Unseen | None = None
    if options.shipped:
        constants, learned = calibration(device), shipped_corrections()
        seconds, memory = predict_seconds(case, constants.step), predict_memory(case, constants.memory)
        guarded = guarded_memory(learned.memory, case, memory) if learned else memory
    else:
        with options.progress(len({r.name for r in rows}), "leaving one model out") as announce:
            seconds, memory = leave_one_model_out(rows, device, read_stages(BUNDLED_STAGES), announce)
        without = _without_the_model(rows, seconds, memory, options)
        guarded = corrected_memory(case, memory, without) if without else memory
    estimates = Predictions(seconds, memory, guarded)
    figures = _figures(rows, estimates) | _cpu_figures(everything, rows, estimates, options.shipped)
    trials = outcome_trials(rows, estimates.seconds, without, options)
    figures |= outcome_figures(trials) | (transfer_figures(options.data) if options.data else {})
    baselines: dict[str, Any] = {}
    if not (options.shipped or options.quick):
        figures |= _coverage_figures(rows, estimates, without)
        baselines["five-constant formula"] = _time_figures(rows, _five_constants(rows, options))
    tables = (*_tables(rows, estimates, baselines), guard_table(figures, trials), *transfer_tables(figures))
    return BenchResult("gpu-steps", figures, baselines, PUBLISHED, options.seed, tables)


def _without_the_model(
    rows: Sequence[MeasuredStep], seconds: Array, memory: Array, options: BenchOptions
) -> Unseen | None:
    """Estimates of the other models without the one tested; None where there are too few models.

    In a quick run the others' constants have seen the tested model, as one of many.
    """
    names = list(dict.fromkeys(r.name for r in rows))
    if len(names) < _MODELS_FOR_A_RANGE:
        return None
    if options.quick:
        return dict.fromkeys(names, (seconds, memory))
    with options.progress(comb(len(names), 2), "leaving two models out") as announce:
        return leave_two_models_out(rows, accelerator(DEVICE), read_stages(BUNDLED_STAGES), announce)


def _figures(rows: Sequence[MeasuredStep], estimates: Predictions) -> dict[str, Any]:
    ran = np.array([not r.out_of_memory for r in rows])
    weighed = np.array([r.peak_memory is not None for r in rows])
    peaks = np.array([r.peak_memory or np.nan for r in rows])
    predicted_oom = estimates.guarded > accelerator(DEVICE).memory
    figures = _time_figures(rows, estimates.seconds)
    figures |= ape_figures("peak_memory", np.abs(estimates.guarded / peaks - 1)[weighed])
    figures |= ape_figures("peak_memory_rule", np.abs(estimates.memory / peaks - 1)[weighed])
    figures |= {"oom_accuracy": float((predicted_oom == ~ran).mean()), "rows": len(rows)}
    if (~ran).any():
        figures["oom_found"] = float(predicted_oom[~ran].mean())
    low, high = calibration(accelerator(DEVICE)).time_error
    ratio = np.array([r.seconds or np.nan for r in rows])[ran] / estimates.seconds[ran]
    figures["interval_coverage"] = float(((ratio >= low) & (ratio <= high)).mean())
    return figures


def _coverage_figures(
    rows: Sequence[MeasuredStep], estimates: Predictions, without: Unseen | None
) -> dict[str, Any]:
    """Share of a model's rows within the interval that was calibrated without it."""
    if without is None:
        return {}
    time, memory = ranges_without_the_model(rows, without)
    peaks = np.array([r.peak_memory or np.nan for r in rows])
    training = np.array([r.training for r in rows])
    time_held = _held(np.array([r.seconds or np.nan for r in rows]) / estimates.seconds, time)
    ratio = peaks / estimates.guarded
    names = np.array([r.name for r in rows])
    intervals = {}
    for name in np.unique(names):
        others = (names != name) & np.isfinite(ratio)
        intervals[name] = conformal_interval(ratio[others], 0.9, names[others])
    chosen = {
        "coverage90": time_held,
        "coverage90_train": time_held[training],
        "coverage90_infer": time_held[~training],
        "coverage90_memory_rule": _held(peaks / estimates.memory, memory),
        "coverage90_memory": _held(ratio, np.array([intervals[name] for name in names])),
    }
    return {name: float(np.nanmean(held)) for name, held in chosen.items() if np.isfinite(held).any()}


def _held(ratio: Array, ends: Array) -> Array:
    """1 where low <= ratio <= high, 0 where not, NaN where nothing was measured."""
    inside = (ratio >= ends[:, 0]) & (ratio <= ends[:, 1])
    return np.where(np.isnan(ratio), np.nan, inside.astype(float))


def _time_figures(rows: Sequence[MeasuredStep], seconds: Array) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for mode, training in (("train", True), ("infer", False)):
        for suffix, precision in (("", None), ("_fp32", "tf32"), ("_bf16", "bf16")):
            error = _time_errors(rows, seconds, training, precision)
            if error.size:
                figures |= ape_figures(f"{mode}_step{suffix}", error)
    return figures


def _time_errors(
    rows: Sequence[MeasuredStep], seconds: Array, training: bool, precision: str | None = None
) -> Array:
    return np.array(
        [
            abs(estimate / r.seconds - 1)
            for r, estimate in zip(rows, seconds, strict=True)
            if r.seconds and r.training == training and precision in (None, r.precision)
        ]
    )


def _cpu_figures(
    everything: Sequence[MeasuredStep], rows: Sequence[MeasuredStep], estimates: Predictions, shipped: bool
) -> dict[str, Any]:
    """The CPU rule's error, and its correlation with the GPU's for the same model."""
    on_cpu = [r for r in everything if r.device == "cpu" and r.seconds]
    if not on_cpu:
        return {}
    ratios: dict[str, list[float]] = {}
    for name in dict.fromkeys(r.name for r in on_cpu):
        others = [r for r in on_cpu if r.name != name]
        constants = None if shipped or not others else fit_cpu_constants(others, CPU_THREADS)
        for r in (r for r in on_cpu if r.name == name):
            ask = demand_of(r.model, float(r.batch), r.training, "fp32")
            estimate = float(cpu_step_time(ask, CPU_THREADS, constants).total)
            ratios.setdefault(name, []).append((r.seconds or 0.0) / estimate)
    gpu_ratios: dict[str, list[float]] = {}
    for r, estimate in zip(rows, estimates.seconds, strict=True):
        if r.seconds and r.training:
            gpu_ratios.setdefault(r.name, []).append(r.seconds / estimate)
    both = [n for n in ratios if n in gpu_ratios]
    error = np.abs(1 / np.concatenate([np.array(v) for v in ratios.values()]) - 1)
    figures = {"cpu_step_median_ape": float(np.median(error))}
    if len(both) > 2:
        pairs = np.array([[np.log(ratios[n]).mean(), np.log(gpu_ratios[n]).mean()] for n in both])
        figures["cpu_gpu_error_correlation"] = float(np.corrcoef(pairs.T)[0, 1])
    return figures


def _five_constants(rows: Sequence[MeasuredStep], options: BenchOptions) -> Array:
    """max(launch · calls, FLOP / rate + bytes / bandwidth) + 5 · parameter bytes / 4 TB/s.

    Fitted like ours on the other models, and, to its advantage, on training and inference apart.
    """
    from scipy.optimize import minimize  # late, so that the fits above settle SciPy's threads

    seconds = np.zeros(len(rows))
    start = np.log([10e-6, 1.2, 130e12, 230e12, 23e12])
    for name in options.track(list(dict.fromkeys(r.name for r in rows)), "fitting the five-constant formula"):
        for training in (True, False):
            held_out = [i for i, r in enumerate(rows) if r.name == name and r.training == training]
            known = [r for r in rows if r.name != name and r.training == training and r.seconds]
            if not (held_out and known):
                continue
            truth, columns = np.log([r.seconds or np.nan for r in known]), _columns(known)

            def loss(x: Array, columns: Array = columns, truth: Array = truth) -> float:
                return float(np.abs(np.log(_five_constant_seconds(columns, x)) - truth).mean())

            limits = {"maxiter": 300, "xatol": 1e-3, "fatol": 1e-4}
            constants = np.asarray(minimize(loss, start, method="Nelder-Mead", options=limits).x)
            seconds[held_out] = _five_constant_seconds(_columns([rows[i] for i in held_out]), constants)
    return seconds


def _columns(rows: Sequence[MeasuredStep]) -> Array:
    """calls, FLOP, bytes, parameter bytes (training), half: one column per row."""
    columns = []
    for r in rows:
        operators = [o for o in r.model.operators if r.training or o.phase == "forward"]
        flop = r.model.step_flop_per_sample if r.training else r.model.forward_flop_per_sample
        calls = sum(o.calls for o in operators)
        traffic = sum(o.fixed_bytes + o.sample_bytes * r.batch for o in operators)
        parameters = r.model.parameter_bytes if r.training else 0.0
        columns.append((calls, flop * r.batch, traffic, parameters, float(r.precision == "bf16")))
    return np.array(columns).T


def _five_constant_seconds(columns: Array, x: Array) -> Array:
    launch, half_launch, rate, half_rate, bandwidth = np.exp(x)
    calls, flop, traffic, parameters, half = columns
    host = launch * calls * np.where(half > 0, half_launch, 1.0)
    on_device = flop / np.where(half > 0, half_rate, rate) + traffic / bandwidth
    return np.asarray(np.maximum(host, on_device) + 5 * parameters / 4e12)


def _tables(
    rows: Sequence[MeasuredStep], estimates: Predictions, baselines: dict[str, Any]
) -> tuple[ResultTable, ...]:
    figures = _time_figures(rows, estimates.seconds)
    lines = [
        (key.replace("_", " "), *(ape_cell(scores, key) for scores in (figures, *baselines.values())))
        for key in (k.removesuffix("_median_ape") for k in figures if k.endswith("_median_ape"))
    ]
    by_model = []
    for name in dict.fromkeys(r.name for r in rows):
        chosen = [i for i, r in enumerate(rows) if r.name == name]
        weighed = [i for i in chosen if rows[i].peak_memory]
        peaks = np.array([rows[i].peak_memory for i in weighed], dtype=float)
        errors = [
            _time_errors([rows[i] for i in chosen], estimates.seconds[chosen], True),
            *(np.abs(memory[weighed] / peaks - 1) for memory in (estimates.memory, estimates.guarded)),
        ]
        by_model.append((name, *(f"{np.median(error):.1%}" if error.size else "-" for error in errors)))
    heads = ("model", "training step", "peak memory, rule", "guarded")
    return (
        ResultTable("Absolute percentage error, median / mean", ("", "analytic", *baselines), lines),
        ResultTable("By model, median error", heads, by_model),
    )
