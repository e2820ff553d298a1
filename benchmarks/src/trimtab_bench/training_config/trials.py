"""Jobs nobody has seen, with trials: what three of them bring, and what they cost.

Ours begins where it would recommend without a trial. The searches know nothing of other jobs or of the local
run; they begin with three random trials, so theirs are means over seeds, also with the six trials that
CherryPick wants at least. In the end ours recommends the best of measured and believed, Ernest what it
predicts to be better than all measured if there is such a one, the others the best of measured.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import trimtab.tune as tuning
from trimtab.predict.jobs.training import DataSet, Ours, Points, Trial, Wanted, next_trial, recommended
from trimtab.tune import METHODS, Choice, Observation, Space, best_row
from trimtab_bench.kept import Key, Part
from trimtab_bench.options import BenchOptions
from trimtab_bench.result import Table
from trimtab_bench.training_config.seen import OBJECTIVES, OURS
from trimtab_bench.training_config.unseen import worth

TRIALS = 3
MORE = 6
SEARCHES = ("random", "cherrypick", "trees", "ernest")
_PREDICTS = ("ernest",)
_SEEDS, _QUICK_SEEDS, _QUICK_JOBS = 10, 2, 2


def parts(options: BenchOptions, data: DataSet) -> Iterator[Part]:
    """Every job left out, by ours and by each search."""
    last = options.seed + (_QUICK_SEEDS if options.quick else _SEEDS)
    code = _code_of_searches()
    for job in data.points.jobs[: _QUICK_JOBS if options.quick else None]:
        for objective in OBJECTIVES:
            yield Part(("trials", objective, OURS, job), partial(our_trials, data, job, objective))
            for count, name in product((TRIALS, MORE), SEARCHES):
                run = partial(search_trials, data, job, objective, name, count, range(options.seed, last))
                called = name if count == TRIALS else f"{name}, {count} trials"
                yield Part(("trials", objective, called, job), run, code)


def _code_of_searches() -> str:
    """A digest: what is kept of them is theirs as they are."""
    digest = hashlib.sha256()
    for path in sorted(Path(tuning.__path__[0]).rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def our_trials(data: DataSet, job: str, objective: str) -> dict[str, float]:
    """Regret, dollars and seconds after each trial."""
    asked, local = data.points.of(job), data.job(job)
    ours = Ours.fitted(data.points.without(job), data.local)
    wanted = Wanted(asked.where, float(asked.samples[0]), objective)
    trials = list[Trial]()
    for _ in range(TRIALS):
        row, _ = next_trial(ours.belief(local, asked.where, trials), wanted, trials)
        trials.append(Trial(row, float(asked.step_seconds[row]), bool(asked.ok[row])))
    chosen = recommended(ours.belief(local, asked.where, trials), wanted, trials)
    return _figures(asked, objective, chosen, [trial.row for trial in trials])


def search_trials(
    data: DataSet, job: str, objective: str, method: str, count: int, seeds: Iterable[int]
) -> dict[str, float]:
    """The same of a search that learns from its own trials only; means over seeds."""
    asked = data.points.of(job)
    found = [_searched(asked, objective, method, count, seed) for seed in seeds]
    return {name: float(np.mean([each[name] for each in found])) for name in found[0]}


def _searched(asked: Points, objective: str, method: str, count: int, seed: int) -> dict[str, float]:
    space = space_of(asked)
    search = METHODS[method].begin(space, objective, (), seed)
    seen = list[Observation]()
    for _ in range(count):
        choice = search.next(seen)
        if not isinstance(choice, Choice):
            break
        seen.append(Observation(choice.row, float(asked.seconds[choice.row]), bool(asked.ok[choice.row])))
    tried = [one.row for one in seen]
    chosen = best_row(space, objective, seen)
    foreseen = search.next(seen)
    if method in _PREDICTS and isinstance(foreseen, Choice) and foreseen.expected_gain:
        chosen = foreseen.row
    return _figures(asked, objective, tried[-1] if chosen is None else chosen, tried)


def space_of(asked: Points) -> Space:
    """A job's configurations as searches see them."""
    where = asked.where
    names = tuple(where.name(row) for row in range(len(asked)))
    return Space(names, where.settings(), where.price_per_second)


def _figures(asked: Points, objective: str, chosen: int, tried: Sequence[int]) -> dict[str, float]:
    values = asked.target(objective)
    seconds = asked.trial_seconds[list(tried)]
    return {
        "regret_3": float(worth(values)[chosen] / np.nanmin(values)),
        "dollars": float((seconds * asked.where.price_per_second[list(tried)]).sum()),
        "seconds": float(seconds.sum()),
    }


def figures(found: Mapping[Key, Any]) -> dict[str, Any]:
    """Ours under the names of the goals; every method's, by job and in the mean."""
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


def tables(figures: Mapping[str, Any]) -> Iterator[Table]:
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
