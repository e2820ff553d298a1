"""Jobs nobody has seen: each is left out in turn, and asked about by its local run and its other facts.

The thesis' second experiment (section 4.5.1), for all seven jobs: how well do scores tell top configurations
from others (area under the ROC curve, over every configuration on offer; one that fails is no top one)? And
what does it cost to follow advice: the recommended configuration over the best there is, with no trial and
after three. A recommended configuration that fails counts as the dearest that runs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from trimtab.predict.fewshot import Array
from trimtab.predict.jobs.training_data import DataSet, Points
from trimtab.predict.jobs.training_model import StepBelief, StepTimeModel, StepTimeRule
from trimtab.tune.job_forecast import JobForecast
from trimtab.tune.searcher import STOP_BELOW, Choice, Searcher
from trimtab.tune.space import Observation, Space
from trimtab_bench.harness import BenchOptions, Key, Part, Table
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


def _trimtab(data: DataSet, others: Points, asked: Points, objective: str) -> Advice:
    """The configuration that `trimtab tune --trials 0` recommends; scores are the model's chances of top."""
    local = data.job(asked.job[0])
    belief = StepTimeModel.fitted(others, data.local).belief(local, asked.where)
    chosen = searcher_of(DataSet(others, data.local), asked, objective).recommended([])
    assert chosen is not None
    return Advice(chance_of_top(belief, _per_step_second(asked, objective)), chosen)


def searcher_of(others: DataSet, asked: Points, objective: str) -> Searcher:
    """The searcher of `trimtab tune` for a job of which `others` has the local run but no points."""
    space, steps = space_of(asked), asked.where.steps(asked.samples)
    forecast = JobForecast.of(space, asked.where, steps, others.job(asked.job[0]), others)
    return Searcher(space, objective, forecast)


def space_of(asked: Points) -> Space:
    """A job's configurations as searches see them."""
    where = asked.where
    names = tuple(where.name(row) for row in range(len(asked)))
    return Space(names, where.settings(), where.price_per_second)


def _per_step_second(asked: Points, objective: str) -> Array:
    """Dollars or seconds of the whole job for each second that a step takes."""
    steps = asked.where.steps(asked.samples)
    return np.asarray(steps * asked.where.price_per_second if objective == "cost" else steps)


def chance_of_top(belief: StepBelief, per_step_second: Array, seed: int = 0) -> Array:
    """How often each configuration is a top one, over draws from a belief."""
    random = np.random.default_rng(seed)
    own = belief.covariance + belief.noise * np.eye(len(belief.mean))
    draws = random.multivariate_normal(belief.mean, own, _DRAWS, method="eigh")
    values = np.exp(draws) * per_step_second
    # One draw decides for all: if a configuration fits, so does any that was more likely to.
    fits = random.uniform(size=(_DRAWS, 1)) < belief.fits
    tops = np.stack([is_top(each) for each in np.where(fits, values, np.nan)])
    # Of those that never are, the better one is still the likelier.
    means = np.exp(belief.mean) * per_step_second
    expected = belief.fits * means + (1.0 - belief.fits) * means.max()
    order = np.argsort(np.argsort(expected))
    return np.asarray(tops.mean(axis=0) + 0.5 / _DRAWS * (1.0 - order / len(order)))


def _rule(data: DataSet, others: Points, asked: Points, objective: str) -> Advice:
    rule = StepTimeRule.of(data.job(asked.job[0]))
    values = rule.step_seconds(asked.where) * _per_step_second(asked, objective)
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
    """StepTimeModel under the names of the goals; every method's, by job and in the mean."""
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


# After trials. Trimtab begins where it would recommend without one. The rivals know nothing of other jobs or
# of the local run; they begin with three random trials, so theirs are means over seeds, also with the six
# trials that CherryPick wants at least. In the end Trimtab recommends the best of measured and believed,
# Ernest what it predicts to be better than all measured if there is one, the others the best of measured.


