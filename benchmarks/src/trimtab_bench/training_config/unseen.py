"""Unseen jobs: each is left out in turn, and predicted from its local run and its other facts.

The thesis' second experiment (section 4.5.1), for all seven jobs: how well scores tell top configurations
from others (area under the ROC curve, over every configuration on offer; one that fails is no top one), and
the regret of following advice: the recommended configuration over the best, with no trial and after three. A
recommended configuration that fails counts as the dearest that runs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from trimtab.predict.fewshot.case import Array
from trimtab.predict.jobs.training_data import DataSet, Points
from trimtab.predict.jobs.training_model import StepBelief, StepTimeModel, StepTimeRule
from trimtab.tune.job_forecast import JobForecast
from trimtab.tune.searcher import STOP_BELOW, Choice, Searcher
from trimtab.tune.space import Observation, Space
from trimtab_bench.harness import BenchOptions, BenchPart, Key, ResultTable
from trimtab_bench.training_config.rivals import SEARCHES, Begin, Search, cherrypick
from trimtab_bench.training_config.seen import OBJECTIVES, OURS, RULE, THESIS
from trimtab_bench.training_config.thesis import (
    TOP_COST,
    TOP_TIME,
    ForestClassifier,
    ThesisNetwork,
    area_under_curve,
    is_top,
)

FOREST, OTHERS = "random forest", "as for others"
PUBLISHED = {"cost": {THESIS: 0.95, FOREST: 0.94}, "time": {THESIS: 0.95, FOREST: 0.88}}
"""Areas under the curve in the thesis, of one job left out (sections 4.5.1 and 4.5.2.1)."""

_QUICK_JOBS, _QUICK_EPOCHS = 2, 20
_DRAWS = 500

TRIALS = 3
MORE = 6
RIVALS: dict[str, Begin] = {
    **{name: begin for name, begin in SEARCHES.items() if name != OURS},
    "cherrypick": partial(cherrypick, stop_below=STOP_BELOW),
}
_PREDICTS = ("ernest",)
_SEEDS, _QUICK_SEEDS = 10, 2


class ScoredChoice(NamedTuple):
    """A score of each configuration, the higher the better, and the recommended one."""

    scores: Array
    chosen: int


Adviser = Callable[[DataSet, Points, Points, str], ScoredChoice]


def parts(options: BenchOptions, data: DataSet) -> Iterator[BenchPart]:
    for job in data.points.jobs[: _QUICK_JOBS if options.quick else None]:
        for objective in OBJECTIVES:
            for method in advisers(options.quick):
                run = partial(job_figures, data, job, objective, method, options.quick)
                yield BenchPart(("unseen", objective, method, job), run)


def advisers(quick: bool = False) -> dict[str, Adviser]:
    """Functions of the data, other jobs' points and the job's own configurations, by name."""
    return {
        OURS: _trimtab,
        THESIS: partial(_network, quick),
        FOREST: _forest,
        RULE: _rule,
        OTHERS: _as_for_others,
    }


def job_figures(
    data: DataSet, job: str, objective: str, method: str, quick: bool = False
) -> dict[str, float]:
    """One method with one job left out: area under the curve, and regret without a trial."""
    tested = data.points.of(job)
    advice = advisers(quick)[method](data, data.points.without(job), tested, objective)
    values = tested.target(objective)
    return {
        "auc": area_under_curve(is_top(values), advice.scores),
        "regret_0": float(worth(values)[advice.chosen] / np.nanmin(values)),
    }


def worth(values: Array) -> Array:
    """Measured dollars or seconds; a failed run counts as the most that was measured."""
    return np.where(np.isnan(values), np.nanmax(values), values)


def _trimtab(data: DataSet, others: Points, tested: Points, objective: str) -> ScoredChoice:
    """The configuration that `trimtab tune --trials 0` recommends; scores are the model's chances of top."""
    local = data.job(tested.job[0])
    belief = StepTimeModel.fitted(others, data.local).belief(local, tested.where)
    chosen = searcher_of(DataSet(others, data.local), tested, objective).recommended([])
    assert chosen is not None
    return ScoredChoice(chance_of_top(belief, _per_step_second(tested, objective)), chosen)


def searcher_of(others: DataSet, tested: Points, objective: str) -> Searcher:
    """The searcher of `trimtab tune` for a job of which `others` has the local run but no points."""
    space, steps = space_of(tested), tested.where.steps(tested.samples)
    forecast = JobForecast.of(space, tested.where, steps, others.job(tested.job[0]), others)
    return Searcher(space, objective, forecast)


def space_of(tested: Points) -> Space:
    """A job's configurations as a space to search."""
    where = tested.where
    names = tuple(where.name(row) for row in range(len(tested)))
    return Space(names, where.settings(), where.price_per_second)


