"""Seen jobs: a fifth of the points is left out at random, and every job is in both parts.

The thesis' first experiment (section 4.5.1): errors of dollars and seconds of a whole job, as root mean
squared error over the mean of the left-out points, and R². Means over splits, with the least and the most.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from trimtab.predict.fewshot.case import Array
from trimtab.predict.jobs.training_data import DataSet, Points
from trimtab.predict.jobs.training_model import StepTimeModel, StepTimeRule
from trimtab_bench.harness import BenchOptions, BenchPart, Key, ResultTable
from trimtab_bench.training_config.thesis import BASELINES, COST, TIME, ThesisNetwork

OBJECTIVES = ("cost", "time")
OURS, RULE, THESIS = "trimtab", "rule", "thesis network"
PUBLISHED = {"cost": {"rmse_over_mean": 0.25, "r2": 0.98}, "time": {"rmse_over_mean": 0.27, "r2": 0.99}}
"""The thesis' networks on its own points (section 4.5.1)."""

_SPLITS, _QUICK_SPLITS = 5, 1
_LEFT_OUT = 0.2
_QUICK_EPOCHS = 20

Answers = Callable[[Points, Points], Array]


def parts(options: BenchOptions, data: DataSet) -> Iterator[BenchPart]:
    for objective in OBJECTIVES:
        for method in methods(data, objective, options.quick):
            for seed in range(_QUICK_SPLITS if options.quick else _SPLITS):
                run = partial(split_figures, data, objective, method, options.seed + seed, options.quick)
                yield BenchPart(("seen", objective, method, str(seed)), run)


def methods(data: DataSet, objective: str, quick: bool = False) -> dict[str, Answers]:
    """By name: a function of training points and points to predict, to dollars or seconds of the latter."""
    network = COST if objective == "cost" else TIME
    if quick:
        network = replace(network, epochs=_QUICK_EPOCHS)
    return {
        OURS: partial(our_answers, data, objective),
        THESIS: partial(ThesisNetwork(network).answers, local=data.local),
        RULE: partial(_rule_answers, data, objective),
        **{
            model.name: partial(model.answers, local=data.local, objective=objective)
            for model in BASELINES[objective]
        },
    }


def split_figures(
    data: DataSet, objective: str, method: str, seed: int, quick: bool = False
) -> dict[str, float]:
    """One method on one split."""
    training, left_out = split(data.points.only(data.points.ok), seed)
    measured = left_out.target(objective)
    off = methods(data, objective, quick)[method](training, left_out) - measured
    squares = float(np.mean(off**2))
    return {
        "rmse_over_mean": float(np.sqrt(squares) / measured.mean()),
        "r2": float(1.0 - squares / measured.var()),
        "mape": float(np.mean(np.abs(off) / measured)),
    }


def split(points: Points, seed: int) -> tuple[Points, Points]:
    """Training points and the fifth that is left out."""
    order = np.random.default_rng(seed).permutation(len(points))
    count = round(_LEFT_OUT * len(points))
    return points.only(np.sort(order[count:])), points.only(np.sort(order[:count]))


def our_answers(data: DataSet, objective: str, training: Points, tested: Points) -> Array:
    """Predictions of the step-time model, fitted on training points that include the same jobs."""
    own = StepTimeModel.fitted(training, data.local)
    return _by_job(tested, objective, lambda job, rows: np.exp(own.belief(data.job(job), rows.where).mean))


def _rule_answers(data: DataSet, objective: str, training: Points, tested: Points) -> Array:
    return _by_job(
        tested, objective, lambda job, rows: StepTimeRule.of(data.job(job)).step_seconds(rows.where)
    )


def _by_job(tested: Points, objective: str, step_seconds: Callable[[str, Points], Array]) -> Array:
    """Seconds or dollars of the whole job from `step_seconds`, job by job."""
    values, jobs = np.zeros(len(tested)), np.array(tested.job)
    for job in tested.jobs:
        rows = tested.only(jobs == job)
        seconds = step_seconds(job, rows) * rows.where.steps(rows.samples)
        values[jobs == job] = seconds * rows.where.price_per_second if objective == "cost" else seconds
    return values


def figures(results: Mapping[Key, Any]) -> dict[str, Any]:
    """The step-time model under the names of the goals; every method's mean, least and most over splits."""
    by_method: dict[str, dict[str, Any]] = {objective: {} for objective in OBJECTIVES}
    for key, result in results.items():
        if key[0] == "seen":
            by_method[key[1]].setdefault(key[2], []).append(result)
    for methods in by_method.values():
        for method, splits in methods.items():
            columns = {name: [split[name] for split in splits] for name in splits[0]}
            methods[method] = {
                name: {"mean": float(np.mean(values)), "least": min(values), "most": max(values)}
                for name, values in columns.items()
            }
    own = {
        f"{objective}_{name}": by_method[objective][OURS][name]["mean"]
        for objective in OBJECTIVES
        for name in ("rmse_over_mean", "r2", "mape")
    }
    return {**own, "methods": by_method}


def tables(figures: Mapping[str, Any]) -> Iterator[ResultTable]:
    columns = {
        "RMSE / mean": "{rmse_over_mean[mean]:.1%}",
        "least to most": "{rmse_over_mean[least]:.1%} to {rmse_over_mean[most]:.1%}",
        "R²": "{r2[mean]:.4f}",
        "mean error": "{mape[mean]:.1%}",
    }
    for objective, by_method in figures["methods"].items():
        title = f"Seen jobs, {objective}: a fifth of the points left out"
        table = ResultTable.of(title, "method", by_method, columns)
        there = PUBLISHED[objective]
        published = ("published", f"{there['rmse_over_mean']:.0%}", "", f"{there['r2']:.2f}", "")
        yield replace(table, rows=[*table.rows, published])


def data_figures(data: DataSet) -> dict[str, Any]:
    """`noise`, and `step_error` of model and rule on jobs left out in turn, as the guard compares them."""
    backtest = StepTimeModel.fitted(data.points, data.local).backtest
    return {"noise": noise(data.points), "step_error": {"trimtab": backtest.model, "rule": backtest.rule}}


def noise(points: Points) -> float:
    """Standard deviation of log seconds between shapes of equal CPUs, which should take equally long."""
    alike: dict[tuple[str, float, float, float], list[float]] = {}
    for row in np.flatnonzero(points.ok):
        where = points.where
        key = (points.job[row], where.workers[row], where.batch[row], where.cpus[row])
        alike.setdefault(key, []).append(float(np.log(points.step_seconds[row])))
    return float(np.sqrt(np.mean([np.var(group, ddof=1) for group in alike.values() if len(group) > 1])))


def data_table(figures: Mapping[str, Any]) -> ResultTable:
    """Noise and errors of a step's time."""
    error = figures["step_error"]
    rows = (
        ("points", f"{figures['measured']}, {figures['ok']} of them ok"),
        ("shapes of equal CPUs differ by", f"{figures['noise']:.1%}"),
        ("a step's seconds on jobs left out, trimtab, mean error", f"{error['trimtab']:.1%}"),
        ("… the rule", f"{error['rule']:.1%}"),
    )
    return ResultTable("The data, and what can be said of a job without points", ("what", "figure"), rows)