def trial_parts(options: BenchOptions, data: DataSet) -> Iterator[Part]:
    """Every job left out, by ours and by each search."""
    last = options.seed + (_QUICK_SEEDS if options.quick else _SEEDS)
    for job in data.points.jobs[: _QUICK_JOBS if options.quick else None]:
        for objective in OBJECTIVES:
            yield Part(("trials", objective, OURS, job), partial(our_trials, data, job, objective))
            for count, name in product((TRIALS, MORE), RIVALS):
                run = partial(search_trials, data, job, objective, name, count, range(options.seed, last))
                called = name if count == TRIALS else f"{name}, {count} trials"
                yield Part(("trials", objective, called, job), run)


def our_trials(data: DataSet, job: str, objective: str) -> dict[str, float]:
    """Regret, dollars and seconds after each trial."""
    asked = data.points.of(job)
    searcher = searcher_of(DataSet(data.points.without(job), data.local), asked, objective)
    seen = _tried(searcher, asked, TRIALS)
    chosen = searcher.recommended(seen)
    assert chosen is not None
    return _trial_figures(asked, objective, chosen, [one.row for one in seen])


def _tried(search: Search, asked: Points, count: int) -> list[Observation]:
    """Trials of a search, answered by measured points."""
    seen = list[Observation]()
    while len(seen) < count and isinstance(choice := search.next(seen), Choice):
        seen.append(Observation(choice.row, float(asked.seconds[choice.row]), bool(asked.ok[choice.row])))
    return seen


def search_trials(
    data: DataSet, job: str, objective: str, method: str, count: int, seeds: Iterable[int]
) -> dict[str, float]:
    """The same of a search that learns from its own trials only; means over seeds."""
    asked = data.points.of(job)
    found = [_searched(asked, objective, method, count, seed) for seed in seeds]
    return {name: float(np.mean([each[name] for each in found])) for name in found[0]}


def _searched(asked: Points, objective: str, method: str, count: int, seed: int) -> dict[str, float]:
    space = space_of(asked)
    search = RIVALS[method](space, objective, (), seed)
    seen = _tried(search, asked, count)
    tried = [one.row for one in seen]
    done = [one for one in seen if one.ok]
    values = space.values(objective, [one.seconds for one in done], np.array([one.row for one in done], int))
    chosen = done[int(values.argmin())].row if done else tried[-1]
    foreseen = search.next(seen)
    if method in _PREDICTS and isinstance(foreseen, Choice) and foreseen.expected_gain:
        chosen = foreseen.row
    return _trial_figures(asked, objective, chosen, tried)


def _trial_figures(asked: Points, objective: str, chosen: int, tried: Sequence[int]) -> dict[str, float]:
    values = asked.target(objective)
    seconds = asked.trial_seconds[list(tried)]
    return {
        "regret_3": float(worth(values)[chosen] / np.nanmin(values)),
        "dollars": float((seconds * asked.where.price_per_second[list(tried)]).sum()),
        "seconds": float(seconds.sum()),
    }


def trial_figures(found: Mapping[Key, Any]) -> dict[str, Any]:
    """StepTimeModel under the names of the goals; every method's, by job and in the mean."""
    by_method: dict[str, dict[str, Any]] = {objective: {} for objective in OBJECTIVES}
    for key, each in found.items():
        if key[0] == "trials":
            by_method[key[1]].setdefault(key[2], {})[key[3]] = each
    for methods in by_method.values():
        for each in methods.values():
            each["mean"] = {
                name: float(np.mean([one[name] for one in each.values()]))
                for name in ("regret_3", "dollars", "seconds")
            }
    return {
        "regret_3": by_method["cost"][OURS]["mean"]["regret_3"],
        "regret_3_time": by_method["time"][OURS]["mean"]["regret_3"],
        "methods": by_method,
    }


def trial_tables(figures: Mapping[str, Any]) -> Iterator[Table]:
    """Regrets by job and what was spent, one table for each objective."""
    for objective, by_method in figures["methods"].items():
        jobs = list(next(iter(by_method.values())))
        rows = [
            (
                method,
                *(f"{each[job]['regret_3']:.3f}" for job in jobs),
                f"{each['mean']['dollars']:.6f}",
                f"{each['mean']['seconds']:.0f}",
            )
            for method, each in by_method.items()
        ]
        title = f"Unseen jobs, {objective}: recommended over best after {TRIALS} trials, or {MORE}"
        yield Table(title, ("method", *jobs, "$ in trials", "s in trials"), tuple(rows))
