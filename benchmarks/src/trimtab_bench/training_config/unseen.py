"""Jobs nobody has seen: each is left out in turn, and asked about by its local run and its other facts.

The thesis' second experiment (section 4.5.1), for all seven jobs: how well do scores tell top configurations
from others (area under the ROC curve, over every configuration on offer; one that fails is no top one)? And
what does it cost to follow advice: the recommended configuration over the best there is, with no trial and
after three. A recommended configuration that fails counts as the dearest that runs.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from trimtab.predict.fewshot import Array
from trimtab.predict.jobs.training import (
    TOP_COST,
    TOP_TIME,
    DataSet,
    ForestClassifier,
    Ours,
    Points,
    Rule,
    ThesisNetwork,
    Wanted,
    area_under_curve,
    chance_of_top,
    is_top,
    recommended,
)
from trimtab_bench.kept import Key, Part
from trimtab_bench.options import BenchOptions
from trimtab_bench.result import Table
from trimtab_bench.training_config.seen import OBJECTIVES, OURS, RULE, THESIS

FOREST, OTHERS = "random forest", "as for others"
PUBLISHED = {"cost": {THESIS: 0.95, FOREST: 0.94}, "time": {THESIS: 0.95, FOREST: 0.88}}
"""Areas under the curve in the thesis, of one job left out (sections 4.5.1 and 4.5.2.1)."""

_QUICK_JOBS, _QUICK_EPOCHS = 2, 20


class Advice(NamedTuple):
    """How good each configuration is thought to be, the higher the better, and which one is recommended."""

    scores: Array
    chosen: int


Adviser = Callable[[DataSet, Points, Points, str], Advice]


def parts(options: BenchOptions, data: DataSet) -> Iterator[Part]:
    """Every method with every job left out."""
    for job in data.points.jobs[: _QUICK_JOBS if options.quick else None]:
        for objective in OBJECTIVES:
            for method in advisers(options.quick):
                run = partial(job_figures, data, job, objective, method, options.quick)
                yield Part(("unseen", objective, method, job), run)


def advisers(quick: bool = False) -> dict[str, Adviser]:
    """By name: from other jobs' points, and the job's own configurations, to advice."""
    return {
        OURS: _ours,
        THESIS: partial(_network, quick),
        FOREST: _forest,
        RULE: _rule,
        OTHERS: _as_for_others,
    }


def job_figures(
    data: DataSet, job: str, objective: str, method: str, quick: bool = False
) -> dict[str, float]:
    """One method with one job left out: area under the curve, and regret without a trial."""
    asked = data.points.of(job)
    advice = advisers(quick)[method](data, data.points.without(job), asked, objective)
    values = asked.target(objective)
    return {
        "auc": area_under_curve(is_top(values), advice.scores),
        "regret_0": float(worth(values)[advice.chosen] / np.nanmin(values)),
    }


def worth(values: Array) -> Array:
    """Measured dollars or seconds; what failed counts as the most that was measured."""
    return np.where(np.isnan(values), np.nanmax(values), values)


def _ours(data: DataSet, others: Points, asked: Points, objective: str) -> Advice:
    belief = Ours.fitted(others, data.local).belief(data.job(asked.job[0]), asked.where)
    wanted = Wanted(asked.where, float(asked.samples[0]), objective)
    return Advice(chance_of_top(belief, wanted), recommended(belief, wanted))


def _rule(data: DataSet, others: Points, asked: Points, objective: str) -> Advice:
    rule, wanted = Rule.of(data.job(asked.job[0])), Wanted(asked.where, float(asked.samples[0]), objective)
    values = rule.step_seconds(asked.where) * wanted.per_step_second
    return _highest(np.where(rule.fits(asked.where) > 0, -values, -np.inf))


def _network(quick: bool, data: DataSet, others: Points, asked: Points, objective: str) -> Advice:
    settings = TOP_COST if objective == "cost" else TOP_TIME
    if quick:
        settings = replace(settings, epochs=_QUICK_EPOCHS)
    return _highest(ThesisNetwork(settings).answers(others, asked, data.local))


def _forest(data: DataSet, others: Points, asked: Points, objective: str) -> Advice:
    return _highest(ForestClassifier().answers(others, asked, data.local, objective))


def _as_for_others(data: DataSet, others: Points, asked: Points, objective: str) -> Advice:
    """What was best for other jobs, on average: the same shape and workers, the batch of the same rank."""
    times_best: dict[tuple[str, float, int], list[float]] = {}
    for job in others.jobs:
        points = others.of(job)
        values = worth(points.target(objective))
        for key, value in zip(_places(points), values / values.min(), strict=True):
            times_best.setdefault(key, []).append(float(np.log(value)))
    scores = [-float(np.mean(times_best.get(key, [np.inf]))) for key in _places(asked)]
    return _highest(np.array(scores))


def _places(points: Points) -> list[tuple[str, float, int]]:
    where = points.where
    batches = sorted(set(where.batch.tolist()))
    rank = [batches.index(batch) for batch in where.batch.tolist()]
    return list(zip(where.shape, where.workers.tolist(), rank, strict=True))


def _highest(scores: Array) -> Advice:
    return Advice(scores, int(scores.argmax()))


def figures(found: Mapping[Key, Any]) -> dict[str, Any]:
    """Ours under the names of the goals; every method's, by job and in the mean."""
    by_method: dict[str, dict[str, Any]] = {objective: {} for objective in OBJECTIVES}
    for key, each in found.items():
        if key[0] == "unseen":
            by_method[key[1]].setdefault(key[2], {})[key[3]] = each
    for methods in by_method.values():
        for each in methods.values():
            each["mean"] = {
                name: float(np.mean([one[name] for one in each.values()])) for name in ("auc", "regret_0")
            }
    return {
        "auc_cost": by_method["cost"][OURS]["mean"]["auc"],
        "auc_time": by_method["time"][OURS]["mean"]["auc"],
        "regret_0": by_method["cost"][OURS]["mean"]["regret_0"],
        "regret_0_time": by_method["time"][OURS]["mean"]["regret_0"],
        "methods": by_method,
    }


def tables(figures: Mapping[str, Any]) -> Iterator[Table]:
    """Areas and regrets by job, one table for each objective."""
    for objective, by_method in figures["methods"].items():
        jobs = list(next(iter(by_method.values())))
        for name, title, digits in (
            ("auc", "area under the ROC curve of top configurations", 3),
            ("regret_0", "recommended over best, no trials", 3),
        ):
            rows = [
                (method, *(f"{each[job][name]:.{digits}f}" for job in jobs))
                for method, each in by_method.items()
            ]
            if name == "auc":
                rows += [
                    (f"{who}, published", *[""] * (len(jobs) - 1), f"{area:.2f}")
                    for who, area in PUBLISHED[objective].items()
                ]
            yield Table(f"Unseen jobs, {objective}: {title}", ("method", *jobs), tuple(rows))
