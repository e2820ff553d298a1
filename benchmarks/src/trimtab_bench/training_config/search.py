"""Searches of published measurements of workloads: found over optimal after so many evaluations.

Multicloud and scout's clusters, dollars and seconds, ten seeds. The searched workload's task or program is
left out of what Trimtab learns from; the rivals learn from nothing. A failed run counts as an evaluation and
finds nothing; as long as nothing completed, the worst completed run counts as found. No search stops early
here; when each would have stopped by CherryPick's rule is reported beside it.
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
from trimtab.tune import other_workloads, searcher
from trimtab.tune.searcher import STOP_BELOW, STOP_FROM, Choice
from trimtab.tune.space import Observation, Space, Trials
from trimtab_bench.harness import BenchOptions, Kept, Key, Part, Table, done_side_by_side
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


def search_section(options: BenchOptions) -> tuple[dict[str, Any], tuple[Table, ...]]:
    """Figures `search`, `spending`, `stopped`, `search_goals` and `hindsight`, and their tables."""
    if options.data is None:
        return {"search": {}, "search_skipped": SKIPPED}, ()
    parts = list(_parts(options, options.data))
    kept = Kept.of("training-config-search", _made_from(options, options.data))
    with options.progress(len(parts), "searching") as tell:
        figures = put_together(done_side_by_side(parts, kept, tell))
    completed = {name: [case for case in _corpus(name, options.data).cases if case.ok.any()] for name in DATA}
    spaces = {name: [(space_of(case), case) for case in cases] for name, cases in completed.items()}
    figures["hindsight"] = best_first_choices(spaces)
    return figures, (*search_tables(figures, BUDGETS), first_choices_table(figures["hindsight"]))


def _parts(options: BenchOptions, data: Path) -> Iterator[Part]:
    """A part is a workload searched for a target by a method, with every seed."""
    seeds = range(options.seed, options.seed + (_QUICK_SEEDS if options.quick else _SEEDS))
    for name in DATA:
        cases = [case for case in _corpus(name, data).cases if case.ok.any()]
        for case in cases[: _QUICK_WORKLOADS if options.quick else None]:
            for target in TARGETS:
                for method in SEARCHES:
                    run = partial(searched, name, data, case.name, target, method, tuple(seeds))
                    yield Part(("search", name, target, method, case.name), run, _version(method))


@cache
def _corpus(name: str, data: Path) -> Corpus:
    return DATA[name](data)


@dataclass(frozen=True, slots=True, eq=False)
class Session:
    """What one search met, trial by trial."""

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
    """One workload: over the seeds, after every budget, what was found and spent; and when to stop."""
    cases = _corpus(name, data).cases
    case = next(each for each in cases if each.name == workload)
    others = [each for each in cases if each.application != case.application]
    space = space_of(case)
    sessions = []
    for seed in seeds:
        search = SEARCHES[method](space, target, others, _draw(workload, seed))
        sessions.append(play(search, space, case, target, max(BUDGETS)))
    stops = [(each, each.stopped() or len(each.found)) for each in sessions]
    return {
        **{
            what: [
                float(np.mean([getattr(each, what)[budget - 1] for each in sessions])) for budget in BUDGETS
            ]
            for what in ("found", "dollars", "seconds")
        },
        "stop_trials": float(np.mean([trials for _, trials in stops])),
        "stop_found": float(np.mean([each.found[trials - 1] for each, trials in stops])),
        "stop_dollars": float(np.mean([each.dollars[trials - 1] for each, trials in stops])),
        "best_dollars": float(space.values("cost", case.seconds)[case.ok].min()),
        "best_seconds": float(case.seconds[case.ok].min()),
    }


def _draw(workload: str, seed: int) -> int:
    """A seed of the workload's own, so that no lucky start is every workload's."""
    return int.from_bytes(hashlib.sha256(f"{workload} {seed}".encode()).digest()[:4], "big")


def space_of(case: Case) -> Space:
    """The configurations it was measured on; its words are those of its name but for the application's."""
    price = case.setting("nodes") * case.setting("price_per_hour") / 3600.0
    words = frozenset(case.name.split("-")) - frozenset(case.application.split("-"))
    return Space(case.configurations, case.settings, price, words)


def play(search: Search, space: Space, case: Case, target: str, budget: int) -> Session:
    """Search with measured runs in place of trials; never more trials than there are configurations."""
    values = space.values(target, case.seconds)
    optimum, best = float(values[case.ok].min()), float(values[case.ok].max())
    seen, found, gains = list[Observation](), list[float](), list[float | None]()
    while len(seen) < min(budget, len(space)):
        choice = search.next(seen)
        if not isinstance(choice, Choice):
            break
        seen.append(_observed(case, choice.row))
        if seen[-1].ok:
            best = min(best, float(values[choice.row]))
        found.append(best / optimum)
        gains.append(choice.expected_gain)
    rows = [one.row for one in seen]
    padding = budget - len(rows)
    spent = np.nan_to_num(case.seconds[rows])
    return Session(
        found + found[-1:] * padding,
        np.pad(np.cumsum(spent * space.price_per_second[rows]), (0, padding), "edge").tolist(),
        np.pad(np.cumsum(spent), (0, padding), "edge").tolist(),
        gains,
    )


def _observed(case: Case, row: int) -> Observation:
    shown = {
        name: float(value)
        for name, value in zip(METRICS, case.metrics[row], strict=True)
        if not np.isnan(value)
    }
    return Observation(row, float(case.seconds[row]), bool(case.ok[row]), metrics=shown)


def put_together(found: Mapping[Key, Mapping[str, Any]]) -> dict[str, Any]:
    """Means over workloads: found and spent by budget, and when each would have stopped."""
    grouped: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for (_, data, target, method, _), each in found.items():
        grouped.setdefault((data, target, method), []).append(each)
    search: dict[str, Any] = {}
    spending: dict[str, Any] = {}
    stopped: dict[str, Any] = {}
    for (data, target, method), group in grouped.items():
        search.setdefault(data, {}).setdefault(target, {})[method] = _mean([one["found"] for one in group])
        spending.setdefault(data, {}).setdefault(target, {})[method] = {
            what: _mean([one[what] for one in group]) for what in ("dollars", "seconds")
        } | {
            f"{what}_over_best": _mean([np.divide(one[what], one[f"best_{what}"]) for one in group])
            for what in ("dollars", "seconds")
        }
        stopped.setdefault(data, {}).setdefault(target, {})[method] = {
            what: _mean([one[f"stop_{what}"] for one in group]) for what in ("trials", "found", "dollars")
        }
    return {
        "search": search,
        "spending": spending,
        "stopped": stopped,
        "search_goals": search_goals(search, BUDGETS),
    }


def _mean(values: Sequence[Any]) -> Any:
    return np.mean(values, axis=0).tolist()


def _made_from(options: BenchOptions, data: Path) -> Iterator[bytes]:
    """What all methods share: the options, the protocol and the measurements."""
    yield repr((options.quick, options.seed)).encode()
    for shared in (searched, play, _observed, space_of, Session, Space, Trials):
        yield inspect.getsource(shared).encode()
    for name in DATA:
        for path in sorted((data / name).glob("*.csv*")):
            yield path.read_bytes()


def _version(method: str) -> str:
    """Changes when the method's own code does."""
    modules = (searcher, other_workloads) if method == "trimtab" else (rivals,)
    code = "".join(inspect.getsource(module) for module in modules)
    return hashlib.sha256(code.encode()).hexdigest()[:16]
