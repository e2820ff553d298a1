"""Why this number: what each thing that is known of an application adds to its predicted time.

It starts with the run that is nearest to the target. Going from there to the target with nothing but that
time known is one step; every further thing known, a group of metrics or another run, then gets its Shapley
value: its part averaged over all orders in which the things could have been learned. So the parts add up to
the prediction, a thing that changes nothing gets zero, and two that do the same get the same. Many further
runs count as one thing, because the orders of all of them are too many to try.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import factorial

import numpy as np

from trimtab.core import Contribution
from trimtab.predict.fewshot.case import METRICS, Array, Case
from trimtab.predict.fewshot.predictor import Rows, distances

GROUPS: Mapping[str, tuple[str, ...]] = {
    "its CPU time": ("cpu_user", "cpu_system", "cpu_waiting", "throttled", "involuntary_switches"),
    "its memory": ("memory_used", "memory_fraction", "heap_used", "major_faults"),
    "its input and output": (
        "bytes_read", "bytes_written", "bytes_received", "bytes_sent", "disk_busy", "context_switches",
    ),
    "how its times scatter": ("seconds_deviation", "seconds_least", "seconds_median"),
}  # fmt: skip

Answer = Callable[[Case, Rows], Array]
Worth = dict[frozenset[int], Array]

_MOST_RUNS = 3  # beyond the nearest that have a part of their own


@dataclass(frozen=True, slots=True)
class _Player:
    """Something known: metrics by column, or more runs by row."""

    name: str
    columns: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Attribution:
    """Parts of predicted times; targets that are nearest to the same run share the computation."""

    answer: Answer
    case: Case
    known: Rows
    places: Sequence[str]  # names of the case's configurations, for people
    _played: dict[int, tuple[list[_Player], Worth]] = field(default_factory=dict)

    def parts(self, target: int) -> tuple[Contribution, ...]:
        """The predicted seconds of one configuration, in parts that add up to it."""
        case, names = self.case, self.places
        nearest = distances(case.settings[[target]], case.settings[self.known])[0].argmin()
        base = int(self.known[nearest])
        if base not in self._played:
            self._played[base] = self._play(base)
        players, worth = self._played[base]
        at_target = {some: float(seconds[target]) for some, seconds in worth.items()}
        start = float(case.seconds[base])
        return (
            Contribution(f"measured at {names[base]}", start),
            Contribution(f"at {names[target]} instead", at_target[frozenset()] - start),
            *(
                Contribution(player.name, _shapley(number, len(players), at_target))
                for number, player in enumerate(players)
            ),
        )

    def _play(self, base: int) -> tuple[list[_Player], Worth]:
        """The answer with every set of things known, beside the base run's time."""
        players = self._players(base)
        worth: Worth = {}
        for size in range(len(players) + 1):
            for some in combinations(range(len(players)), size):
                shown, rows = _shown(self.case, base, [players[i] for i in some])
                worth[frozenset(some)] = self.answer(shown, rows)
        return players, worth

    def _players(self, base: int) -> list[_Player]:
        found = []
        for name, metrics in GROUPS.items():
            columns = tuple(METRICS.index(metric) for metric in metrics)
            if not np.isnan(self.case.metrics[self.known][:, list(columns)]).all():
                found.append(_Player(name, columns))
        others = [row for row in np.asarray(self.known).tolist() if row != base]
        if len(others) > _MOST_RUNS:
            return [*found, _Player(f"the other {len(others)} runs", rows=tuple(others))]
        return found + [_Player(f"the run at {self.places[row]}", rows=(row,)) for row in others]


def _shown(case: Case, base: int, some: Sequence[_Player]) -> tuple[Case, Rows]:
    """The case as if only these things, and the base run's time, were known."""
    columns = [column for player in some for column in player.columns]
    rows = np.sort([base, *(row for player in some for row in player.rows)])
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
