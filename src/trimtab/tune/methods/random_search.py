"""Random search: every configuration is as likely as any other, and none comes twice."""

from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.predict import Case
from trimtab.tune.method import ALL_TRIED, Belief, Choice, Search, Stop, Trials, starts
from trimtab.tune.observation import Observation
from trimtab.tune.space import Space


@dataclass(frozen=True, slots=True)
class RandomSearch:
    """Learns from nothing."""

    name: str = "random"

    def begin(self, space: Space, objective: str, others: Sequence[Case], seed: int) -> Search:
        return _RandomSearch(space, objective, seed)


@dataclass(frozen=True, slots=True, eq=False)
class _RandomSearch:
    space: Space
    objective: str
    seed: int

    def next(self, seen: Sequence[Observation]) -> Choice | Stop:
        left = set(Trials.of(self.space, self.objective, seen).left.tolist())
        if not left:
            return ALL_TRIED
        row = next(int(row) for row in starts(self.space, self.seed) if int(row) in left)
        return Choice(row, "drawn at random")

    def belief(self, seen: Sequence[Observation]) -> Belief | None:
        return None
