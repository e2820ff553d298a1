"""The analytic estimator against step times and peak memory measured on an H200.

Constants are fitted leaving out the model they are scored on; `--shipped` scores the catalog's constants as
they are. Beside it, in the same run and with the same leave-one-out, a five-constant formula. `coverage90` is
how often the truth lies in the 90 % range that the other models alone give.

The guarded answer stands beside the rule's: memory corrected by what other models were off by, and training
steps by some earlier outcomes of the same model (`earlier_outcomes`). What is learned of either never saw the
model it is scored on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
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
    guard_table,
    outcome_figures,
    outcome_trials,
    transfer_figures,
    transfer_tables,
)
from trimtab_bench.harness import BenchOptions, BenchResult, Table

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
    """Seconds and peak bytes for every row on the device: the rule's, and `guarded` peaks beside them."""

    seconds: Array
    memory: Array
    guarded: Array | None = None


def run(options: BenchOptions) -> BenchResult:
    """Score the estimator on the bundled measurements or on those in `options.data`."""
    everything = read_measurements(options.data or BUNDLED_STEPS)
    rows = [r for r in everything if r.device != "cpu"]
    if not rows:
        raise BadInputError("the measurements have no row on a GPU (device cuda)")
    if not options.shipped and len({r.name for r in rows}) < 2:
        raise BadInputError("leaving a model out needs at least two models; use --shipped to score only one")
    ours = _shipped(rows) if options.shipped else _fitted(rows, options)
    without = None if options.shipped else _others(rows, ours, options)
    if without:
        case = cases(rows, accelerator(DEVICE))
        ours = replace(ours, guarded=corrected_memory(case, ours.memory, without))
    figures = _figures(rows, ours) | _cpu_figures(everything, rows, ours, options.shipped)
    trials = outcome_trials(rows, ours.seconds, without, options)
    figures |= outcome_figures(trials) | (transfer_figures(options.data) if options.data else {})
    baselines: dict[str, Any] = {}
    if not (options.shipped or options.quick):
        figures |= _coverage_figures(rows, ours, without)
        baselines["five-constant formula"] = _time_figures(rows, _five_constants(rows, options))
    tables = (*_tables(rows, ours, baselines), guard_table(figures, trials), *transfer_tables(figures))
    return BenchResult("gpu-steps", figures, baselines, PUBLISHED, options.seed, tables)


def _shipped(rows: Sequence[MeasuredStep]) -> Predictions:
    constants = calibration(accelerator(DEVICE))
    case = cases(rows, accelerator(DEVICE))
    peaks, learned = predict_memory(case, constants.memory), shipped_corrections()
    guarded = guarded_memory(learned.memory, case, peaks) if learned else None
    return Predictions(predict_seconds(case, constants.step), peaks, guarded)


def _fitted(rows: Sequence[MeasuredStep], options: BenchOptions) -> Predictions:
    with options.progress(len({r.name for r in rows}), "leaving one model out") as announce:
        return Predictions(
            *leave_one_model_out(rows, accelerator(DEVICE), read_stages(BUNDLED_STAGES), announce)
        )


def _others(rows: Sequence[MeasuredStep], ours: Predictions, options: BenchOptions) -> Unseen | None:
    """Estimates of the other models without the one tested; None where there are too few models.

    In a quick run the others' constants have seen the tested model, as one of many.
    """
    names = list(dict.fromkeys(r.name for r in rows))
    if len(names) < _MODELS_FOR_A_RANGE:
        return None
    if options.quick:
        return dict.fromkeys(names, (ours.seconds, ours.memory))
    with options.progress(comb(len(names), 2), "leaving two models out") as announce:
        return leave_two_models_out(rows, accelerator(DEVICE), read_stages(BUNDLED_STAGES), announce)


def _figures(rows: Sequence[MeasuredStep], ours: Predictions) -> dict[str, Any]:
    ran = np.array([not r.out_of_memory for r in rows])
    weighed = np.array([r.peak_memory is not None for r in rows])
    peaks = np.array([r.peak_memory or np.nan for r in rows])
    answers = ours.memory if ours.guarded is None else ours.guarded
    memory_error, by_rule = (np.abs(memory / peaks - 1)[weighed] for memory in (answers, ours.memory))
    predicted_oom = answers > accelerator(DEVICE).memory
    figures = _time_figures(rows, ours.seconds) | {
        "peak_memory_median_ape": float(np.median(memory_error)),
        "peak_memory_mean_ape": float(memory_error.mean()),
        "peak_memory_rule_median_ape": float(np.median(by_rule)),
        "peak_memory_rule_mean_ape": float(by_rule.mean()),
        "oom_accuracy": float((predicted_oom == ~ran).mean()),
        "rows": len(rows),
    }
    if (~ran).any():
        figures["oom_found"] = float(predicted_oom[~ran].mean())
    low, high = calibration(accelerator(DEVICE)).time_error
    ratio = np.array([r.seconds or np.nan for r in rows])[ran] / ours.seconds[ran]
    figures["interval_coverage"] = float(((ratio >= low) & (ratio <= high)).mean())
    return figures


