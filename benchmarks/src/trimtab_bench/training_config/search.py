"""Searches of published measurements of workloads: found over optimal after so many evaluations.

Multicloud and scout's clusters, dollars and seconds, ten seeds. The searched workload's task or program is
left out of what Trimtab learns from; the rivals learn from nothing. A failed run counts as an evaluation and
finds nothing; as long as nothing completed, the worst completed run counts as found. No search stops early
here; when each would have stopped by CherryPick's rule is reported too.
"""

import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.predict.fewshot.case import METRICS, Case, Corpus
from trimtab.predict.fewshot.datasets import read_multicloud, read_scout
from trimtab.tune import other_workloads, searcher, space as tune_space
from trimtab.tune.searcher import STOP_BELOW, STOP_FROM, Choice
from trimtab.tune.space import Observation, Space
from trimtab_bench.harness import BenchOptions, BenchPart, Kept, Key, ResultTable, finish, two_processes
from trimtab_bench.training_config import rivals
from trimtab_bench.training_config.rivals import SEARCHES, Search
from trimtab_bench.training_config.search_tables import (
    best_first_choices,
    first_choices_table,
    search_goals,
    search_tables,
)

BUDGETS = (1, 3, 6, 11, 22)
TARGETS = ("cost", "time")
DATA: dict[str, Callable[[Path], Corpus]] = {"multicloud": read_multicloud, "scout": read_scout}
SKIPPED = "needs measurements of others: --data FOLDER with multicloud and scout in it"
_SEEDS, _QUICK_SEEDS, _QUICK_WORKLOADS = 10, 1, 3


def search_section(options: BenchOptions) -> tuple[dict[str, Any], tuple[ResultTable, ...]]:
    """Figures `search`, `spending`, `stopped`, `search_goals` and `hindsight`, and their tables."""
    if options.data is None:
        return {"search": {}, "search_skipped": SKIPPED}, ()
    parts = list(_parts(options, options.data))
    shared = [Path(__file__), Path(str(tune_space.__file__))]  # methods have versions of their own
    measured = [path for name in DATA for path in sorted((options.data / name).glob("*.csv*"))]
    kept = Kept.of("training-config-search", (options.quick, options.seed), [*shared, *measured])
    with two_processes() as pool, options.progress(len(parts), "searching") as announce:
        figures = put_together(finish(parts, kept, announce, pool))
    completed = {name: [case for case in _corpus(name, options.data).cases if case.ok.any()] for name in DATA}
    spaces = {name: [(space_of(case), case) for case in cases] for name, cases in completed.items()}
    figures["hindsight"] = best_first_choices(spaces)
    return figures, (*search_tables(figures, BUDGETS), first_choices_table(figures["hindsight"]))


def _parts(options: BenchOptions, data: Path) -> Iterator[BenchPart]:
    """A part is a workload searched for a target by a method, with every seed."""
    seeds = range(options.seed, options.seed + (_QUICK_SEEDS if options.quick else _SEEDS))
    for name in DATA:
        cases = [case for case in _corpus(name, data).cases if case.ok.any()]
        for case in cases[: _QUICK_WORKLOADS if options.quick else None]:
            for target in TARGETS:
                for method in SEARCHES:
                    run = partial(searched, name, data, case.name, target, method, tuple(seeds))
                    yield BenchPart(("search", name, target, method, case.name), run, _version(method))


@cache
def _corpus(name: str, data: Path) -> Corpus:
    return DATA[name](data)


@dataclass(frozen=True, slots=True, eq=False)
class SearchHistory:
    """Progress of one search, trial by trial."""

    found: Sequence[float]  # the best so far over the optimum
    dollars: Sequence[float]  # spent so far
    seconds: Sequence[float]
    gains: Sequence[float | None]  # what each trial was expected to bring

    def stopped(self) -> int | None:
        """After how many trials CherryPick's rule says to stop; None if never, or the method does not say."""
        for tried, gain in enumerate(self.gains):
            if gain is not None and tried >= STOP_FROM and gain < STOP_BELOW:
                return tried
        return None