def _per_step_second(tested: Points, objective: str) -> Array:
    """Dollars or seconds of the whole job for each second that a step takes."""
    steps = tested.where.steps(tested.samples)
    return np.asarray(steps * tested.where.price_per_second if objective == "cost" else steps)


def chance_of_top(belief: StepBelief, per_step_second: Array, seed: int = 0) -> Array:
    """Share of draws from a belief in which each configuration is a top one."""
    random = np.random.default_rng(seed)
    own = belief.covariance + belief.noise * np.eye(len(belief.mean))
    draws = random.multivariate_normal(belief.mean, own, _DRAWS, method="eigh")
    values = np.exp(draws) * per_step_second
    # One draw decides for all: if a configuration fits, so does any that was more likely to.
    fits = random.uniform(size=(_DRAWS, 1)) < belief.fits
    tops = np.stack([is_top(draw) for draw in np.where(fits, values, np.nan)])
    # Of those that never are, the better one is still the likelier.
    means = np.exp(belief.mean) * per_step_second
    expected = belief.fits * means + (1.0 - belief.fits) * means.max()
    order = np.argsort(np.argsort(expected))
    return np.asarray(tops.mean(axis=0) + 0.5 / _DRAWS * (1.0 - order / len(order)))


def _rule(data: DataSet, others: Points, tested: Points, objective: str) -> ScoredChoice:
    rule = StepTimeRule.of(data.job(tested.job[0]))
    values = rule.step_seconds(tested.where) * _per_step_second(tested, objective)
    return _highest(np.where(rule.fits(tested.where) > 0, -values, -np.inf))


def _network(quick: bool, data: DataSet, others: Points, tested: Points, objective: str) -> ScoredChoice:
    settings = TOP_COST if objective == "cost" else TOP_TIME
    if quick:
        settings = replace(settings, epochs=_QUICK_EPOCHS)
    return _highest(ThesisNetwork(settings).answers(others, tested, data.local))


def _forest(data: DataSet, others: Points, tested: Points, objective: str) -> ScoredChoice:
    return _highest(ForestClassifier().answers(others, tested, data.local, objective))


def _as_for_others(data: DataSet, others: Points, tested: Points, objective: str) -> ScoredChoice:
    """Mean log regret of other jobs with equal shape and workers, and a batch of equal rank."""
    times_best: dict[tuple[str, float, int], list[float]] = {}
    for job in others.jobs:
        points = others.of(job)
        values = worth(points.target(objective))
        for key, value in zip(_places(points), values / values.min(), strict=True):
            times_best.setdefault(key, []).append(float(np.log(value)))
    scores = [-float(np.mean(times_best.get(key, [np.inf]))) for key in _places(tested)]
    return _highest(np.array(scores))


def _places(points: Points) -> list[tuple[str, float, int]]:
    where = points.where
    batches = sorted(set(where.batch.tolist()))
    rank = [batches.index(batch) for batch in where.batch.tolist()]
    return list(zip(where.shape, where.workers.tolist(), rank, strict=True))


def _highest(scores: Array) -> ScoredChoice:
    return ScoredChoice(scores, int(scores.argmax()))


def _by_method(results: Mapping[Key, Any], section: str) -> dict[str, dict[str, Any]]:
    """Figures by objective, method and job, and their mean over jobs."""
    by_method: dict[str, dict[str, Any]] = {objective: {} for objective in OBJECTIVES}
    for key, result in results.items():
        if key[0] == section:
            by_method[key[1]].setdefault(key[2], {})[key[3]] = result
    for methods in by_method.values():
        for jobs in methods.values():
            names = next(iter(jobs.values()))
            jobs["mean"] = {name: float(np.mean([job[name] for job in jobs.values()])) for name in names}
    return by_method


def figures(results: Mapping[Key, Any]) -> dict[str, Any]:
    """The step-time model under the names of the goals; every method's, by job and in the mean."""
    by_method = _by_method(results, "unseen")
    cost, time = by_method["cost"][OURS]["mean"], by_method["time"][OURS]["mean"]
    return {
        "auc_cost": cost["auc"],
        "auc_time": time["auc"],
        "regret_0": cost["regret_0"],
        "regret_0_time": time["regret_0"],
        "methods": by_method,
    }


def tables(figures: Mapping[str, Any]) -> Iterator[ResultTable]:
    """Areas and regrets by job, one table for each objective."""
    titles = {
        "auc": "area under the ROC curve of top configurations",
        "regret_0": "recommended over best, no trials",
    }
    for objective, by_method in figures["methods"].items():
        jobs = list(next(iter(by_method.values())))
        for name, title in titles.items():
            rows = [
                (method, *(f"{by_job[job][name]:.3f}" for job in jobs))
                for method, by_job in by_method.items()
            ]
            if name == "auc":
                rows += [
                    (f"{method}, published", *[""] * (len(jobs) - 1), f"{area:.2f}")
                    for method, area in PUBLISHED[objective].items()
                ]
            yield ResultTable(f"Unseen jobs, {objective}: {title}", ("method", *jobs), rows)


