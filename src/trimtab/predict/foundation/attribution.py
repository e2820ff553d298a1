"""Why this number: what each thing that is known of an application adds to its predicted time.

It starts with the run that is nearest to the target. Going from there to the target with nothing but that
time known is one step; every further thing known, a group of metrics or another run, then gets its Shapley
value: its part averaged over all orders in which the things could have been learned. So the parts add up to
the prediction, a thing that changes nothing gets zero, and two that do the same get the same.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import factorial

import numpy as np

from trimtab.core import Contribution
from trimtab.predict.fewshot import METRICS, Array, Case, Rows, distances

GROUPS: Mapping[str, tuple[str, ...]] = {
    "its CPU time": ("cpu_user", "cpu_system", "cpu_waiting", "throttled", "involuntary_switches"),
    "its memory": ("memory_used", "memory_fraction", "heap_used", "major_faults"),
    "its input and output": (
        "bytes_read", "bytes_written", "bytes_received", "bytes_sent", "disk_busy", "context_switches",
    ),
    "how its times scatter": ("seconds_deviation", "seconds_least", "seconds_median"),
}  # fmt: skip

Answer = Callable[[Case, Rows], Array]


@dataclass(frozen=True, slots=True)
class _Player:
    """Something known: metrics by column, or one more run by row."""

    name: str
    columns: tuple[int, ...] = ()
    row: int | None = None


def contributions(
    answer: Answer, case: Case, known: Rows, target: int, places: Sequence[str] | None = None
) -> tuple[Contribution, ...]:
    """The predicted seconds of one configuration, in parts that add up to it; `places` are names to use."""
    names = places or case.configurations
    base = int(known[distances(case.settings[[target]], case.settings[known])[0].argmin()])
    players = _players(case, known, base, names)
    worth: dict[frozenset[int], float] = {}
    for size in range(len(players) + 1):
        for some in combinations(range(len(players)), size):
            shown, rows = _shown(case, base, [players[i] for i in some])
            worth[frozenset(some)] = float(answer(shown, rows)[target])
    start = float(case.seconds[base])
    parts = [Contribution(f"measured at {names[base]}", start)]
    parts.append(Contribution(f"at {names[target]} instead", worth[frozenset()] - start))
    for number, player in enumerate(players):
        parts.append(Contribution(player.name, _shapley(number, len(players), worth)))
    return tuple(parts)


def _players(case: Case, known: Rows, base: int, names: Sequence[str]) -> list[_Player]:
    found = []
    for name, metrics in GROUPS.items():
        columns = tuple(METRICS.index(metric) for metric in metrics)
        if not np.isnan(case.metrics[known][:, list(columns)]).all():
            found.append(_Player(name, columns))
    return found + [
        _Player(f"the run at {names[row]}", row=row) for row in np.asarray(known).tolist() if row != base
    ]


def _shown(case: Case, base: int, some: Sequence[_Player]) -> tuple[Case, Rows]:
    """The case as if only these things, and the base run's time, were known."""
    columns = [column for player in some for column in player.columns]
    rows = np.sort([base, *(player.row for player in some if player.row is not None)])
    metrics = np.full_like(case.metrics, np.nan)
    metrics[:, columns] = case.metrics[:, columns]
    return replace(case, metrics=metrics).seen_at(rows), rows


def _shapley(player: int, count: int, worth: Mapping[frozenset[int], float]) -> float:
    others = [other for other in range(count) if other != player]
    total = 0.0
    for size in range(count):
        share = factorial(size) * factorial(count - size - 1) / factorial(count)
        for some in combinations(others, size):
            total += share * (worth[frozenset((*some, player))] - worth[frozenset(some)])
    return total