def searched(
    name: str, data: Path, workload: str, target: str, method: str, seeds: Sequence[int]
) -> dict[str, Any]:
    """One workload, means over seeds: best found and spending after every budget, and when to stop."""
    cases = _corpus(name, data).cases
    case = next(case for case in cases if case.name == workload)
    others = [other for other in cases if other.application != case.application]
    space = space_of(case)
    histories = [
        play(
            SEARCHES[method](space, target, others, _draw(workload, seed)), space, case, target, max(BUDGETS)
        )
        for seed in seeds
    ]
    stops = [(history, history.stopped() or len(history.found)) for history in histories]
    return {
        **{
            name: [
                float(np.mean([getattr(history, name)[budget - 1] for history in histories]))
                for budget in BUDGETS
            ]
            for name in ("found", "dollars", "seconds")
        },
        "stop_trials": float(np.mean([trials for _, trials in stops])),
        "stop_found": float(np.mean([history.found[trials - 1] for history, trials in stops])),
        "stop_dollars": float(np.mean([history.dollars[trials - 1] for history, trials in stops])),
        "best_dollars": float(space.values("cost", case.seconds)[case.ok].min()),
        "best_seconds": float(case.seconds[case.ok].min()),
    }


def _draw(workload: str, seed: int) -> int:
    """A seed for each workload, so that a lucky start is not shared by all."""
    return int.from_bytes(hashlib.sha256(f"{workload} {seed}".encode()).digest()[:4], "big")


def space_of(case: Case) -> Space:
    """Configurations that a case was measured on; its words are its name's without the application's."""
    price = case.setting("nodes") * case.setting("price_per_hour") / 3600.0
    words = frozenset(case.name.split("-")) - frozenset(case.application.split("-"))
    return Space(case.configurations, case.settings, price, words)


def play(search: Search, space: Space, case: Case, target: str, budget: int) -> SearchHistory:
    """Search with measured runs in place of trials; never more trials than there are configurations."""
    values = space.values(target, case.seconds)
    optimum, best = float(values[case.ok].min()), float(values[case.ok].max())
    trials, found, gains = list[Observation](), list[float](), list[float | None]()
    while len(trials) < min(budget, len(space)):
        choice = search.next(trials)
        if not isinstance(choice, Choice):
            break
        row = choice.row
        metrics = dict(zip(METRICS, case.metrics[row].tolist(), strict=True))
        known = {name: value for name, value in metrics.items() if not np.isnan(value)}
        trials.append(Observation(row, float(case.seconds[row]), bool(case.ok[row]), metrics=known))
        if trials[-1].ok:
            best = min(best, float(values[row]))
        found.append(best / optimum)
        gains.append(choice.expected_gain)
    rows = [trial.row for trial in trials]
    padding = budget - len(rows)
    spent = np.nan_to_num(case.seconds[rows])
    return SearchHistory(
        found + found[-1:] * padding,
        np.pad(np.cumsum(spent * space.price_per_second[rows]), (0, padding), "edge").tolist(),
        np.pad(np.cumsum(spent), (0, padding), "edge").tolist(),
        gains,
    )


def put_together(results: Mapping[Key, Mapping[str, Any]]) -> dict[str, Any]:
    """Means over workloads: found and spent by budget, and when each search would have stopped."""
    grouped: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for (_, data, target, method, _), result in results.items():
        grouped.setdefault((data, target, method), []).append(result)
    figures: dict[str, Any] = {"search": {}, "spending": {}, "stopped": {}}
    for (data, target, method), group in grouped.items():
        spending = {unit: _mean([one[unit] for one in group]) for unit in ("dollars", "seconds")}
        for unit in ("dollars", "seconds"):
            ratios = [np.divide(one[unit], one[f"best_{unit}"]) for one in group]
            spending[f"{unit}_over_best"] = _mean(ratios)
        means = {
            "search": _mean([one["found"] for one in group]),
            "spending": spending,
            "stopped": {
                name: _mean([one[f"stop_{name}"] for one in group]) for name in ("trials", "found", "dollars")
            },
        }
        for section, mean in means.items():
            figures[section].setdefault(data, {}).setdefault(target, {})[method] = mean
    return figures | {"search_goals": search_goals(figures["search"], BUDGETS)}


def _mean(values: Sequence[Any]) -> Any:
    return np.mean(values, axis=0).tolist()


def _version(method: str) -> str:
    modules = (searcher, other_workloads) if method == "trimtab" else (rivals,)
    code = "".join(inspect.getsource(module) for module in modules)
    return hashlib.sha256(code.encode()).hexdigest()[:16]