def _coverage_figures(
    rows: Sequence[MeasuredStep], ours: Predictions, without: Unseen | None
) -> dict[str, Any]:
    """How often a model's rows lie in the range that was calibrated without it."""
    if without is None or ours.guarded is None:
        return {}
    time, memory = ranges_without_the_model(rows, without)
    seconds = np.array([r.seconds or np.nan for r in rows])
    peaks = np.array([r.peak_memory or np.nan for r in rows])
    training = np.array([r.training for r in rows])
    time_held = _held(seconds / ours.seconds, time)
    chosen = {
        "coverage90": time_held,
        "coverage90_train": time_held[training],
        "coverage90_infer": time_held[~training],
        "coverage90_memory_rule": _held(peaks / ours.memory, memory),
        "coverage90_memory": _held(peaks / ours.guarded, _ranges_of_others(rows, peaks / ours.guarded)),
    }
    return {name: float(np.nanmean(held)) for name, held in chosen.items() if np.isfinite(held).any()}


def _ranges_of_others(rows: Sequence[MeasuredStep], ratio: Array) -> Array:
    """(low, high) of every row: what the ratios of the other models say, each model counting the same."""
    names = np.array([r.name for r in rows])
    ranges = {}
    for name in np.unique(names):
        others = (names != name) & np.isfinite(ratio)
        ranges[name] = conformal_interval(ratio[others], 0.9, names[others])
    return np.array([ranges[name] for name in names])


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
                figures[f"{mode}_step{suffix}_median_ape"] = float(np.median(error))
                figures[f"{mode}_step{suffix}_mean_ape"] = float(error.mean())
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
    everything: Sequence[MeasuredStep], rows: Sequence[MeasuredStep], ours: Predictions, shipped: bool
) -> dict[str, Any]:
    """The CPU rule's error, and whether it says anything about the GPU's for the same model."""
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
    for r, estimate in zip(rows, ours.seconds, strict=True):
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
    seconds = np.zeros(len(rows))
    for name in options.track(list(dict.fromkeys(r.name for r in rows)), "fitting the five-constant formula"):
        for training in (True, False):
            held_out = [i for i, r in enumerate(rows) if r.name == name and r.training == training]
            known = [r for r in rows if r.name != name and r.training == training and r.seconds]
            if held_out and known:
                constants = _fit_five_constants(known)
                seconds[held_out] = _five_constant_seconds(_columns([rows[i] for i in held_out]), constants)
    return seconds


def _fit_five_constants(known: Sequence[MeasuredStep]) -> Array:
    from scipy.optimize import minimize  # late, so that the fits above settle SciPy's threads

    truth = np.log([r.seconds or np.nan for r in known])
    columns = _columns(known)

    def loss(x: Array) -> float:
        return float(np.abs(np.log(_five_constant_seconds(columns, x)) - truth).mean())

    start = np.log([10e-6, 1.2, 130e12, 230e12, 23e12])
    best = minimize(loss, start, method="Nelder-Mead", options={"maxiter": 300, "xatol": 1e-3, "fatol": 1e-4})
    return np.asarray(best.x)


def _columns(rows: Sequence[MeasuredStep]) -> Array:
    """calls, FLOP, bytes, parameter bytes (training), half: one column per row."""
    return np.array([_row(r) for r in rows]).T


def _row(r: MeasuredStep) -> tuple[float, ...]:
    operators = [o for o in r.model.operators if r.training or o.phase == "forward"]
    flop = r.model.step_flop_per_sample if r.training else r.model.forward_flop_per_sample
    return (
        sum(o.calls for o in operators),
        flop * r.batch,
        sum(o.fixed_bytes + o.sample_bytes * r.batch for o in operators),
        r.model.parameter_bytes if r.training else 0.0,
        float(r.precision == "bf16"),
    )


def _five_constant_seconds(columns: Array, x: Array) -> Array:
    launch, half_launch, rate, half_rate, bandwidth = np.exp(x)
    calls, flop, traffic, parameters, half = columns
    host = launch * calls * np.where(half > 0, half_launch, 1.0)
    on_device = flop / np.where(half > 0, half_rate, rate) + traffic / bandwidth
    return np.asarray(np.maximum(host, on_device) + 5 * parameters / 4e12)


def _tables(rows: Sequence[MeasuredStep], ours: Predictions, baselines: dict[str, Any]) -> tuple[Table, ...]:
    figures = _time_figures(rows, ours.seconds)
    lines = []
    for key in (k.removesuffix("_median_ape") for k in figures if k.endswith("_median_ape")):
        rivals = [f"{b[f'{key}_median_ape']:.1%} / {b[f'{key}_mean_ape']:.1%}" for b in baselines.values()]
        own = f"{figures[f'{key}_median_ape']:.1%} / {figures[f'{key}_mean_ape']:.1%}"
        lines.append((key.replace("_", " "), own, *rivals))
    by_model = []
    for name in dict.fromkeys(r.name for r in rows):
        chosen = [i for i, r in enumerate(rows) if r.name == name]
        picked = [rows[i] for i in chosen]
        time_error = _time_errors(picked, ours.seconds[chosen], True)
        weighed = [i for i in chosen if rows[i].peak_memory]
        peaks = np.array([rows[i].peak_memory for i in weighed], dtype=float)
        by_model.append(
            (
                name,
                f"{np.median(time_error):.1%}" if time_error.size else "-",
                *(
                    f"{np.median(np.abs(memory[weighed] / peaks - 1)):.1%}" if weighed else "-"
                    for memory in (ours.memory, ours.memory if ours.guarded is None else ours.guarded)
                ),
            )
        )
    return (
        Table("Absolute percentage error, median / mean", ("", "analytic", *baselines), tuple(lines)),
        Table(
            "By model, median error",
            ("model", "training step", "peak memory, rule", "guarded"),
            tuple(by_model),
        ),
    )