# After trials. Trimtab begins where it would recommend without one. The rivals know nothing of other jobs or
# of the local run; they begin with three random trials, so theirs are means over seeds, also with the six
# trials that CherryPick wants at least. In the end Trimtab recommends the best of measured and believed,
# Ernest a configuration that it predicts to be better than all measured, the others the best measured one.


def trial_parts(options: BenchOptions, data: DataSet) -> Iterator[BenchPart]:
    """Every job left out, by ours and by each search."""
    last = options.seed + (_QUICK_SEEDS if options.quick else _SEEDS)
    for job in data.points.jobs[: _QUICK_JOBS if options.quick else None]:
        for objective in OBJECTIVES:
            yield BenchPart(("trials", objective, OURS, job), partial(our_trials, data, job, objective))
            for count, name in product((TRIALS, MORE), RIVALS):
                run = partial(search_trials, data, job, objective, name, count, range(options.seed, last))
                called = name if count == TRIALS else f"{name}, {count} trials"
                yield BenchPart(("trials", objective, called, job), run)


def our_trials(data: DataSet, job: str, objective: str) -> dict[str, float]:
    """Regret, dollars and seconds after the trials of `trimtab tune`."""
    tested = data.points.of(job)
    searcher = searcher_of(DataSet(data.points.without(job), data.local), tested, objective)
    trials = _tried(searcher, tested, TRIALS)
    chosen = searcher.recommended(trials)
    assert chosen is not None
    return _trial_figures(tested, objective, chosen, [trial.row for trial in trials])


def _tried(search: Search, tested: Points, count: int) -> list[Observation]:
    """Trials of a search, answered by measured points."""
    trials = list[Observation]()
    while len(trials) < count and isinstance(choice := search.next(trials), Choice):
        row = choice.row
        trials.append(Observation(row, float(tested.seconds[row]), bool(tested.ok[row])))
    return trials


def search_trials(
    data: DataSet, job: str, objective: str, method: str, count: int, seeds: Iterable[int]
) -> dict[str, float]:
    """Regret, dollars and seconds of a search that learns from its own trials only; means over seeds."""
    tested = data.points.of(job)
    space = space_of(tested)
    figures = []
    for seed in seeds:
        search = RIVALS[method](space, objective, (), seed)
        trials = _tried(search, tested, count)
        done = [trial for trial in trials if trial.ok]
        rows = np.array([trial.row for trial in done], int)
        values = space.values(objective, [trial.seconds for trial in done], rows)
        chosen = done[int(values.argmin())].row if done else trials[-1].row
        foreseen = search.next(trials)
        if method in _PREDICTS and isinstance(foreseen, Choice) and foreseen.expected_gain:
            chosen = foreseen.row
        figures.append(_trial_figures(tested, objective, chosen, [trial.row for trial in trials]))
    return {name: float(np.mean([scores[name] for scores in figures])) for name in figures[0]}


def _trial_figures(tested: Points, objective: str, chosen: int, tried: Sequence[int]) -> dict[str, float]:
    values = tested.target(objective)
    seconds = tested.trial_seconds[list(tried)]
    return {
        "regret_3": float(worth(values)[chosen] / np.nanmin(values)),
        "dollars": float((seconds * tested.where.price_per_second[list(tried)]).sum()),
        "seconds": float(seconds.sum()),
    }


def trial_figures(results: Mapping[Key, Any]) -> dict[str, Any]:
    """The searcher under the names of the goals; every method's, by job and in the mean."""
    by_method = _by_method(results, "trials")
    return {
        "regret_3": by_method["cost"][OURS]["mean"]["regret_3"],
        "regret_3_time": by_method["time"][OURS]["mean"]["regret_3"],
        "methods": by_method,
    }


def trial_tables(figures: Mapping[str, Any]) -> Iterator[ResultTable]:
    """Regrets by job and the cost of trials, one table for each objective."""
    for objective, by_method in figures["methods"].items():
        jobs = list(next(iter(by_method.values())))
        columns = {job: f"{{{job}[regret_3]:.3f}}" for job in jobs}
        columns |= {"$ in trials": "{mean[dollars]:.6f}", "s in trials": "{mean[seconds]:.0f}"}
        title = f"Unseen jobs, {objective}: recommended over best after {TRIALS} trials, or {MORE}"
        yield ResultTable.of(title, "method", by_method, columns)
