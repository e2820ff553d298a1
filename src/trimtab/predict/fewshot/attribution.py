"""Contributions to a predicted time: how many seconds each fact that is known of an application adds.

They start with the run that is nearest to the target. Going from there to the target with nothing but that
time known is one step; every further fact, a group of metrics or another run, then gets its Shapley value:
its part averaged over all orders in which the facts could have been learned. So the parts add up to the
prediction, a fact that changes nothing gets zero, and two that do the same get the same. Many further runs
count as one fact, because the orders of all of them are too many to try.
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
class _Fact:
    """Known metrics by column, or further runs by row."""

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
    _computed: dict[int, tuple[list[_Fact], Worth]] = field(default_factory=dict)

    def parts(self, target: int) -> tuple[Contribution, ...]:
        """The predicted seconds of one configuration, in parts that add up to it."""
        case, names = self.case, self.places
        nearest = distances(case.settings[[target]], case.settings[self.known])[0].argmin()
        base = int(self.known[nearest])
        if base not in self._computed:
            facts = self._facts(base)
            subsets = (
                some for size in range(len(facts) + 1) for some in combinations(range(len(facts)), size)
            )
            worth = {frozenset(some): self._answer_with(base, [facts[i] for i in some]) for some in subsets}
            self._computed[base] = facts, worth
        facts, worth = self._computed[base]
        at_target = {some: float(seconds[target]) for some, seconds in worth.items()}
        start = float(case.seconds[base])
        return (
            Contribution(f"measured at {names[base]}", start),
            Contribution(f"at {names[target]} instead", at_target[frozenset()] - start),
            *(Contribution(fact.name, _shapley(i, len(facts), at_target)) for i, fact in enumerate(facts)),
        )

    def _facts(self, base: int) -> list[_Fact]:
        facts = []
        for name, metrics in GROUPS.items():
            columns = tuple(METRICS.index(metric) for metric in metrics)
            if not np.isnan(self.case.metrics[self.known][:, list(columns)]).all():
                facts.append(_Fact(name, columns))
        others = [row for row in np.asarray(self.known).tolist() if row != base]
        if len(others) > _MOST_RUNS:
            return [*facts, _Fact(f"the other {len(others)} runs", rows=tuple(others))]
        return facts + [_Fact(f"the run at {self.places[row]}", rows=(row,)) for row in others]

    def _answer_with(self, base: int, facts: Sequence[_Fact]) -> Array:
        """The answer if only these facts, and the base run's time, were known."""
        columns = [column for fact in facts for column in fact.columns]
        rows = np.sort([base, *(row for fact in facts for row in fact.rows)])
        metrics = np.full_like(self.case.metrics, np.nan)
        metrics[:, columns] = self.case.metrics[:, columns]
        return self.answer(replace(self.case, metrics=metrics).known_at(rows), rows)


def _shapley(player: int, count: int, worth: Mapping[frozenset[int], float]) -> float:
    others = [other for other in range(count) if other != player]
    total = 0.0
    for size in range(count):
        share = factorial(size) * factorial(count - size - 1) / factorial(count)
        for some in combinations(others, size):
            total += share * (worth[frozenset((*some, player))] - worth[frozenset(some)])
    return total
