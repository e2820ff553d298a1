"""Jobs that were seen: a fifth of the points is left out at random, and every job is in both parts.

The thesis' first experiment (section 4.5.1): how far off are dollars and seconds of a whole job, as root mean
squared error over the mean of the left-out points, and R²? Means over splits, with the least and the most.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from trimtab.predict.fewshot import Array
from trimtab.predict.jobs.training_data import DataSet, Points
from trimtab.predict.jobs.training_model import StepTimeModel, StepTimeRule
from trimtab_bench.harness import BenchOptions, Key, Part, Table
from trimtab_bench.training_config.thesis import BASELINES, COST, TIME, ThesisNetwork

OBJECTIVES = ("cost", "time")
OURS, RULE, THESIS = "trimtab", "rule", "thesis network"
PUBLISHED = {
    "cost": {"rmse_over_mean": 0.25, "r2": 0.98},
    "time": {"rmse_over_mean": 0.27, "r2": 0.99},
}
"""The thesis' networks on its own points (section 4.5.1)."""

_SPLITS, _QUICK_SPLITS = 5, 1
_LEFT_OUT = 0.2
_QUICK_EPOCHS = 20

Answers = Callable[[Points, Points], Array]


def parts(options: BenchOptions, data: DataSet) -> Iterator[Part]:
    """Every method on every split."""
    for objective in OBJECTIVES:
        for method in methods(data, objective, options.quick):
            for seed in range(_QUICK_SPLITS if options.quick else _SPLITS):
                run = partial(split_figures, data, objective, method, options.seed + seed, options.quick)
                yield Part(("seen", objective, method, str(seed)), run)


def methods(data: DataSet, objective: str, quick: bool = False) -> dict[str, Answers]:
    """By name: from training points and those asked about to dollars or seconds of the latter."""
    network = COST if objective == "cost" else TIME
    if quick:
        network = replace(network, epochs=_QUICK_EPOCHS)
    found: dict[str, Answers] = {
        OURS: partial(our_answers, data, objective),
        THESIS: partial(ThesisNetwork(network).answers, local=data.local),
        RULE: partial(_rule_answers, data, objective),
    }
    for model in BASELINES[objective]:
        found[model.name] = partial(model.answers, local=data.local, objective=objective)
    return found


def split_figures(
    data: DataSet, objective: str, method: str, seed: int, quick: bool = False
) -> dict[str, float]:
    """One method on one split."""
    training, asked = split(data.points.only(data.points.ok), seed)
    measured = asked.target(objective)
    off = methods(data, objective, quick)[method](training, asked) - measured
    squares = float(np.mean(off**2))
    return {
        "rmse_over_mean": float(np.sqrt(squares) / measured.mean()),
        "r2": float(1.0 - squares / measured.var()),
        "mape": float(np.mean(np.abs(off) / measured)),
    }


def split(points: Points, seed: int) -> tuple[Points, Points]:
    """Training points and the fifth that is asked about."""
    order = np.random.default_rng(seed).permutation(len(points))
    count = round(_LEFT_OUT * len(points))
    return points.only(np.sort(order[count:])), points.only(np.sort(order[:count]))


def our_answers(data: DataSet, objective: str, training: Points, asked: Points) -> Array:
    """What was learned from the training points, those of the same job among them."""
    ours = StepTimeModel.fitted(training, data.local)
    return _by_job(asked, objective, lambda job, rows: np.exp(ours.belief(data.job(job), rows.where).mean))


def _rule_answers(data: DataSet, objective: str, training: Points, asked: Points) -> Array:
    return _by_job(
        asked, objective, lambda job, rows: StepTimeRule.of(data.job(job)).step_seconds(rows.where)
    )


def _by_job(asked: Points, objective: str, step_seconds: Callable[[str, Points], Array]) -> Array:
    """Seconds of a step, asked job by job, as seconds or dollars of the whole job."""
    found, whose = np.zeros(len(asked)), np.array(asked.job)
    for job in asked.jobs:
        rows = asked.only(whose == job)
        seconds = step_seconds(job, rows) * rows.where.steps(rows.samples)
        found[whose == job] = seconds * rows.where.price_per_second if objective == "cost" else seconds
    return found


def figures(found: Mapping[Key, Any]) -> dict[str, Any]:
    """StepTimeModel under the names of the goals, and every method's mean, least and most over the splits."""
    by_method: dict[str, dict[str, Any]] = {objective: {} for objective in OBJECTIVES}
    for key, each in found.items():
        if key[0] == "seen":
            by_method[key[1]].setdefault(key[2], []).append(each)
    summed = {
        objective: {name: _over_splits(each) for name, each in methods.items()}
        for objective, methods in by_method.items()
    }
    ours = {
        f"{objective}_{name}": summed[objective][OURS][name]["mean"]
        for objective in OBJECTIVES
        for name in ("rmse_over_mean", "r2", "mape")
    }
    return {**ours, "methods": summed}


def _over_splits(found: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    return {
        name: {
            "mean": float(np.mean([each[name] for each in found])),
            "least": min(each[name] for each in found),
            "most": max(each[name] for each in found),
        }
        for name in found[0]
    }


def tables(figures: Mapping[str, Any]) -> Iterator[Table]:
    """One for cost and one for time."""
    heads = ("method", "RMSE / mean", "least to most", "R²", "mean error")
    for objective, by_method in figures["methods"].items():
        rows = [_row(name, each) for name, each in by_method.items()]
        there = PUBLISHED[objective]
        rows.append(("published", f"{there['rmse_over_mean']:.0%}", "", f"{there['r2']:.2f}", ""))
        yield Table(f"Seen jobs, {objective}: a fifth of the points left out", heads, tuple(rows))


def _row(name: str, each: Mapping[str, Mapping[str, float]]) -> tuple[str, ...]:
    error = each["rmse_over_mean"]
    return (
        name,
        f"{error['mean']:.1%}",
        f"{error['least']:.1%} to {error['most']:.1%}",
        f"{each['r2']['mean']:.4f}",
        f"{each['mape']['mean']:.1%}",
    )


def data_figures(data: DataSet) -> dict[str, Any]:
    """`noise`, and `step_error` of either on jobs left out in turn, as the guard compares them."""
    backtest = StepTimeModel.fitted(data.points, data.local).backtest
    return {
        "noise": noise(data.points),
        "step_error": {"trimtab": backtest.model, "rule": backtest.rule},
    }


def noise(points: Points) -> float:
    """Standard deviation of log seconds between shapes of equal CPUs, which should take equally long."""
    alike: dict[tuple[str, float, float, float], list[float]] = {}
    for row in np.flatnonzero(points.ok):
        where = points.where
        key = (points.job[row], where.workers[row], where.batch[row], where.cpus[row])
        alike.setdefault(key, []).append(float(np.log(points.step_seconds[row])))
    return float(np.sqrt(np.mean([np.var(each, ddof=1) for each in alike.values() if len(each) > 1])))


def data_table(figures: Mapping[str, Any]) -> Table:
    """Noise and errors of a step's time."""
    error = figures["step_error"]
    rows = (
        ("points", f"{figures['measured']}, {figures['ok']} of them ok"),
        ("shapes of equal CPUs differ by", f"{figures['noise']:.1%}"),
        ("a step's seconds on jobs left out, trimtab, mean error", f"{error['trimtab']:.1%}"),
        ("… the rule", f"{error['rule']:.1%}"),
    )
    return Table("The data, and what can be said of a job without points", ("what", "figure"), rows)
